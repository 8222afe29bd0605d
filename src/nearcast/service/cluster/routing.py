"""Publications between nodes, in batches: at each flush, one message for each node concerned.

A publication is matched at home at once against all its own clients. Then it goes to the site whose
place it is for (an area: to all the sites it touches, by VoroCast), and that site tells the homes
of those clients on other nodes who may want it. A home hears each publication once, whoever tells
it, and matches it against all its clients as they were when it was made: so nobody hears anything
twice, and nothing depends on who knew what when.

What somebody said a moment ago goes along with what it says now, to every node that has not had it:
so nothing is overtaken (`trails`).

A state is everybody's: each node knows all of them, so that it can say who is near. So is what
somebody wants counted: every node is asked how many of its subscriptions have heard it.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Raw, Struct

from nearcast.client_protocol import messages
from nearcast.errors import Refused
from nearcast.matching.matcher import Batch, Floats, Integers
from nearcast.model.publication import check_attributes
from nearcast.model.subscription import NodeId, PublicationId
from nearcast.node import Message
from nearcast.protocols.voronoi.records import Flags
from nearcast.protocols.voronoi.site import Site
from nearcast.service.client_state import Accepted, ClientState
from nearcast.service.cluster.messages import (
    BEFORE,
    CAST,
    CLIENTS,
    TOWARDS,
    Ask,
    Counted,
    Said,
    States,
    Uttered,
    code_of,
    hops_of,
    way_of,
)
from nearcast.service.cluster.ordering import Bag, PublisherOrdering
from nearcast.service.cluster.realm import ClusterRealm
from nearcast.service.cluster.recent_history import Passed
from nearcast.service.cluster.remote_subscriptions import COUNT_BITS, RemoteSubscriptions, block_of
from nearcast.space.motion import Time
from nearcast.space.shapes import POINT

MOST_HOPS = 16  # what has come so far goes round in circles
GATHERED_S = 0.02  # what comes from other nodes waits for more, and falls into order meanwhile
LARGEST = 500_000  # bytes of payloads in one message
COUNTED_S = 1.0  # so long we wait to be told how many have heard something


def uttered(accepted: Accepted, t: Time) -> Uttered:
    said, seat = accepted.request, accepted.seat
    return Uttered(
        accepted.id, seat.entity, accepted.t or t, accepted.form.binary, said.x, said.y,
        bytes(said.payload), said.retain, said.attributes, said.channel, said.z,
        said.r, said.rx, said.ry, said.rz, seat.name if said.retain else "",
    )  # fmt: skip


def request_of(said: Uttered) -> messages.PublishRequest:
    payload = Raw(said.payload) if said.payload else messages.NO_PAYLOAD
    return messages.PublishRequest(
        said.x, said.y, payload, said.retain, said.attributes, said.channel, said.z,
        said.r, said.rx, said.ry, said.rz,
    )  # fmt: skip


def form_of(packed: bool) -> messages.Encoding:
    return messages.MSGPACK if packed else messages.JSON


class Count(Struct):
    """How many subscriptions on other nodes have heard it, as far as they have said."""

    told: "asyncio.Future[None]"
    readers: int = 0
    silent: dict[NodeId, None] = {}


# By index: from whom a publication has come, which way, how far.
Ways: TypeAlias = dict[int, tuple[NodeId, int, int]]
# By target: which ones, and each one's way as a code.
Further: TypeAlias = dict[NodeId, dict[int, int]]


class Routing:
    """Routes publications between nodes, each to every node once."""

    def __init__(
        self, realm: ClusterRealm, site: Callable[[], Site], abroad: RemoteSubscriptions,
        send: Callable[[NodeId, Message], None], wake: Callable[[float], None],
        nodes: Callable[[], Collection[NodeId]],
    ) -> None:  # fmt: skip
        self._realm, self._site, self._abroad, self._nodes = realm, site, abroad, nodes
        self._send, self._wake = send, wake
        self._block = block_of(site().id)
        # What other nodes have said since the last flush: from whom, which way, how far.
        self._ways: dict[PublicationId, tuple[NodeId, int, int]] = {}
        self._counts: dict[PublicationId, Count] = {}
        self._asked: list[tuple[NodeId, PublicationId]] = []  # who wants to know how many heard it
        self._trails = PublisherOrdering(realm.lately.passed)

    def on(self, message: Said | Ask, sender: NodeId) -> None:
        if isinstance(message, Ask):
            self._asked += [(sender, said.id) for said in message.said]
            ways = bytes((CLIENTS,)) * len(message.said)
        else:
            ways = message.ways
        lately = self._realm.lately
        known: dict[int, list[PublicationId]] = {}
        for said, code in zip(message.said, ways, strict=True):
            way = way_of(code)
            if said.id >> COUNT_BITS == self._block or not lately.is_new(said.id):
                # It was made here, or has come already; perhaps not as something to look after.
                if way != CLIENTS and not lately.has_acted(said.id) and self._concerns(said.id):
                    known.setdefault(code, []).append(said.id)
                continue
            try:
                if said.attributes:
                    check_attributes(said.attributes)
                heard = self._realm.overhear(
                    said.entity, said.name, said.id, request_of(said), form_of(said.packed), said.t
                )
            except (ValueError, Refused):
                continue
            if heard:
                self._ways[said.id] = sender, way, hops_of(code)
        for code, several in known.items():
            self._look_after(several, (sender, way_of(code), hops_of(code)))
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
            elif waiting[1] == CLIENTS or came[1] != BEFORE:
                self._ways[publication] = came
        for passed, chosen in self._realm.lately.find(late):
            bag = Bag()
            self._act(bag, passed, [], dict.fromkeys(chosen, came))
            self._post(bag)

    def flushed(self, passed: Passed, own: int) -> None:
        """These were made here (the first ones) or have come from elsewhere: on with them."""
        ways: Ways = {}
        for index, one in enumerate(passed.accepted[own:], own):
            came = self._ways.pop(one.id)
            if came[1] != CLIENTS:
                ways[index] = came
        bag = Bag()
        here = self._act(bag, passed, range(own), ways)
        self._bring(bag, passed, *self._abroad.gone(passed.publications, here))
        for node in self._nodes():  # all know all states
            bag.put(node, passed, passed.retained.tolist(), CLIENTS)
        self._post(bag)
        self._ask(passed)
        self._trails.speak(passed)
        self._site().activity(float(len(passed.publications)))

    def _act(self, bag: Bag, passed: Passed, made: Sequence[int], ways: Ways) -> Flags:
        """Those that were made here, and those that have come for this site: who wants them?

        Gives which of them this site looks after.
        """
        here = np.zeros(len(passed.publications), np.bool_)
        here[[*made, *ways]] = True
        for target, chosen in self._direct(passed.publications, ways, here).items():
            self._trails.to_site(bag, target, passed, chosen)
        for one, which in self._trails.mine(self._site().id, passed, np.flatnonzero(here).tolist()):
            self._look(bag, one, np.array(which, np.int64))
        return here

    def _look(self, bag: Bag, passed: Passed, which: Integers) -> None:
        """Who on other nodes wants these?"""
        nodes, lately = self._nodes(), self._realm.lately
        if passed is not lately.passed[-1]:
            new = [not lately.has_acted(number) for number in passed.ids[which].tolist()]
            which = which[new]
        lately.act(passed.ids[which].tolist())
        if len(nodes) == 1:  # what was made there has been told there
            (other,) = nodes
            which = which[passed.ids[which] >> COUNT_BITS != block_of(other)]
        self._bring(bag, passed, *self._abroad.homes(passed.publications, which))

    def _bring(self, bag: Bag, passed: Passed, found: Integers, whose: Integers) -> None:
        me = self._site().id
        for home in dict.fromkeys(whose.tolist()):
            if home != me:
                self._trails.to_home(bag, home, passed, found[whose == home].tolist())

    def _post(self, bag: Bag) -> None:
        """One message for each node, or as many as its payloads need."""
        words: dict[PublicationId, Uttered] = {}
        for node, letters in bag.letters():
            ways, said = [], []
            for code, passed, index in letters:
                number = passed.accepted[index].id
                if number not in words:
                    words[number] = uttered(passed.accepted[index], passed.t)
                ways.append(code)
                said.append(words[number])
            for first, last in _parts(said):
                self._send(node, Said(bytes(ways[first:last]), tuple(said[first:last])))

    def hand_over(self, entity: NodeId, node: NodeId) -> None:
        """It will speak there from now on."""
        bag = Bag()
        self._trails.follow(bag, node, entity)
        self._post(bag)

    def forget(self, now: Time) -> None:
        self._trails.forget(now)

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
                further.setdefault(owner, {})[index] = code_of(TOWARDS, hops + 1)
        # While borders move, they may have copies which this site still waits for.
        before, alive = site.owners_before(centres), [*self._nodes()]
        if before is not None:
            others = (owners == site.id) & (before != site.id) & np.isin(before, alive)
            for index, elder in zip(asked[others].tolist(), before[others].tolist(), strict=True):
                further.setdefault(elder, {}).setdefault(index, BEFORE)
        for index in np.flatnonzero(spread & ~point).tolist():
            sender, way, hops = ways.get(index, own)
            shape = publications.publications[index].shape
            entry = site.entry(shape) if way == TOWARDS and hops < MOST_HOPS else None
            if entry is not None:
                here[index] = index in ways
                further.setdefault(entry, {})[index] = code_of(TOWARDS, hops + 1)
                continue
            for target in site.cast(shape, site.id if way == TOWARDS else sender):
                further.setdefault(target, {})[index] = code_of(CAST, hops + 1)
            elders = site.elders(shape) if way == TOWARDS else ()
            for elder in (one for one in elders if one in alive):
                further.setdefault(elder, {}).setdefault(index, BEFORE)
        return further

    def _owners(self, site: Site, centres: Floats) -> Integers:
        if site.ready:
            return site.mesh.owners(centres)
        hops = (site.heir((x, y)) for x, y in centres.tolist())
        return np.array([site.id if hop is None else hop for hop in hops], np.int64)

    # How many hear it.

    def _ask(self, passed: Passed) -> None:
        """Every node how many of its subscriptions hear what somebody wants counted."""
        if not self._counts:
            return
        asked = [one for one in passed.accepted if one.id in self._counts]
        counts = [self._counts[one.id] for one in asked]
        for node in self._nodes():
            said = [uttered(one, passed.t) for one in asked]
            for first, last in _parts(said):
                self._send(node, Ask(tuple(said[first:last])))
            for count in counts:
                count.silent[node] = None
        for count in counts:
            self._has_counted(count)

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
        if self._asked and not self._realm.overhears:
            asked, self._asked = self._asked, []
            for node, publication in asked:
                readers = self._realm.lately.readers(publication)
                self._send(node, Counted(((publication, readers),)))

    # States.

    def tell_states(self, nodes: Iterable[NodeId], seats: Iterable[ClientState]) -> None:
        """These nodes are to know what these clients retain."""
        realm = self._realm
        states = [uttered(s.accepted, s.t) for seat in seats for s in realm.states(seat)]
        for first, last in _parts(states):
            for node in nodes:
                self._send(node, States(realm.now, tuple(states[first:last])))

    def on_states(self, message: States, sender: NodeId) -> None:
        for said in message.states:
            try:
                self._realm.recall(
                    message.t, sender, said.entity, said.name, request_of(said),
                    form_of(said.packed), said.id, said.t,
                )  # fmt: skip
            except (ValueError, Refused):
                continue

    def catch_up(self, now: Time, passed: Sequence[Passed]) -> None:
        """To those homes whose clients' wishes have only just become known here."""
        bag, acted = Bag(), self._realm.lately.has_acted
        late: dict[tuple[int, NodeId], tuple[Passed, list[int]]] = {}
        for one, index, home in self._abroad.late(now, passed):
            if acted(int(one.ids[index])):  # the others are other sites' business
                late.setdefault((id(one), home), (one, []))[1].append(index)
        for (_, home), (one, chosen) in late.items():
            self._trails.to_home(bag, home, one, chosen)
        self._post(bag)


def _parts(several: Sequence[Uttered]) -> Iterable[tuple[int, int]]:
    """From where to where they fit into one message."""
    first = size = 0
    for at, said in enumerate(several, 1):
        size += len(said.payload) + 256
        if size > LARGEST or at == len(several):
            yield first, at
            first, size = at, 0
