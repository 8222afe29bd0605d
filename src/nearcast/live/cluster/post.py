"""Publications between nodes, in batches: at each flush, one message for each node concerned.

A publication is matched at home at once against all its own clients. Then it goes to the site whose
place it is for (an area: to all the sites it touches, by VoroCast), and that site tells the homes
of those clients on other nodes who may want it. A home hears each publication once, whoever tells
it, and matches it against all its clients as they were when it was made: so nobody hears anything
twice, and nothing depends on who knew what when.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from msgspec import Raw

from nearcast.live import words
from nearcast.live.cluster.abroad import COUNT_BITS, Abroad, block_of
from nearcast.live.cluster.lately import Passed
from nearcast.live.cluster.messages import CAST, TOWARDS, Heard, Said, Uttered
from nearcast.live.cluster.realm import ClusterRealm
from nearcast.live.seats import Accepted
from nearcast.matching.matcher import Batch, Integers
from nearcast.model.publication import check_attributes
from nearcast.model.subscription import NodeId, PublicationId
from nearcast.node import Message
from nearcast.protocols.voronoi.site import Site
from nearcast.space.motion import Time
from nearcast.space.shapes import POINT

MOST_HOPS = 16  # what has come so far goes round in circles
GATHERED_S = 0.01  # what comes from other nodes waits for more, and falls into order meanwhile
LARGEST = 500_000  # bytes of payloads in one message


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


class Post:
    def __init__(
        self, realm: ClusterRealm, site: Callable[[], Site], abroad: Abroad,
        send: Callable[[NodeId, Message], None], wake: Callable[[float], None],
    ) -> None:  # fmt: skip
        self._realm, self._site, self._abroad = realm, site, abroad
        self._send, self._wake = send, wake
        self._block = block_of(site().id)
        # What other nodes have said since the last flush: from whom, which way, how far; the way
        # of what concerns our clients alone is None.
        self._ways: dict[PublicationId, tuple[NodeId, int | None, int]] = {}

    def on(self, message: Said | Heard, sender: NodeId) -> None:
        way, hops = (message.way, message.hops) if isinstance(message, Said) else (None, 0)
        lately = self._realm.lately
        for said in message.said:
            if said.id >> COUNT_BITS == self._block or not lately.is_new(said.id):
                continue  # it was made here, or has come already
            try:
                if said.attributes:
                    check_attributes(said.attributes)
                self._realm.overhear(
                    said.entity, said.name, said.id, request_of(said), form_of(said.packed), said.t
                )
            except ValueError:
                continue
            self._ways[said.id] = sender, way, hops
        if self._realm.waiting:
            self._wake(GATHERED_S)

    def flushed(self, passed: Passed, own: int) -> None:
        """These were made here (the first ones) or have come from elsewhere: on with them."""
        ways = [self._ways.pop(one.id) for one in passed.accepted[own:]]
        publications, site = passed.publications, self._site()
        here = np.ones(len(publications), np.bool_)
        here[own:] = [way is not None for _, way, _ in ways]
        further: dict[tuple[NodeId, int, int], list[int]] = {}
        if site.ready and (site.mesh.known or site.resigned):
            self._direct(site, publications, own, ways, here, further)
        letters = _Letters(passed, self._send)
        for (target, way, hops), chosen in further.items():
            letters.say(target, chosen, way, hops)
        self.tell(letters, *self._abroad.homes(publications, np.flatnonzero(here)))
        site.activity(float(len(publications)))

    def _direct(
        self, site: Site, publications: Batch, own: int,
        ways: Sequence[tuple[NodeId, int | None, int]], here: np.ndarray,
        further: dict[tuple[NodeId, int, int], list[int]],
    ) -> None:  # fmt: skip
        """Who else must have them; what was made here for elsewhere is not matched here."""
        point = publications.kind == POINT
        asked = np.flatnonzero(here & point)
        owners = site.mesh.owners(publications.centre[asked, :2])
        for index, owner in zip(
            asked[owners != site.id].tolist(), owners[owners != site.id].tolist(), strict=True
        ):
            hops = 0 if index < own else ways[index - own][2]
            here[index] = index >= own  # in doubt it is told twice
            if hops < MOST_HOPS:
                further.setdefault((owner, TOWARDS, hops + 1), []).append(index)
        for index in np.flatnonzero(here & ~point).tolist():
            sender, way, hops = (site.id, TOWARDS, 0) if index < own else ways[index - own]
            shape = publications.publications[index].shape
            entry = site.entry(shape) if way == TOWARDS and hops < MOST_HOPS else None
            if entry is not None:
                here[index] = index >= own
                further.setdefault((entry, TOWARDS, hops + 1), []).append(index)
                continue
            for target in site.cast(shape, site.id if way == TOWARDS else sender):
                further.setdefault((target, CAST, hops + 1), []).append(index)

    def tell(self, letters: "_Letters", found: Integers, whose: Integers) -> None:
        me = self._site().id
        for home in dict.fromkeys(whose.tolist()):
            if home != me:
                letters.tell(home, found[whose == home].tolist())

    def catch_up(self, now: Time, passed: Iterable[Passed]) -> None:
        """To those homes whose clients' wishes have only just become known here."""
        late: dict[tuple[Time, NodeId], tuple[Passed, list[int]]] = {}
        for one, index, home in self._abroad.late(now, passed):
            late.setdefault((one.t, home), (one, []))[1].append(index)
        for (_, home), (one, chosen) in late.items():
            _Letters(one, self._send).tell(home, chosen)


class _Letters:
    """Publications of one flush, each put into words once."""

    def __init__(self, passed: Passed, send: Callable[[NodeId, Message], None]) -> None:
        self._passed, self._send = passed, send
        self._uttered: dict[int, Uttered] = {}

    def _parts(self, chosen: Iterable[int]) -> Iterable[tuple[Uttered, ...]]:
        part: list[Uttered] = []
        size = 0
        for index in chosen:
            said = self._uttered.get(index)
            if said is None:
                said = uttered(self._passed.accepted[index], self._passed.t)
                self._uttered[index] = said
            part.append(said)
            size += len(said.payload) + 256
            if size > LARGEST:
                yield tuple(part)
                part, size = [], 0
        if part:
            yield tuple(part)

    def say(self, target: NodeId, chosen: Iterable[int], way: int, hops: int) -> None:
        for part in self._parts(chosen):
            self._send(target, Said(way, hops, part))

    def tell(self, home: NodeId, chosen: Iterable[int]) -> None:
        """Not what was made there: it has told its own clients."""
        accepted, block = self._passed.accepted, block_of(home)
        wanted = [i for i in chosen if accepted[i].id >> COUNT_BITS != block]
        for part in self._parts(wanted):
            self._send(home, Heard(part))
