"""The clients of a node as its realm sees them: their subscriptions and their publications.

Clients and subscriptions have *slots*: dense numbers that index columns and are used again. Their
numbers in the trace (entities, subscriptions, publications) are never used again.
"""

from collections.abc import Iterable, Sequence
from typing import Any, overload

import numpy as np
from msgspec import Raw, Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from nearcast.client_protocol import geometry_json, messages
from nearcast.matching.matcher import Integers
from nearcast.model import commands
from nearcast.model.publication import Publication
from nearcast.model.subscription import Subscription
from nearcast.space.motion import Time
from nearcast.space.shapes import POINT, Shape

NO_SLOT = -1  # in place of the slot of an entity on another node


class ThrottleOptions(Struct, frozen=True):
    """Limits that a subscription sets on its own deliveries; see `throttling`."""

    rates: list[tuple[float, float]] = []
    closest: int | None = None
    budget: float | None = None

    def __bool__(self) -> bool:
        return bool(self.rates) or self.closest is not None or self.budget is not None


class FenceOptions(Struct, frozen=True):
    """What a subscription wants to know as a fence; see `live_fences`."""

    events: tuple[messages.FenceEventName, ...] = ()
    dwell: float | None = None  # seconds
    fences: str = ""  # the name of a set
    watch: bool = False  # told as presence, see `fences.watches`
    near: float | None = None  # the distance of pairs

    @property
    def lacks_area(self) -> bool:
        """Such a subscription receives no messages, and is not in the trace."""
        return bool(self.fences) or self.near is not None

    def __bool__(self) -> bool:
        return bool(self.events)


class FollowOptions(Struct, frozen=True):
    """Which entity the area of a subscription follows; see `following`."""

    entity: messages.EntityKey = ""
    channel: str = ""  # of the state that counts
    area: geometry_json.Area = geometry_json.Area()  # as the client wrote it
    offset: tuple[float, ...] = ()  # on Earth: metres east and north

    def __bool__(self) -> bool:
        return self.entity != ""

    def is_about(self, entity: int, name: str) -> bool:
        """Does it follow this entity?"""
        return self.entity in (entity, name) if self else False


class ActiveSubscription(Struct, eq=False):
    """One subscription in force. The client chose its `number`; the matcher knows its `slot`."""

    slot: int
    number: int
    since: Time  # when it last changed
    asked: commands.Subscribe
    subscription: Subscription
    throttle_options: ThrottleOptions
    throttle: int | None = None  # its slot in `Throttle`, if it uses it
    linger: float = 0.0  # seconds; of a subscription that is a fence
    steps: int = 0  # of its formula and its filter, see `matching.filters`
    handovers: int = 0  # how often its client has changed nodes
    fence_options: FenceOptions = FenceOptions()
    follow: FollowOptions = FollowOptions()


class ClientState(Struct, eq=False):
    """One client: who it is, and its subscriptions by its own numbers."""

    slot: int
    entity: int
    name: str
    form: messages.Encoding  # of notices to this client
    subscriptions: dict[int, ActiveSubscription] = {}
    feeds: dict[str, int] = {}  # by channel: its feed there, see `retained_state`
    left: bool = False
    entities: dict[str, "ClientState"] = {}  # for which this client publishes, by name
    owner: "ClientState | None" = (
        None  # the client that publishes for this entity, if it is no client itself
    )
    watched: int = 0  # entities that all its watches know, together
    backlog: int = 0  # of publications that wait, if it is too long; then more are refused. Else 0


class AcceptedPublication(Struct, eq=False, gc=False):  # it is in no reference cycle
    """A publication that waits for the next flush, or that is a retained state."""

    client: ClientState
    id: int
    kind: int  # of its shape
    request: messages.PublishRequest
    form: messages.Encoding
    t: Time = 0  # when it was published, if that was on another node

    def unretain(self, client: ClientState, channel: str) -> bool:
        """Do not retain it, if it is this entity's on this channel. Returns whether it was."""
        if self.client is not client or not self.request.retain or self.request.channel != channel:
            return False
        self.request = replace(self.request, retain=False)
        return True

    @property
    def is_state(self) -> bool:
        """Is it retained? Without a ttl not, if its client has left meanwhile."""
        return self.request.retain and (not self.client.left or self.request.ttl is not None)

    @property
    def shape(self) -> Shape:
        return geometry_json.place_shape(self.request)

    def payload(self, form: messages.Encoding) -> Raw:
        """In this encoding; nothing, if the payload cannot be translated."""
        return self.form.translate_payload(self.request.payload, form)


