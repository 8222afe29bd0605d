"""Watches: subscriptions whose clients know who is inside, by the notices `enter` and `leave`.

`watch` is a short word for a fence with these two events (`live_fences`). A watch remembers whom
its client knows. So nobody enters or leaves twice, whoever finds out about it, and all watches of a
client know at most so many entities (`limits.watched`). Who does not fit enters when there is room.
"""

from collections.abc import Iterator

from msgspec import Struct

from nearcast.client_protocol import messages
from nearcast.service.client_state import ActiveSubscription, ClientState
from nearcast.service.retained_state import RetainedStates


class Watch(Struct, eq=False):
    """A subscription that watches, and the feeds of those whom its client knows to be inside."""

    client: ClientState
    active: ActiveSubscription
    known: set[int] = set()


class Watches:
    """The watches of a node by subscription slot, and what is to be told to their clients."""

    def __init__(self, states: RetainedStates, most: int) -> None:
        self._states, self._most = states, most
        self._watches: dict[int, Watch] = {}
        self.lacking: dict[Watch, None] = {}  # who was not told of all that are inside
        self._notices: list[tuple[ClientState, messages.EnterNotice | messages.LeaveNotice]] = []
        # Clients that are told the same share the notice, so that it is encoded once.
        self._enters: dict[tuple[object, ...], messages.EnterNotice] = {}
        self._leaves: dict[tuple[int, int, bool], messages.LeaveNotice] = {}

    def __iter__(self) -> Iterator[Watch]:
        return iter(self._watches.values())

    def find(self, slot: int) -> Watch | None:
        return self._watches.get(slot)

    def begin(self, client: ClientState, active: ActiveSubscription) -> Watch:
        watch = self._watches[active.slot] = Watch(client, active)
        return watch

    def end(self, slot: int) -> None:
        """Nothing more is told about it, not even what waits."""
        watch = self._watches.pop(slot)
        number = watch.active.number
        self._notices = [
            (client, notice)
            for client, notice in self._notices
            if client is not watch.client or notice.subscription != number
        ]
        watch.client.watched -= len(watch.known)
        self.lacking.pop(watch, None)

    def has_room(self, watch: Watch) -> bool:
        return watch.client.watched < self._most

    def know(self, watch: Watch, feeds: list[int]) -> None:
        """Its client has been told that these are inside."""
        watch.known.update(feeds)
        watch.client.watched += len(feeds)

    def enter(self, watch: Watch, feed: int) -> None:
        """Somebody is inside. It is told, if that is new, and if there is room for one more."""
        if feed in watch.known or not self._states.retains(feed):
            return
        if not self.has_room(watch):
            self.lacking[watch] = None
            return
        self.know(watch, [feed])
        state, form = self._states.state(feed), watch.client.form
        key = watch.active.number, feed, state.accepted.id, form
        if key not in self._enters:
            self._enters[key] = messages.EnterNotice(watch.active.number, state.entity(form))
        self._notices.append((watch.client, self._enters[key]))

    def leave(self, watch: Watch, feed: int, gone: bool) -> None:
        """Somebody is not inside any more."""
        if feed not in watch.known:
            return
        watch.known.discard(feed)
        watch.client.watched -= 1
        key = watch.active.number, feed, gone
        if key not in self._leaves:
            entity = self._states.entity(feed)
            self._leaves[key] = messages.LeaveNotice(watch.active.number, entity, gone)
        self._notices.append((watch.client, self._leaves[key]))

    def end_feed(self, feed: int) -> None:
        """Its state has ended: whoever knows it is told, without linger."""
        for watch in self._watches.values():
            self.leave(watch, feed, gone=True)

    def take_notices(self) -> list[tuple[ClientState, messages.Notice]]:
        notices, self._notices = self._notices, []
        self._enters.clear()
        self._leaves.clear()
        return [*notices]
