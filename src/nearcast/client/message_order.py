"""Messages as an application gets them: decoded, once, and those of a former node first."""

from collections.abc import Callable
from typing import Any, TypeAlias

from nearcast.client.effects import Again
from nearcast.client.received import DirectMessage, Entity, FenceEvent, Message
from nearcast.client.recent_publications import RecentPublications
from nearcast.client.subscription_state import SubscriptionState
from nearcast.client_protocol import messages as wire
from nearcast.space.motion import Time

NO_SUBSCRIPTION = -1  # in place of the subscriptions that a publication is for
_Deliver: TypeAlias = Callable[[int, Any], Message | DirectMessage | Again | None]


class MessageOrder:
    """What becomes of the messages of one client, for its core."""

    def __init__(
        self, encoding: wire.Encoding, subscriptions: dict[int, SubscriptionState]
    ) -> None:
        self._encoding, self._decode = encoding, encoding.decode_value
        self._subscriptions = subscriptions
        self.presence_known = False  # has a node said who is inside any area?
        self.former: int | None = None  # the connection whose messages come first
        # After a handover: the connection that serves us, and from when on nobody else does. A new
        # node's time is never behind what the former one has delivered, whatever their clocks say.
        self.serving: tuple[int, Time] | None = None
        # Messages of the new node, each with what delivers it.
        self._held_back: list[tuple[_Deliver, int, Any]] = []
        self._recent: RecentPublications | None = None

    def drop_duplicates(self, remembered: int) -> None:
        """From now on. They cost something, and only several nodes send them."""
        if self._recent is None:
            self._recent = RecentPublications(remembered)

    def release(self) -> list[Message | DirectMessage | Again]:
        """The former node has sent everything: what the new one has sent in the meantime."""
        held_back, self.former, self._held_back = self._held_back, None, []
        effects = [deliver(connection, notice) for deliver, connection, notice in held_back]
        return [effect for effect in effects if effect is not None]

    def message(self, connection: int, notice: Any) -> Message | Again | None:
        """A message of the node at this connection, which must be open: it is delivered, held back
        or dropped. A former node that has not heard of the handover may have taken us back, with
        the areas that we had then."""
        if (
            self.serving is not None
            and connection != self.serving[0]
            and notice.t > self.serving[1]
        ):
            return None
        if self.former is not None and connection != self.former:
            self._held_back.append((self.message, connection, notice))
            return None
        to, again = notice.to, False
        if self._recent is not None:
            to, again = self._recent.add(notice.publication, to)
            if again and not to:
                return None
        payload: Any = notice.payload
        try:
            payload = self._decode(payload) if payload else None
        except wire.DECODE_ERRORS:
            payload = self._encoding.try_decode_payload(payload)
        message = Message(
            notice.source, notice.publication, notice.t,
            notice.x or 0.0, notice.y or 0.0, notice.z, notice.r, notice.rx, notice.ry, notice.rz,
            payload, notice.attributes, notice.channel, notice.retain, to,
            notice.lon, notice.lat, notice.alt,
        )  # fmt: skip
        if message.retain and self.presence_known:
            for number in to:
                state = self._subscriptions.get(number)
                if state is not None:
                    state.update_entity(message)
        return Again(message) if again else message

    def direct(self, connection: int, notice: Any) -> DirectMessage | None:
        """A direct message, likewise. Whichever node has it for us, it is delivered once."""
        if self.former is not None and connection != self.former:
            self._held_back.append((self.direct, connection, notice))
            return None
        if self._recent is not None and self._recent.add(notice.number, [NO_SUBSCRIPTION])[1]:
            return None
        payload = self._encoding.try_decode_payload(notice.payload)
        return DirectMessage(
            notice.source, notice.name, notice.number, notice.t, payload, notice.to
        )

    def entity(self, state: wire.EntityState) -> Entity:
        """An entity as the application sees it."""
        payload = self._encoding.try_decode_payload(state.payload)
        return Entity(
            state.entity, state.t, state.x or 0.0, state.y or 0.0, state.z, state.name,
            state.attributes, payload, state.lon, state.lat, state.alt,
        )  # fmt: skip

    def fence_event(self, notice: wire.FenceNotice) -> FenceEvent:
        """An event of a fence as the application sees it."""
        state = None if notice.state is None else self.entity(notice.state)
        return FenceEvent(
            notice.event, notice.t, notice.entity, notice.name, notice.place, notice.direction,
            notice.reason, notice.t_out, notice.place_out, state, notice.fence, notice.other,
            notice.other_name,
            None if notice.other_state is None else self.entity(notice.other_state),
        )  # fmt: skip