class AcceptedPublications(Sequence[AcceptedPublication]):
    """Publications in the order in which they were accepted.

    Plain ones (`plain_publications`) are kept as their frames, and made when somebody looks at
    them; mostly nobody does.
    """

    def __init__(self, accepted: Iterable[AcceptedPublication] = ()) -> None:
        self._items: list[AcceptedPublication | bytes] = []
        self._clients: list[ClientState] = []
        self.ids: list[int] = []
        for one in accepted:
            self.append(one)

    def append(self, accepted: AcceptedPublication) -> None:
        self._items.append(accepted)
        self._clients.append(accepted.client)
        self.ids.append(accepted.id)

    def append_plain(
        self, clients: Sequence[ClientState], frames: Sequence[bytes], first: int
    ) -> None:
        """Plain publications of these clients, numbered from `first` on."""
        self._items += frames
        self._clients += clients
        self.ids += range(first, first + len(frames))

    def with_others(self, others: Iterable[AcceptedPublication]) -> "AcceptedPublications":
        """These, and then the others."""
        both = AcceptedPublications()
        both._items, both._clients, both.ids = self._items[:], self._clients[:], self.ids[:]
        for one in others:
            both.append(one)
        return both

    def made(self) -> list[AcceptedPublication]:
        """All that are not plain, and those that somebody has looked at."""
        return [one for one in self._items if type(one) is AcceptedPublication]

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> AcceptedPublication: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[AcceptedPublication]: ...
    def __getitem__(
        self, index: int | slice
    ) -> AcceptedPublication | Sequence[AcceptedPublication]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self._items)))]
        item = self._items[index]
        if isinstance(item, bytes):
            form = messages.MSGPACK
            item = self._items[index] = AcceptedPublication(
                self._clients[index], self.ids[index], POINT, form.decode_request(item), form
            )
        return item


class LazyPublications(Sequence[Publication]):
    """Builds a `Publication` only when a filter reads it; most are never read."""

    def __init__(self, t: Time, accepted: Sequence[AcceptedPublication]) -> None:
        self._t, self._accepted = t, accepted
        self._made: dict[int, Publication] = {}

    def __len__(self) -> int:
        return len(self._accepted)

    @overload
    def __getitem__(self, index: int) -> Publication: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Publication]: ...
    def __getitem__(self, index: int | slice) -> Publication | Sequence[Publication]:
        if isinstance(index, slice):
            return LazyPublications(self._t, self._accepted[index])
        if index not in self._made:
            one = self._accepted[index]
            self._made[index] = Publication(
                one.id, one.client.entity, one.t or self._t, one.shape,
                one.request.channel, one.request.attributes,
            )  # fmt: skip
        return self._made[index]


class FlushDeliveries(Struct, frozen=True):
    """The deliveries of a flush: pairs sorted by client, then in the order of publication."""

    t: Time
    publications: Sequence[AcceptedPublication]
    client: Integers
    publication: Integers  # where in `publications`
    subscription: Integers  # its slot
    ids: Integers  # of the publications
    own: int = 0  # so many of the publications, the first ones, are of clients of this node
    # For those that are plain: the rows of all, and the frames that they came in.
    table: NDArray[np.void] | None = None
    data: bytes = b""

    def __len__(self) -> int:
        return len(self.client)

    def only(self, kept: NDArray[np.bool_]) -> "FlushDeliveries":
        """These pairs alone."""
        return replace(
            self, client=self.client[kept], publication=self.publication[kept],
            subscription=self.subscription[kept],
        )  # fmt: skip

    def looked_at(self) -> Sequence[AcceptedPublication]:
        """The publications, but for plain ones that nobody has looked at."""
        all_of_them = self.publications
        if isinstance(all_of_them, AcceptedPublications):
            return all_of_them.made()
        return all_of_them

    def numbers(self, which: Any = slice(None)) -> Integers:
        """The publications' numbers in the trace, of these pairs or of all."""
        numbers: Integers = self.ids[self.publication[which]]
        return numbers


def sort_deliveries(
    t: Time, accepted: AcceptedPublications, clients: Integers, publication: Integers,
    subscription: Integers,
) -> FlushDeliveries:  # fmt: skip
    """The deliveries of these pairs, sorted by client, publication and subscription: as one integer
    for each. `clients` is by a subscription's slot."""
    for_subscription = len(clients).bit_length()
    for_publication = len(accepted).bit_length()
    pairs = (clients[subscription] << for_publication) | publication
    pairs = (pairs << for_subscription) | subscription
    pairs.sort()
    subscription = pairs & ((1 << for_subscription) - 1)
    pairs >>= for_subscription
    publication = pairs & ((1 << for_publication) - 1)
    pairs >>= for_publication
    ids = np.array(accepted.ids, np.int64)
    return FlushDeliveries(t, accepted, pairs, publication, subscription, ids)
