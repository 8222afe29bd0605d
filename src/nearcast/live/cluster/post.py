"""Publications between nodes, in batches: at each flush, one message for each node concerned.

A publication is matched at home at once against all its own clients. Then it goes to the site whose
place it is for (an area: to all the sites it touches, by VoroCast), and that site tells the homes
of those clients on other nodes who may want it. A home hears each publication once, whoever tells
it, and matches it against all its clients as they were when it was made: so nobody hears anything
twice, and nothing depends on who knew what when.

Between two nodes nothing is overtaken, but ways differ: whoever crosses a border says the next
thing to another site, which may be faster. So what somebody said a moment ago goes ahead of what it
says now, to every site that does not have it yet (`Trail`).

A state is everybody's: each node knows all of them, so that it can say who is near. So is what
somebody wants counted: every node is asked how many of its subscriptions have heard it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Raw, Struct

from nearcast.live import words
from nearcast.live.cluster.abroad import COUNT_BITS, Abroad, block_of
from nearcast.live.cluster.lately import Passed
from nearcast.live.cluster.messages import (
    BEFORE,
    CAST,
    TOWARDS,
    Counted,
    Heard,
    Said,
    States,
    Uttered,
)
from nearcast.live.cluster.realm import ClusterRealm
from nearcast.live.seats import Accepted, Seat
from nearcast.matching.matcher import Batch, Floats, Integers
from nearcast.model.publication import check_attributes
from nearcast.model.subscription import NodeId, PublicationId
from nearcast.node import Message
from nearcast.protocols.voronoi.records import Flags
from nearcast.protocols.voronoi.site import Site
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import POINT

MOST_HOPS = 16  # what has come so far goes round in circles
GATHERED_S = 0.02  # what comes from other nodes waits for more, and falls into order meanwhile
LARGEST = 500_000  # bytes of payloads in one message
AGO: Time = SECOND  # what is older has arrived, wherever it went
COUNTED_S = 1.0  # so long we wait to be told how many have heard something


def uttered(accepted: Accepted, t: Time) -> Uttered:
    said, seat = accepted.request, accepted.seat
    return Uttered(
        accepted.id, seat.entity, accepted.t or t, accepted.form.binary, said.x, said.y,
        bytes(said.payload), said.retain, said.attributes, said.channel, said.z,
        said.r, said.rx, said.ry, said.rz, seat.name if said.retain else "",
    )  # fmt: skip


def request_of(said: Uttered) -> words.Publish:
    payload = Raw(said.payload) if said.payload else words.NOTHING
    return words.Publish(
        said.x, said.y, payload, said.retain, said.attributes, said.channel, said.z,
        said.r, said.rx, said.ry, said.rz,
    )  # fmt: skip


def form_of(packed: bool) -> words.Form:
    return words.PACKED if packed else words.JSON


class Count(Struct):
    """How many subscriptions on other nodes have heard it, as far as they have said."""

    told: "asyncio.Future[None]"
    readers: int = 0
    silent: dict[NodeId, None] = {}


class Trail(Struct):
    """What somebody has said lately, here or past here, and the sites that have all of it."""

    sites: list[NodeId]
    said: deque[tuple["_Letters", int]]

    def parts(self, since: Time) -> Iterable[tuple["_Letters", list[int]]]:
        """By flushes, in order."""
        parts: dict[Time, tuple[_Letters, list[int]]] = {}
        for letters, index in self.said:
            if letters.passed.t >= since:
                parts.setdefault(letters.passed.t, (letters, []))[1].append(index)
        return parts.values()


# By index: from whom a publication has come, which way, how far.
Ways: TypeAlias = dict[int, tuple[NodeId, int, int]]
# Publications and nodes, in two columns.
Pairs: TypeAlias = tuple[Integers, Integers]
NO_PAIRS: Pairs = (np.zeros(0, np.int64), np.zeros(0, np.int64))
# By target, way and hops: which ones.
Further: TypeAlias = dict[tuple[NodeId, int, int], list[int]]


class Post:
    def __init__(
        self, realm: ClusterRealm, site: Callable[[], Site], abroad: Abroad,
        send: Callable[[NodeId, Message], None], wake: Callable[[float], None],
        nodes: Callable[[], Collection[NodeId]],
    ) -> None:  # fmt: skip
        self._realm, self._site, self._abroad, self._nodes = realm, site, abroad, nodes
        self._send, self._wake = send, wake
        self._block = block_of(site().id)
        # What other nodes have said since the last flush: from whom, which way, how far; the way
        # of what concerns our clients alone is None.
        self._ways: dict[PublicationId, tuple[NodeId, int | None, int]] = {}
        self._counts: dict[PublicationId, Count] = {}
        self._asked: list[tuple[NodeId, PublicationId]] = []  # who wants to know how many heard it
        self._trails: dict[NodeId, Trail] = {}  # by entity

    def on(self, message: Said | Heard, sender: NodeId) -> None:
        way, hops = (message.way, message.hops) if isinstance(message, Said) else (None, 0)
        if isinstance(message, Heard) and message.counted:
            self._asked += [(sender, said.id) for said in message.said]
        lately = self._realm.lately
        known = []
        for said in message.said:
            if said.id >> COUNT_BITS == self._block or not lately.is_new(said.id):
                # It was made here, or has come already; perhaps not as something to look after.
                if way is not None and not lately.has_acted(said.id) and self._concerns(said.id):
                    known.append(said.id)
                continue
            try:
                if said.attributes:
                    check_attributes(said.attributes)
                self._realm.overhear(
                    said.entity, said.name, said.id, request_of(said), form_of(said.packed), said.t
                )
            except ValueError:
                continue
            self._ways[said.id] = sender, way, hops
        if known and way is not None:
            self._look_after(known, (sender, way, hops))
        if self._realm.waiting:
            self._wake(GATHERED_S)

    def _concerns(self, publication: PublicationId) -> bool:
        """Is there another node than the one where it was made, which has told its own clients?"""
        made = publication >> COUNT_BITS
        return any(block_of(node) != made for node in self._nodes())

    def _look_after(self, known: list[PublicationId], came: tuple[NodeId, int, int]) -> None:
        """These are known here, and now somebody wants this site to look who else wants them."""
        late = []
        for publication in known:
            waiting = self._ways.get(publication)
            if waiting is None:
                late.append(publication)
            elif waiting[1] is None or came[1] != BEFORE:
                self._ways[publication] = came
        for passed, chosen in self._realm.lately.find(late):
            letters = _Letters(passed, self._send)
            if came[1] == BEFORE:
                self._look(letters, np.array(chosen))
            else:
                self._act(letters, [], dict.fromkeys(chosen, came))

    def flushed(self, passed: Passed, own: int) -> None:
        """These were made here (the first ones) or have come from elsewhere: on with them."""
        ways: Ways = {}
        for index, one in enumerate(passed.accepted[own:], own):
            sender, way, hops = self._ways.pop(one.id)
            if way is not None:
                ways[index] = sender, way, hops
        letters = _Letters(passed, self._send)
        self._act(letters, range(own), ways, self._abroad.gone(passed.publications))
        self._tell_all(letters, passed)
        self._site().activity(float(len(passed.publications)))

    def _act(
        self, letters: "_Letters", made: Sequence[int], ways: Ways, gone: Pairs = NO_PAIRS
    ) -> None:
        """Those that were made here, and those that have come for this site: who wants them?

        `gone`: which of them go on to where clients of ours have gone.
        """
        passed = letters.passed
        here = np.zeros(len(passed.publications), np.bool_)
        here[[*made, *ways]] = True
        further = self._direct(passed.publications, ways, here)
        which = np.flatnonzero(here)
        if self._nodes():
            sites = {index: [self._site().id] for index in which.tolist()}
            for (target, _, _), chosen in further.items():
                for index in chosen:
                    sites.setdefault(index, []).append(target)
            homes: dict[int, list[NodeId]] = {}
            for index, home in zip(*(column.tolist() for column in gone), strict=True):
                homes.setdefault(index, []).append(home)
            self._send_ahead(letters, [*ways, *made], sites, homes)
        for (target, way, hops), chosen in further.items():
            letters.say(target, chosen, way, hops)
        self._tell(letters, *gone)
        self._look(letters, which)

    def _look(self, letters: "_Letters", which: Integers) -> None:
        """Who on other nodes wants these?"""
        passed, nodes = letters.passed, self._nodes()
        self._realm.lately.act(passed.ids[which].tolist())
        if len(nodes) == 1:  # what was made there has been told there
            (other,) = nodes
            which = which[passed.ids[which] >> COUNT_BITS != block_of(other)]
        self._tell(letters, *self._abroad.homes(passed.publications, which))

    def _send_ahead(
        self, letters: "_Letters", acted: list[int],
        sites: dict[int, list[NodeId]], homes: dict[int, list[NodeId]],
    ) -> None:  # fmt: skip
        """What somebody said before, to the sites and homes to which this goes and that did not."""
        since = letters.passed.t - AGO
        for index in acted:
            entity, to = letters.passed.accepted[index].seat.entity, sites.get(index, [])
            trail = self._trails.get(entity)
            if trail is None:
                trail = self._trails[entity] = Trail(to, deque())
            elif trail.sites != to:
                for site in to:
                    if site not in trail.sites:
                        self._follow(trail, site, since)
                trail.sites = to
            for home in homes.get(index, ()):
                last = trail.said[-1] if trail.said else None
                if last is not None and last[1] not in last[0].passed.told.get(home, ()):
                    for part, chosen in trail.parts(since):
                        part.tell(home, chosen)
            trail.said.append((letters, index))

    def _follow(self, trail: Trail, node: NodeId, since: Time) -> None:
        for letters, chosen in trail.parts(since):
            if node == self._site().id:
                acted, ids = self._realm.lately.has_acted, letters.passed.ids
                new = [index for index in chosen if not acted(int(ids[index]))]
                if new:
                    self._look(letters, np.array(new))
            else:
                known = letters.said.get(node, ())
                letters.say(node, [index for index in chosen if index not in known], BEFORE, 1)

    def hand_over(self, now: Time, entity: NodeId, node: NodeId) -> None:
        """It will speak there from now on."""
        trail = self._trails.pop(entity, None)
        if trail is not None:
            self._follow(trail, node, now - AGO)

    def forget(self, now: Time) -> None:
        for entity, trail in list(self._trails.items()):
            while trail.said and trail.said[0][0].passed.t < now - AGO:
                trail.said.popleft()
            if not trail.said:
                del self._trails[entity]

    def _direct(self, publications: Batch, ways: Ways, here: Flags) -> Further:
        """Who else must have them; what was made here for elsewhere is not matched here."""
        site = self._site()
        further: Further = {}
        own = site.id, TOWARDS, 0
        spread = here.copy()
        spread[[index for index, (_, way, _) in ways.items() if way == BEFORE]] = False
        point = publications.kind == POINT
        asked = np.flatnonzero(spread & point)
        centres = publications.centre[asked, :2]
        owners = self._owners(site, centres)
        for index, owner in zip(
            asked[owners != site.id].tolist(), owners[owners != site.id].tolist(), strict=True
        ):
            hops = ways.get(index, own)[2]
            here[index] = index in ways  # in doubt it is told twice
            if hops < MOST_HOPS:
                further.setdefault((owner, TOWARDS, hops + 1), []).append(index)
        # While borders move, they may have copies which this site still waits for.
        before, alive = site.owners_before(centres), [*self._nodes()]
        if before is not None:
            others = (owners == site.id) & (before != site.id) & np.isin(before, alive)
            for index, elder in zip(asked[others].tolist(), before[others].tolist(), strict=True):
                further.setdefault((elder, BEFORE, ways.get(index, own)[2] + 1), []).append(index)
        for index in np.flatnonzero(spread & ~point).tolist():
            sender, way, hops = ways.get(index, own)
            shape = publications.publications[index].shape
            entry = site.entry(shape) if way == TOWARDS and hops < MOST_HOPS else None
            if entry is not None:
                here[index] = index in ways
                further.setdefault((entry, TOWARDS, hops + 1), []).append(index)
                continue
            for target in site.cast(shape, site.id if way == TOWARDS else sender):
                further.setdefault((target, CAST, hops + 1), []).append(index)
            elders = site.elders(shape) if way == TOWARDS else ()
            for elder in (one for one in elders if one in alive):
                further.setdefault((elder, BEFORE, hops + 1), []).append(index)
        return further

    def _owners(self, site: Site, centres: Floats) -> Integers:
        if site.ready:
            return site.mesh.owners(centres)
        hops = (site.heir((x, y)) for x, y in centres.tolist())
        return np.array([site.id if hop is None else hop for hop in hops], np.int64)

    def _tell_all(self, letters: "_Letters", passed: Passed) -> None:
        """Whoever has not been told yet; and those who are to count are asked."""
        counts = {}
        if self._counts:
            numbers = (one.id for one in passed.accepted)
            counts = {i: self._counts[n] for i, n in enumerate(numbers) if n in self._counts}
        chosen = passed.retained.tolist()
        for node in self._nodes():
            letters.tell(node, chosen)
            letters.ask(node, list(counts))
            for count in counts.values():
                count.silent[node] = None
        for count in counts.values():
            self._has_counted(count)

    def _tell(self, letters: "_Letters", found: Integers, whose: Integers) -> None:
        me = self._site().id
        for home in dict.fromkeys(whose.tolist()):
            if home != me:
                letters.tell(home, found[whose == home].tolist())

    # How many hear it.

    async def counted(self, publication: PublicationId) -> tuple[int, int]:
        """How many subscriptions on other nodes hear it, and how many nodes have not said."""
        count = self._counts[publication] = Count(asyncio.get_running_loop().create_future())
        try:
            async with asyncio.timeout(COUNTED_S):
                await count.told
        except TimeoutError:
            pass
        finally:
            del self._counts[publication]
        return count.readers, len(count.silent)

    def on_counted(self, counted: Counted, sender: NodeId) -> None:
        for publication, readers in counted.counts:
            count = self._counts.get(publication)
            if count is not None and sender in count.silent:
                del count.silent[sender]
                count.readers += readers
                self._has_counted(count)

    def _has_counted(self, count: Count) -> None:
        if not count.silent and not count.told.done():
            count.told.set_result(None)

    def count(self) -> None:
        """Tell those who have asked, once it has been heard."""
        if self._asked and not self._realm.waiting:
            asked, self._asked = self._asked, []
            for node, publication in asked:
                readers = self._realm.lately.readers(publication)
                self._send(node, Counted(((publication, readers),)))

    # States.

    def tell_states(self, nodes: Iterable[NodeId], seats: Iterable[Seat]) -> None:
        """These nodes are to know what these clients retain."""
        realm = self._realm
        states = [uttered(s.accepted, s.t) for seat in seats for s in realm.retained(seat)]
        for part in _parts(states):
            for node in nodes:
                self._send(node, States(realm.now, part))

    def on_states(self, message: States, sender: NodeId) -> None:
        for said in message.states:
            try:
                self._realm.recall(
                    message.t, sender, said.entity, said.name, request_of(said),
                    form_of(said.packed), said.id, said.t,
                )  # fmt: skip
            except ValueError:
                continue

    def catch_up(self, now: Time, passed: Sequence[Passed]) -> None:
        """To those homes whose clients' wishes have only just become known here."""
        late: dict[tuple[Time, NodeId], tuple[Passed, list[int]]] = {}
        acted = self._realm.lately.has_acted
        for one, index, home in self._abroad.late(now, passed):
            if acted(int(one.ids[index])):  # the others are other sites' business
                late.setdefault((one.t, home), (one, []))[1].append(index)
        for (_, home), (one, chosen) in late.items():
            _Letters(one, self._send).tell(home, chosen)


