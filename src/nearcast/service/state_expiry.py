"""States with a `ttl`: they end by themselves, and outlive the connection of their client.

A client that has left stays known by its entity and name while it has such a state. A new state of
the same name on the same channel ends it: it is the same truck, with another connection.
"""

from collections.abc import Iterable

from nearcast.service.client_state import AcceptedPublication, ClientState
from nearcast.service.retained_state import RetainedState, RetainedStates
from nearcast.space.motion import Time


class StateExpiry:
    """Which states of a node end when, and whose clients have left."""

    def __init__(self, states: RetainedStates) -> None:
        self._states = states
        self.departed: dict[str, list[ClientState]] = {}  # by name: left, with states

    def channels_to_keep(
        self, client: ClientState, waiting: Iterable[AcceptedPublication]
    ) -> set[str]:
        """Where a client that leaves has a state with a ttl, or will have one after a flush."""
        kept = {
            channel
            for channel, feed in client.feeds.items()
            if self._states.retains(feed)
            and self._states.state(feed).accepted.request.ttl is not None
        }
        for one in waiting:
            if one.client is client and one.request.retain:
                change = kept.discard if one.request.ttl is None else kept.add
                change(one.request.channel)
        if kept:
            self.departed.setdefault(client.name, []).append(client)
        return kept

    def expire(self, until: Time, waiting: Iterable[AcceptedPublication], before: int) -> None:
        """End the states that expire until then. One that is about to be replaced may stay."""
        if self._states.next_expiry > until:
            return
        replaced = {(one.client.entity, one.request.channel) for one in waiting}
        for feed in self._states.take_expired(until):
            state = self._states.state(feed).accepted
            if (state.client.entity, state.request.channel) not in replaced:
                self._end(state.client, state.request.channel, before)

    def replace(self, name: str, channel: str, before: int) -> list[ClientState]:
        """Somebody of this name has a state on this channel now. Whose states it replaces."""
        replaced = [one for one in self.departed.get(name, ()) if channel in one.feeds]
        for client in replaced:
            self._end(client, channel, before)
        return replaced

    def states_of(self, name: str) -> list[RetainedState]:
        """States of clients of this name that have left."""
        return [
            self._states.state(feed)
            for client in self.departed.get(name, ())
            for feed in client.feeds.values()
            if self._states.retains(feed)
        ]

    def _end(self, client: ClientState, channel: str, before: int) -> None:
        self._states.remove(client.feeds.pop(channel), before)
        if client.left and not client.feeds:
            others = [one for one in self.departed.pop(client.name, ()) if one is not client]
            if others:
                self.departed[client.name] = others
