"""The clients of a node as its realm sees them: seats, what they listen to, what they said.

Seats and standings have places: dense numbers, used again, by which columns are read. Entities,
subscriptions and publications have numbers in the trace, which are never used again.
"""

from collections.abc import Sequence
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
from nearcast.space.shapes import Shape

NO_SLOT = -1  # the place of whoever is on another node


class ThrottleOptions(Struct, frozen=True):
    """How much of what it could hear a subscription wants; see `sparing`."""

    rates: list[tuple[float, float]] = []
    closest: int | None = None
    budget: float | None = None

    def __bool__(self) -> bool:
        return bool(self.rates) or self.closest is not None or self.budget is not None


class ActiveSubscription(Struct, eq=False):
    """One subscription in force: its number is the client's, its place is the matcher's."""

    slot: int
    number: int
    since: Time  # when it last changed
    asked: commands.Subscribe
    subscription: Subscription
    throttle_options: ThrottleOptions
    watch: int | None = None  # its numbers among those who watch, and those who spare
    throttle: int | None = None
    linger: float = 0.0  # of one that watches: as asked for
    steps: int = 0  # of its formula and its filter, see `matching.filters`
    handovers: int = 0  # how often it has changed nodes


class ClientState(Struct, eq=False):
    """One client: who it is, and its subscriptions by its own numbers."""

    slot: int
    entity: int
    name: str
    form: messages.Encoding  # of what it is told
    subscriptions: dict[int, ActiveSubscription] = {}
    feeds: dict[str, int] = {}  # by the channels on which it has published
    left: bool = False
    entities: dict[str, "ClientState"] = {}  # others for which this client speaks, by name
    owner: "ClientState | None" = (
        None  # the client that speaks for this entity, if it is such another
    )
    backlog: int = 0  # not 0: so many of its publications wait that more of them are refused


class AcceptedPublication(Struct, eq=False, gc=False):  # nothing that it knows knows it
    """A publication: it waits for the next flush, or is the state that somebody retains."""

    client: ClientState
    id: int
    kind: int  # of its shape
    request: messages.PublishRequest
    form: messages.Encoding
    t: Time = 0  # when it was made, if that was on another node

    def unretain(self, client: ClientState, channel: str) -> bool:
        """If it would be this entity's state on this channel: it will not be."""
        if self.client is not client or not self.request.retain or self.request.channel != channel:
            return False
        self.request = replace(self.request, retain=False)
        return True

    @property
    def shape(self) -> Shape:
        said = self.request
        return geometry_json.shape_from_fields(
            said.x, said.y, said.z, said.r, said.rx, said.ry, said.rz
        )

    def payload(self, form: messages.Encoding) -> Raw:
        """As speakers of `form` read it. What that form cannot say is nothing."""
        return self.form.translate_payload(self.request.payload, form)


class LazyPublications(Sequence[Publication]):
    """Publications that are made when a filter asks for them; most are never asked for."""

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
    """Who hears what: pairs sorted by seat, and for each seat in the order of publication."""

    t: Time
    publications: Sequence[AcceptedPublication]
    client: Integers
    publication: Integers  # where in `publications`
    subscription: Integers  # the subscription's place
    ids: Integers | None = None  # of the publications, if they are not numbered one by one
    own: int = 0  # so many of the publications, the first ones, were made here

    def __len__(self) -> int:
        return len(self.client)

    def only(self, kept: NDArray[np.bool_]) -> "FlushDeliveries":
        """Without the other pairs."""
        return FlushDeliveries(
            self.t, self.publications, self.client[kept], self.publication[kept],
            self.subscription[kept], self.ids, self.own,
        )  # fmt: skip

    def numbers(self, which: Any = slice(None)) -> Integers:
        """Of these pairs, or of all: the publication's number in the trace."""
        chosen: Integers = self.publication[which]
        return chosen + self.publications[0].id if self.ids is None else self.ids[chosen]
