"""States with a `ttl`: they end by themselves, and outlive the connection of their client.

A client that has left stays known by its entity and name while it has such a state. A later state
of the same name on the same channel ends it: it is the same truck, with another connection.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

from nearcast.service.client_state import AcceptedPublication, ClientState
from nearcast.service.retained_state import RetainedState, RetainedStates
from nearcast.space.motion import FOREVER, Time

Age: TypeAlias = tuple[Time, int]  # when a state was made, and by which publication
LATEST: Age = FOREVER, 0


class StateExpiry:
    """Which states of a node end when, and whose clients have left."""

    def __init__(self, states: RetainedStates) -> None:
        self._states = states
        # Clients that have left: their feeds are those of states with a ttl, or of publications
        # that become such states at the next flush.
        self._departed: dict[int, ClientState] = {}  # by entity
        self._by_name: dict[str, list[ClientState]] = {}
        self._unsettled = False  # has somebody left since `replaced_states`?

    def __len__(self) -> int:
        """How many clients that have left have states."""
        return len(self._departed)

    def __iter__(self) -> Iterator[ClientState]:
        return iter(list(self._departed.values()))

    def find(self, entity: int) -> ClientState | None:
        """It has left, and has states."""
        return self._departed.get(entity)

    def channels_to_keep(
        self, client: ClientState, waiting: Iterable[AcceptedPublication]
    ) -> set[str]:
        """Where a client that leaves has a state with a ttl, or will have one after a flush."""
        last: dict[str, tuple[Age, bool]] = {}
        for channel, feed in client.feeds.items():
            if self._states.retains(feed):
                state = self._states.state(feed).accepted
                last[channel] = self._states.age(feed), state.request.ttl is not None
        for one in waiting:
            if one.client.entity == client.entity and one.request.retain:
                channel, age = one.request.channel, (one.t or FOREVER, one.id)
                if channel not in last or last[channel][0] < age:
                    last[channel] = age, one.request.ttl is not None
        return {channel for channel, (_, expires) in last.items() if expires}

    def add(self, client: ClientState) -> None:
        """It has left, and its feeds are those that stay."""
        client.left = True
        if client.entity not in self._departed:
            self._departed[client.entity] = client
            self._by_name.setdefault(client.name, []).append(client)
            self._unsettled = True

    def take_back(self, entity: int) -> dict[str, int]:
        """It has not left. Returns the feeds of the states that it has."""
        client = self._departed.get(entity)
        if client is None:
            return {}
        self._forget(client)
        return client.feeds

    def expire(self, until: Time, waiting: Iterable[AcceptedPublication], before: int) -> None:
        """End the states that expire until then. One that is about to be replaced may stay."""
        if self._states.next_expiry > until:
            return
        replaced = {(one.client.entity, one.request.channel) for one in waiting}
        for feed in self._states.take_expired(until):
            state = self._states.state(feed).accepted
            if (state.client.entity, state.request.channel) not in replaced:
                self.end(state.client, state.request.channel, before)

    def replace(
        self, client: ClientState, channel: str, before: int, age: Age = LATEST
    ) -> list[ClientState]:
        """This client has a state on this channel now. Of those with its name who have left, whose
        earlier states it replaces; they end."""
        replaced = [
            one
            for one in self._by_name.get(client.name, ()) if client.name
            if channel in one.feeds and one.entity != client.entity
            and self._age(one.feeds[channel]) < age
        ]  # fmt: skip
        for one in replaced:
            self.end(one, channel, before)
        return replaced

    def _age(self, feed: int) -> Age:
        """Before all, if its state waits for a flush."""
        return self._states.age(feed) if self._states.retains(feed) else (0, 0)

    def replaced_states(self) -> list[tuple[ClientState, str]]:
        """Those who have left lately: which of their states were replaced before they left."""
        if not self._unsettled:
            return []
        self._unsettled = False
        latest: dict[tuple[str, str], Age] = {}
        for feed in self._states.feeds():
            one = self._states.state(feed).accepted
            which = one.client.name, one.request.channel
            latest[which] = max(latest.get(which, (0, 0)), self._states.age(feed))
        return [
            (client, channel)
            for client in self if client.name
            for channel, feed in client.feeds.items()
            if self._states.retains(feed)
            and self._states.age(feed) < latest[client.name, channel]
        ]  # fmt: skip

    def states_of(self, name: str) -> list[RetainedState]:
        """States of clients of this name that have left."""
        return [
            self._states.state(feed)
            for client in self._by_name.get(name, ())
            for feed in client.feeds.values()
            if self._states.retains(feed)
        ]

    def end(self, client: ClientState, channel: str, before: int) -> None:
        """The client has no state on this channel any more."""
        self._states.remove(client.feeds.pop(channel), before)
        if not client.feeds:
            self._forget(client)

    def end_stateless(self) -> None:
        """Nothing waits for a flush: what was to become a state and is none has ended."""
        for client in self:
            for channel, feed in list(client.feeds.items()):
                if not self._states.retains(feed):
                    self.end(client, channel, 0)

    def _forget(self, client: ClientState) -> None:
        known = self._departed.pop(client.entity, None)
        if known is not None:
            others = [one for one in self._by_name.pop(known.name) if one is not known]
            if others:
                self._by_name[known.name] = others
