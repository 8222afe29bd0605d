"""How a client subscribes: the designs that [Evolving] compares, each in its simplest form.

area        the interest itself. evolving=resubscribe: frozen as it is now, and cancelled and sent
            again every interval while it moves; otherwise sent once, with its motion. If the
            subscriber chose how brokers follow it, also sent once with its motion; with parametric
            as well.
parametric  frozen as it is now; every interval only its new numbers are sent, along the path that
            the interest took. The form around them (channel, predicates) is sent once.
tile        a topic per tile of the world: the tiles that the area touches now, computed again
            every interval while it moves. A topic is named by its tile's box, which brokers match
            like any area, so there are as many messages as with names. The client filters.
object      a topic per entity. Every interval, an entity's publication goes out a second time,
            without payload, on a channel for discovery. A client subscribes to that channel in a
            box around its area, and to each entity that it finds, until it has not received
            anything from it for a while. The client filters.

A client of `area` or `parametric` delivers all that its broker sends. What is measured is how much
an engine with stale knowledge misses or adds; a client that filtered by its own, newer knowledge
would hide it. With topics, filtering is the client's part of the design.
"""

from math import inf
from typing import Protocol, TypeAlias

from msgspec.structs import replace

from nearcast.model import predicates
from nearcast.model.freezing import freeze
from nearcast.model.publication import Publication
from nearcast.model.subscription import (
    Formula,
    NodeId,
    Region,
    Subscription,
    SubscriptionId,
    seconds_since,
    stops_evolving_at,
)
from nearcast.protocols.brokers.parameters import RESUBSCRIBE, Parameters
from nearcast.space.boxes import BoxBounds, box_around, contains
from nearcast.space.motion import Moving, Time
from nearcast.space.shapes import EVERYWHERE, cuboid

MAX_TILES = 256  # for an area that touches more, the client subscribes to the whole channel
EVERYTHING = Moving(EVERYWHERE)
Tile: TypeAlias = tuple[int, int, int]
TopicKey: TypeAlias = Tile | str | None  # a tile, an entity, or everything
FORGOTTEN_AFTER = 3  # intervals without a publication of an entity that was found


class SubscriptionDesign(Protocol):
    """How interests become subscriptions at the broker, and publications are sent and received."""

    filters: bool  # does the client check what its broker sends?

    def parts(self, wanted: Subscription, now: Time) -> list[Subscription]:
        """The subscriptions to have at the broker at this moment, to receive what is wanted."""
        ...

    def renews(self, wanted: Subscription, now: Time) -> bool:
        """Will the parts be others after a while?"""
        ...

    def meaning(self, name: SubscriptionId) -> SubscriptionId | None:
        """The interest to which a part belongs, which brokers know by this id."""
        ...

    def publications_to_send(self, publication: Publication) -> list[Publication]:
        """What to send to the broker, so that subscribers receive the publication."""
        ...

    def receive(self, wanted: Subscription, received: Publication, now: Time) -> Publication | None:
        """The publication as it was made; None: it was for discovery alone."""
        ...


class AreaDesign:
    """The interest itself: with its motion, or frozen as it is now."""

    filters = False

    def __init__(self, *, frozen: bool) -> None:
        self._frozen = frozen

    def parts(self, wanted: Subscription, now: Time) -> list[Subscription]:
        part = freeze(wanted, now) if self._freezes(wanted) else wanted
        return [] if part is None else [part]

    def renews(self, wanted: Subscription, now: Time) -> bool:
        return self._freezes(wanted) and stops_evolving_at(wanted) > now

    def _freezes(self, wanted: Subscription) -> bool:
        return self._frozen and wanted.evolution is None

    def meaning(self, name: SubscriptionId) -> SubscriptionId | None:
        return name

    def publications_to_send(self, publication: Publication) -> list[Publication]:
        return [publication]

    def receive(self, wanted: Subscription, received: Publication, now: Time) -> Publication | None:
        del wanted, now
        return received


class TopicDesign:
    """What topics of tiles and of objects share: ids of their own for the parts of interests."""

    filters = True

    def __init__(self) -> None:
        self._names: dict[tuple[SubscriptionId, TopicKey], SubscriptionId] = {}
        self._meanings: list[SubscriptionId] = []

    def _name(self, wanted: SubscriptionId, which: TopicKey) -> SubscriptionId:
        name = self._names.get((wanted, which))
        if name is None:
            name = self._names[wanted, which] = len(self._meanings)
            self._meanings.append(wanted)
        return name

    def meaning(self, name: SubscriptionId) -> SubscriptionId | None:
        return self._meanings[name] if name < len(self._meanings) else None


