"""Per-publisher ordering between nodes.

Links are FIFO, but consecutive publications of one publisher may take different routes: a publisher
that crosses a border publishes to another site, which may be faster; and a node is sent only what
its clients may want. The first publication of a publisher that goes to a node therefore carries
along the publisher's publications of the last two seconds which that node has not been sent. The
receiver decides which of them its clients want. While all publications of a publisher go to a node,
nothing has to be searched.

A retained state goes to every node and carries nothing along. So a publisher that retains only some
of its publications may be delivered out of order until it is known who wants the others.
"""

from collections.abc import Iterable, Iterator, Sequence

from nearcast.model.subscription import NodeId, PublicationId
from nearcast.service.cluster.messages import CLIENTS_ONLY, PREVIOUS_OWNER, mode_of
from nearcast.service.cluster.recent_history import PastFlush
from nearcast.service.cluster.remote_subscriptions import COUNT_BITS, block_of
from nearcast.space.motion import SECOND, Time

AGO: Time = 2 * SECOND  # older publications have arrived everywhere


class OutgoingPublications:
    """What is to be sent: for each node which publications, each with its mode and hops."""

    def __init__(self) -> None:
        self._entries: dict[NodeId, list[tuple[Time, PublicationId, int, PastFlush, int]]] = {}

    def put(self, node: NodeId, flush: PastFlush, which: Iterable[int], code: int) -> None:
        """Adds publications, but none that was sent there before or was published there."""
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
        """For each node, in the order of publication: code, flush and index."""
        for node, entries in self._entries.items():
            if entries:
                entries.sort(key=lambda entry: entry[:2])
                yield node, [entry[2:] for entry in entries]


class PublisherOrdering:
    """Which nodes have been sent all recent publications of a publisher, as site or as home."""

    def __init__(self, flushes: Sequence[PastFlush]) -> None:
        self._flushes = flushes  # of the last seconds, by time
        self._last_flush: dict[NodeId, PastFlush] = {}  # by publisher: its last flush
        # By node and publisher: the flush up to which it has been sent everything.
        self._sites: dict[NodeId, dict[NodeId, PastFlush]] = {}
        self._homes: dict[NodeId, dict[NodeId, PastFlush]] = {}

    def mark_sent(self, flush: PastFlush) -> None:
        """This flush has been routed."""
        self._last_flush.update(dict.fromkeys(flush.publishers, flush))

    def for_this_site(
        self, me: NodeId, flush: PastFlush, which: Sequence[int]
    ) -> Iterator[tuple[PastFlush, list[int]]]:
        """What this site has to route with these: recent ones of their publishers, too."""
        whose, whole = _publishers_and_all(flush, which)
        yield from self._missing(self._sites, me, whose, flush)
        yield flush, whole
        self._mark_complete(self._sites, me, whose, flush)

    def add_for_site(
        self, outgoing: OutgoingPublications, site: NodeId, flush: PastFlush, chosen: dict[int, int]
    ) -> None:
        """These go to that site, each with its code."""
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
        """These go to that home, whose clients may want them."""
        whose, whole = _publishers_and_all(flush, chosen)
        for one, earlier in self._missing(self._homes, home, whose, flush):
            outgoing.put(home, one, earlier, CLIENTS_ONLY)
        outgoing.put(home, flush, whole, CLIENTS_ONLY)
        self._mark_complete(self._homes, home, whose, flush)

    def add_missing(self, outgoing: OutgoingPublications, node: NodeId, entity: NodeId) -> None:
        """This publisher publishes there from now on: the site gets its recent publications."""
        for one, earlier in self._missing(self._sites, node, [entity], None):
            outgoing.put(node, one, earlier, PREVIOUS_OWNER)

    def _missing(
        self, had: dict[NodeId, dict[NodeId, PastFlush]], node: NodeId, whose: Iterable[NodeId],
        until: PastFlush | None,
    ) -> Iterator[tuple[PastFlush, list[int]]]:  # fmt: skip
        """By flush, earlier publications of these publishers that the node has not been sent."""
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
        """The node has been sent all of theirs, up to this flush."""
        has = had.setdefault(node, {})
        if flush is not self._flushes[-1]:
            whose = [entity for entity in whose if entity not in has or has[entity].t < flush.t]
        has.update(dict.fromkeys(whose, flush))

    def forget(self, now: Time) -> None:
        """Forgets publishers that have not published for so long."""
        self._last_flush = _newer_than(self._last_flush, now - AGO)
        for had in (self._sites, self._homes):
            for node, entities in had.items():
                had[node] = _newer_than(entities, now - AGO)


def _newer_than(flushes: dict[NodeId, PastFlush], since: Time) -> dict[NodeId, PastFlush]:
    return {entity: flush for entity, flush in flushes.items() if flush.t >= since}


def _publishers_and_all(flush: PastFlush, which: Sequence[int]) -> tuple[list[NodeId], list[int]]:
    """The publishers of these, and all their publications in this flush."""
    if len(which) == len(flush.publishers):
        return list(dict.fromkeys(flush.publishers)), list(which)
    whose = list(dict.fromkeys([flush.publishers[index] for index in which]))
    return whose, flush.of(whose)
