"""A naive model of watches: who has which state, and whom each watch would see now."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from nearcast.client_protocol import geometry_json, messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import Subscription
from nearcast.space.motion import SECOND
from support.realm_histories import (
    CHANNELS,
    FILTERS,
    NUMBERS,
    VARIABLES,
    Model,
    RealmHarness,
    areas_of_interest,
    histories,
    publishes,
)

EVERYBODY = Area()


HERE = Area(x=0.0, y=0.0, r=5.0)


@dataclass
class WatchModel(Model):
    """Also: who has which state, and the linger of each watch in microseconds."""

    states: dict[tuple[int, str], messages.PublishRequest] = field(default_factory=dict)
    present: set[int] = field(default_factory=set)
    watches: dict[tuple[int, int], int] = field(default_factory=dict)

    def obey(self, t: int, client: int, entity: int, request: Any) -> None:
        super().obey(t, client, entity, request)
        self.present.add(entity)
        if isinstance(request, messages.LeaveRequest):
            self.present.discard(entity)
            self.states = {
                key: published for key, published in self.states.items() if key[0] != entity
            }
        if isinstance(request, messages.WithdrawRequest):
            self._withdraw(entity, request.channel)
        if isinstance(request, messages.SubscribeRequest):
            self.watches.pop((client, request.subscription), None)
            if request.watch:
                self.watches[client, request.subscription] = round(request.linger * SECOND)
        self.watches = {key: linger for key, linger in self.watches.items() if key in self.wanted}

    def _withdraw(self, entity: int, channel: str | None) -> None:
        """What is known of it ends; what it has said and is not flushed is no state."""
        self.states = {
            key: published
            for key, published in self.states.items()
            if key[0] != entity or channel not in (None, key[1])
        }
        for place, (who, published) in enumerate(self.waiting):
            if who == entity and channel in (None, published.channel):
                self.waiting[place] = who, replace(published, retain=False)

    def flush(self, t: int) -> list[tuple[int, int, int]]:
        for entity, published in self.waiting:
            if published.retain and entity in self.present:
                self.states[entity, published.channel] = published
        return super().flush(t)

    def seen(self, subscription: Subscription, t: int) -> set[int]:
        """Whose state would be heard, were it said now? Nobody's own."""
        watching = replace(subscription, echo=False)
        return {
            entity
            for (entity, _), published in self.states.items()
            if wants(watching, _publication(entity, published, t), t)
        }


def _publication(entity: int, published: messages.PublishRequest, t: int) -> Publication:
    shape = geometry_json.shape_from_fields(
        published.x, published.y, published.z, published.r, published.rx, published.ry, published.rz
    )
    return Publication(0, entity, t, shape, published.channel, published.attributes)


WATCHES = st.builds(
    messages.SubscribeRequest, NUMBERS, areas_of_interest(), st.sampled_from(FILTERS), CHANNELS,
    st.booleans(), VARIABLES, st.sampled_from([True, True, False]),
    st.sampled_from([0.0, 0.3, 0.3, 1.0]),
)  # fmt: skip


HISTORIES = histories(
    st.one_of(
        WATCHES,
        publishes(always_retain=True),
        publishes(always_retain=True),
        publishes(),
        st.builds(messages.MoveRequest, NUMBERS, areas_of_interest()),
        st.builds(messages.TuneRequest, NUMBERS, VARIABLES),
        st.sampled_from([messages.UnsubscribeRequest(0), messages.LeaveRequest()]),
        st.sampled_from(
            [
                messages.WithdrawRequest(),
                messages.WithdrawRequest(""),
                messages.WithdrawRequest("chat"),
            ]
        ),
    )
)


def settled(harness: RealmHarness, *published: tuple[int, messages.PublishRequest]) -> None:
    """These have been published."""
    for client, request in published:
        harness.ask(client, request)
    harness.realm.flush(harness.now)
