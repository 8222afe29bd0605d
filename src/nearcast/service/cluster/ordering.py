"""Whatever goes to a node takes along what its publisher said before, so that nothing is overtaken.

Between two nodes nothing is overtaken, but ways differ. Whoever crosses a border says the next
thing to another site, which may be faster; and a node is told of something because somebody there
wants it, and of what was said before only once it is known that somebody there wants that, too. So
with the first thing of a publisher that goes to a node goes all that it has said in the last
seconds and that this node has not been sent: who hears it there is decided there. As long as all of
somebody's words go to a node, nothing is looked for.

A state, which goes to every node, takes nothing along: a publisher that retains some of its words
and not others may be heard out of order while it is not known yet who wants them.
"""

from collections.abc import Iterable, Iterator, Sequence

from nearcast.model.subscription import NodeId, PublicationId
from nearcast.service.cluster.messages import CLIENTS_ONLY, PREVIOUS_OWNER, mode_of
from nearcast.service.cluster.recent_history import PastFlush
from nearcast.service.cluster.remote_subscriptions import COUNT_BITS, block_of
from nearcast.space.motion import SECOND, Time

AGO: Time = 2 * SECOND  # what is older has arrived, wherever it went


class OutgoingPublications:
    """What is to be sent: for each node which publications, and in which way."""

    def __init__(self) -> None:
        self._entries: dict[NodeId, list[tuple[Time, PublicationId, int, PastFlush, int]]] = {}

    def put(self, node: NodeId, flush: PastFlush, which: Iterable[int], code: int) -> None:
        """Not again what was sent there, nor to its clients what was made there."""
        sent = flush.sent.setdefault(node, {})
        entries = self._entries.setdefault(node, [])
        times, ids, way, made = flush.publications.t, flush.ids, mode_of(code), block_of(node)
        for index in which:
            before, number = sent.get(index), int(ids[index])
            if way == CLIENTS_ONLY and (before is not None or number >> COUNT_BITS == made):
                continue
            if way == PREVIOUS_OWNER and before is not None and mode_of(before) != CLIENTS_ONLY:
                continue
            sent[index] = code
            entries.append((int(times[index]), number, code, flush, index))

    def entries(self) -> Iterator[tuple[NodeId, list[tuple[int, PastFlush, int]]]]:
        """For each node, as they were made: the way, and where it is."""
        for node, entries in self._entries.items():
            if entries:
                entries.sort(key=lambda entry: entry[:2])
                yield node, [entry[2:] for entry in entries]


class PublisherOrdering:
    """Who has been sent all that somebody has said lately, as a site or as a home."""

    def __init__(self, flushes: Sequence[PastFlush]) -> None:
        self._flushes = flushes  # of the last seconds
        self._last_flush: dict[NodeId, PastFlush] = {}  # by publisher: its last flush
        # By node and entity: up to which flush it has all.
        self._sites: dict[NodeId, dict[NodeId, PastFlush]] = {}
        self._homes: dict[NodeId, dict[NodeId, PastFlush]] = {}

    def mark_sent(self, flush: PastFlush) -> None:
        """All of this flush has gone wherever it goes."""
        self._last_flush.update(dict.fromkeys(flush.publishers, flush))

    def for_this_site(
        self, me: NodeId, flush: PastFlush, which: Sequence[int]
    ) -> Iterator[tuple[PastFlush, list[int]]]:
        """What this site is to look after if it looks after these."""
        whose, whole = _publishers_and_all(flush, which)
        yield from self._missing(self._sites, me, whose, flush)
        yield flush, whole
        self._mark_complete(self._sites, me, whose, flush)

    def add_for_site(
        self, outgoing: OutgoingPublications, site: NodeId, flush: PastFlush, chosen: dict[int, int]
    ) -> None:
        """These go there, each in its way."""
        whose, whole = _publishers_and_all(flush, list(chosen))
        for one, earlier in self._missing(self._sites, site, whose, flush):
            outgoing.put(site, one, earlier, PREVIOUS_OWNER)
        for index, code in chosen.items():
            outgoing.put(site, flush, (index,), code)
        outgoing.put(site, flush, whole, PREVIOUS_OWNER)
        self._mark_complete(self._sites, site, whose, flush)
        self._mark_complete(self._homes, site, whose, flush)

    def add_for_home(
        self, outgoing: OutgoingPublications, home: NodeId, flush: PastFlush, chosen: Sequence[int]
    ) -> None:
        """Clients there may want these."""
        whose, whole = _publishers_and_all(flush, chosen)
        for one, earlier in self._missing(self._homes, home, whose, flush):
            outgoing.put(home, one, earlier, CLIENTS_ONLY)
        outgoing.put(home, flush, whole, CLIENTS_ONLY)
        self._mark_complete(self._homes, home, whose, flush)

    def add_missing(self, outgoing: OutgoingPublications, node: NodeId, entity: NodeId) -> None:
        """It speaks there from now on."""
        for one, earlier in self._missing(self._sites, node, [entity], None):
            outgoing.put(node, one, earlier, PREVIOUS_OWNER)

    def _missing(
        self, had: dict[NodeId, dict[NodeId, PastFlush]], node: NodeId, whose: Iterable[NodeId],
        until: PastFlush | None,
    ) -> Iterator[tuple[PastFlush, list[int]]]:  # fmt: skip
        """What those of them said before whose words this node has not had, by flushes."""
        has, spoke = had.setdefault(node, {}), self._last_flush
        lacking = [entity for entity in whose if has.get(entity) is not spoke.get(entity)]
        if not lacking or not self._flushes:
            return
        oldest = (self._flushes[-1] if until is None else until).t - AGO
        since = max(oldest, min(has[e].t if e in has else oldest for e in lacking))
        for one in list(self._flushes):
            if one is until:
                return
            if one.t >= since:
                which = one.of(lacking)
                if which:
                    yield one, which

    def _mark_complete(
        self, had: dict[NodeId, dict[NodeId, PastFlush]], node: NodeId, whose: Iterable[NodeId],
        flush: PastFlush,
    ) -> None:  # fmt: skip
        """All of theirs, up to this flush."""
        has = had.setdefault(node, {})
        if flush is not self._flushes[-1]:
            whose = [entity for entity in whose if entity not in has or has[entity].t < flush.t]
        has.update(dict.fromkeys(whose, flush))

    def forget(self, now: Time) -> None:
        """Whoever has been silent for so long begins anew."""
        self._last_flush = _newer_than(self._last_flush, now - AGO)
        for had in (self._sites, self._homes):
            for node, entities in had.items():
                had[node] = _newer_than(entities, now - AGO)


def _newer_than(flushes: dict[NodeId, PastFlush], since: Time) -> dict[NodeId, PastFlush]:
    return {entity: flush for entity, flush in flushes.items() if flush.t >= since}


def _publishers_and_all(flush: PastFlush, which: Sequence[int]) -> tuple[list[NodeId], list[int]]:
    """Whose these are, and all of theirs in this flush."""
    if len(which) == len(flush.publishers):
        return list(dict.fromkeys(flush.publishers)), list(which)
    whose = list(dict.fromkeys([flush.publishers[index] for index in which]))
    return whose, flush.of(whose)