class _Letters:
    """Publications of one flush, each put into words once."""

    def __init__(self, passed: Passed, send: Callable[[NodeId, Message], None]) -> None:
        self.passed, self._send = passed, send
        self.said: dict[NodeId, set[int]] = {}  # to sites
        self._uttered: dict[int, Uttered] = {}

    def _words(self, chosen: Iterable[int]) -> Iterable[Uttered]:
        for index in chosen:
            said = self._uttered.get(index)
            if said is None:
                said = uttered(self.passed.accepted[index], self.passed.t)
                self._uttered[index] = said
            yield said

    def say(self, target: NodeId, chosen: list[int], way: int, hops: int) -> None:
        self.said.setdefault(target, set()).update(chosen)
        self.passed.told.setdefault(target, set()).update(chosen)
        for part in _parts(self._words(chosen)):
            self._send(target, Said(way, hops, part))

    def tell(self, home: NodeId, chosen: list[int]) -> None:
        """Not what it has been told, nor what was made there: it has told its own clients."""
        accepted, block = self.passed.accepted, block_of(home)
        told = self.passed.told.setdefault(home, set())
        wanted = [i for i in chosen if accepted[i].id >> COUNT_BITS != block and i not in told]
        told.update(wanted)
        for part in _parts(self._words(wanted)):
            self._send(home, Heard(part))

    def ask(self, home: NodeId, chosen: list[int]) -> None:
        """How many hear these? Whether it has been told of them or not."""
        for part in _parts(self._words(chosen)):
            self._send(home, Heard(part, counted=True))


def _parts(several: Iterable[Uttered]) -> Iterable[tuple[Uttered, ...]]:
    part: list[Uttered] = []
    size = 0
    for said in several:
        part.append(said)
        size += len(said.payload) + 256
        if size > LARGEST:
            yield tuple(part)
            part, size = [], 0
    if part:
        yield tuple(part)
