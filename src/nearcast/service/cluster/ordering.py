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
from nearcast.service.cluster.messages import BEFORE, CLIENTS, way_of
from nearcast.service.cluster.recent_history import Passed
from nearcast.service.cluster.remote_subscriptions import COUNT_BITS, block_of
from nearcast.space.motion import SECOND, Time

AGO: Time = 2 * SECOND  # what is older has arrived, wherever it went


class Bag:
    """What is to be sent: for each node which publications, and in which way."""

    def __init__(self) -> None:
        self._letters: dict[NodeId, list[tuple[Time, PublicationId, int, Passed, int]]] = {}

    def put(self, node: NodeId, passed: Passed, which: Iterable[int], code: int) -> None:
        """Not again what was sent there, nor to its clients what was made there."""
        sent = passed.sent.setdefault(node, {})
        letters = self._letters.setdefault(node, [])
        times, ids, way, made = passed.publications.t, passed.ids, way_of(code), block_of(node)
        for index in which:
            before, number = sent.get(index), int(ids[index])
            if way == CLIENTS and (before is not None or number >> COUNT_BITS == made):
                continue
            if way == BEFORE and before is not None and way_of(before) != CLIENTS:
                continue
            sent[index] = code
            letters.append((int(times[index]), number, code, passed, index))

    def letters(self) -> Iterator[tuple[NodeId, list[tuple[int, Passed, int]]]]:
        """For each node, as they were made: the way, and where it is."""
        for node, letters in self._letters.items():
            if letters:
                letters.sort(key=lambda letter: letter[:2])
                yield node, [letter[2:] for letter in letters]


class PublisherOrdering:
    """Who has been sent all that somebody has said lately, as a site or as a home."""

    def __init__(self, passed: Sequence[Passed]) -> None:
        self._passed = passed  # of the last seconds
        self._spoke: dict[NodeId, Passed] = {}  # by entity: the last flush with something of it
        # By node and entity: up to which flush it has all.
        self._sites: dict[NodeId, dict[NodeId, Passed]] = {}
        self._homes: dict[NodeId, dict[NodeId, Passed]] = {}

    def speak(self, passed: Passed) -> None:
        """All of this flush has gone wherever it goes."""
        self._spoke.update(dict.fromkeys(passed.speakers, passed))

    def mine(
        self, me: NodeId, passed: Passed, which: Sequence[int]
    ) -> Iterator[tuple[Passed, list[int]]]:
        """What this site is to look after if it looks after these."""
        whose, whole = _all_of(passed, which)
        yield from self._earlier(self._sites, me, whose, passed)
        yield passed, whole
        self._has(self._sites, me, whose, passed)

    def to_site(self, bag: Bag, site: NodeId, passed: Passed, chosen: dict[int, int]) -> None:
        """These go there, each in its way."""
        whose, whole = _all_of(passed, list(chosen))
        for one, earlier in self._earlier(self._sites, site, whose, passed):
            bag.put(site, one, earlier, BEFORE)
        for index, code in chosen.items():
            bag.put(site, passed, (index,), code)
        bag.put(site, passed, whole, BEFORE)
        self._has(self._sites, site, whose, passed)
        self._has(self._homes, site, whose, passed)

    def to_home(self, bag: Bag, home: NodeId, passed: Passed, chosen: Sequence[int]) -> None:
        """Clients there may want these."""
        whose, whole = _all_of(passed, chosen)
        for one, earlier in self._earlier(self._homes, home, whose, passed):
            bag.put(home, one, earlier, CLIENTS)
        bag.put(home, passed, whole, CLIENTS)
        self._has(self._homes, home, whose, passed)

    def follow(self, bag: Bag, node: NodeId, entity: NodeId) -> None:
        """It speaks there from now on."""
        for one, earlier in self._earlier(self._sites, node, [entity], None):
            bag.put(node, one, earlier, BEFORE)

    def _earlier(
        self, had: dict[NodeId, dict[NodeId, Passed]], node: NodeId, whose: Iterable[NodeId],
        until: Passed | None,
    ) -> Iterator[tuple[Passed, list[int]]]:  # fmt: skip
        """What those of them said before whose words this node has not had, by flushes."""
        has, spoke = had.setdefault(node, {}), self._spoke
        lacking = [entity for entity in whose if has.get(entity) is not spoke.get(entity)]
        if not lacking or not self._passed:
            return
        oldest = (self._passed[-1] if until is None else until).t - AGO
        since = max(oldest, min(has[e].t if e in has else oldest for e in lacking))
        for one in list(self._passed):
            if one is until:
                return
            if one.t >= since:
                which = one.of(lacking)
                if which:
                    yield one, which

    def _has(
        self, had: dict[NodeId, dict[NodeId, Passed]], node: NodeId, whose: Iterable[NodeId],
        passed: Passed,
    ) -> None:  # fmt: skip
        """All of theirs, up to this flush."""
        has = had.setdefault(node, {})
        if passed is not self._passed[-1]:
            whose = [entity for entity in whose if entity not in has or has[entity].t < passed.t]
        has.update(dict.fromkeys(whose, passed))

    def forget(self, now: Time) -> None:
        """Whoever has been silent for so long begins anew."""
        self._spoke = _since(self._spoke, now - AGO)
        for had in (self._sites, self._homes):
            for node, entities in had.items():
                had[node] = _since(entities, now - AGO)


def _since(flushes: dict[NodeId, Passed], since: Time) -> dict[NodeId, Passed]:
    return {entity: passed for entity, passed in flushes.items() if passed.t >= since}


def _all_of(passed: Passed, which: Sequence[int]) -> tuple[list[NodeId], list[int]]:
    """Whose these are, and all of theirs in this flush."""
    if len(which) == len(passed.speakers):
        return list(dict.fromkeys(passed.speakers)), list(which)
    whose = list(dict.fromkeys([passed.speakers[index] for index in which]))
    return whose, passed.of(whose)