class TileDesign(TopicDesign):
    """A topic for each tile of the world."""

    def __init__(self, side: float) -> None:
        super().__init__()
        self._side = side

    def parts(self, wanted: Subscription, now: Time) -> list[Subscription]:
        box = box_at(wanted.region, now)
        if box is None:
            return []
        touched = tiles_touched(box, self._side, MAX_TILES)
        if touched is None:
            return [self._topic(wanted, EVERYTHING, None)]
        return [self._topic(wanted, self._tile(*tile), tile) for tile in touched]

    def _tile(self, i: int, j: int, k: int) -> Moving:
        side, half = self._side, self._side / 2 * (1 + 1e-9)  # no point falls between two
        return Moving(
            cuboid((i + 0.5) * side, (j + 0.5) * side, (k + 0.5) * side, half, half, half)
        )

    def _topic(self, wanted: Subscription, region: Moving, tile: Tile | None) -> Subscription:
        name = self._name(wanted.id, tile)
        return Subscription(name, wanted.node, region, None, wanted.channel, wanted.echo)

    def renews(self, wanted: Subscription, now: Time) -> bool:
        return stops_evolving_at(wanted) > now

    def publications_to_send(self, publication: Publication) -> list[Publication]:
        return [publication]

    def receive(self, wanted: Subscription, received: Publication, now: Time) -> Publication | None:
        del wanted, now
        return received


class ObjectDesign(TopicDesign):
    """Channels `@7/chat`, for what entity 7 publishes on chat, and `@/chat`, for discovery."""

    def __init__(self, interval: Time, margin: float, memory: Time = 0) -> None:
        """`memory`: for how long a client knows an entity that is silent; 0: three intervals."""
        super().__init__()
        self._interval, self._margin = interval, margin
        self._memory = memory or FORGOTTEN_AFTER * interval
        self._found: dict[SubscriptionId, dict[NodeId, Time]] = {}
        self._discovery_boxes: dict[SubscriptionId, BoxBounds] = {}
        self._shown: dict[str, Time] = {}  # when it last published for discovery, by channel

    def parts(self, wanted: Subscription, now: Time) -> list[Subscription]:
        found = self._found.setdefault(wanted.id, {})
        for entity, last_received in list(found.items()):
            if now - last_received > self._memory:
                del found[entity]
        others = [*found, *([wanted.node] if wanted.echo else [])]
        topics = [self._topic(wanted, str(entity), EVERYTHING) for entity in dict.fromkeys(others)]
        box = box_at(wanted.region, now)
        if box is None:
            return topics
        return [*topics, self._topic(wanted, "", self._discovery_region(wanted.id, box))]

    def _discovery_region(self, wanted: SubscriptionId, box: BoxBounds) -> Moving | Formula:
        """Where to discover others: a box that stays until the area comes too near its border."""
        around = self._discovery_boxes.get(wanted)
        if around is None or not contains(around, enlarged(box, self._margin / 2)):
            around = self._discovery_boxes[wanted] = enlarged(box, self._margin)
        (a, b, c), (d, e, f) = around
        text = f"x >= {a!r}, x <= {d!r}, y >= {b!r}, y <= {e!r}, z >= {c!r}, z <= {f!r}"
        return EVERYTHING if "inf" in text else Formula(text)

    def _topic(self, wanted: Subscription, whose: str, region: Moving | Formula) -> Subscription:
        name = self._name(wanted.id, whose)
        channel = f"@{whose}/{wanted.channel}"
        return Subscription(name, wanted.node, region, None, channel, wanted.echo)

    def renews(self, wanted: Subscription, now: Time) -> bool:
        del wanted, now
        return True  # others come and go

    def publications_to_send(self, publication: Publication) -> list[Publication]:
        channel, now = publication.channel, publication.t
        sent = [replace(publication, channel=f"@{publication.node}/{channel}")]
        if now >= self._shown.get(channel, -self._interval) + self._interval:
            self._shown[channel] = now
            sent.append(replace(publication, channel=f"@/{channel}", payload=b""))
        return sent

    def receive(self, wanted: Subscription, received: Publication, now: Time) -> Publication | None:
        whose, _, channel = received.channel.partition("/")
        if whose != "@":
            return replace(received, channel=channel)
        self._found.setdefault(wanted.id, {})[received.node] = now
        return None


def box_at(region: Region, t: Time) -> BoxBounds | None:
    """The box around a region at one moment; None: it is empty then."""
    if not isinstance(region, Formula):
        return box_around(region.at(t))
    zone = predicates.box_at(region.parsed, seconds_since(region.since, t))
    if zone is None:
        return None
    return BoxBounds((zone.x.low, zone.y.low, zone.z.low), (zone.x.high, zone.y.high, zone.z.high))


def enlarged(box: BoxBounds, by: float) -> BoxBounds:
    return BoxBounds(tuple(low - by for low in box.low), tuple(high + by for high in box.high))


def tiles_touched(box: BoxBounds, side: float, most: int) -> list[tuple[int, int, int]] | None:
    """The tiles that a box touches; None: there are more than `most`."""
    low, high = box
    if min(low) == -inf or max(high) == inf:
        return None
    first = [int(number // side) for number in low]
    last = [int(number // side) for number in high]
    number = 1
    for a, b in zip(first, last, strict=True):
        number *= b - a + 1
    if number > most:
        return None
    return [
        (x, y, z)
        for x in range(first[0], last[0] + 1)
        for y in range(first[1], last[1] + 1)
        for z in range(first[2], last[2] + 1)
    ]


def make_design(parameters: Parameters) -> SubscriptionDesign:
    if parameters.interest == "tile":
        return TileDesign(parameters.tile)
    if parameters.interest == "object":
        return ObjectDesign(parameters.interval, parameters.tile)
    frozen = parameters.interest == "parametric" or parameters.evolving == RESUBSCRIBE
    return AreaDesign(frozen=frozen)
