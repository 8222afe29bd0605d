"""Entities on other nodes, as this one knows them: their voices, and what they retain.

Every node knows the states of all entities in the cluster, so whoever watches or asks who is near
is answered at once, and as if there were one node only. A state stays known until its entity, or
the node that it is on, is said to be gone; the voice of one who retains nothing is forgotten when
it has been silent for a while. Words overtake each other between nodes: of somebody who is gone
nothing is kept that comes late, and whoever has spoken for an entity last is its node.

Words can also be lost, with a link or a node. So the node of an entity that has been silent for
`UNCHECKED` is asked whether it is still there.
"""

from msgspec import Struct

from nearcast.client_protocol import messages
from nearcast.model.subscription import NodeId, PublicationId
from nearcast.service.client_state import ClientState
from nearcast.service.cluster.remote_subscriptions import COUNT_BITS, block_of
from nearcast.service.retained_state import RetainedStates
from nearcast.space.motion import SECOND, Time

SILENT: Time = 60 * SECOND
UNCHECKED: Time = 5 * SECOND
ELSEWHERE = -1  # in place of a seat's place


class RemoteEntity(Struct):
    """An entity on another node."""

    client: ClientState
    heard: Time  # when we last heard of it
    block: int  # of its node, and since when that is known
    since: Time
    spoke: Time = 0  # when the last that was heard of it was made
    checked: Time = 0  # when its node was last asked whether it is there


class RemoteEntities:
    """All entities on other nodes that this one has heard of."""

    def __init__(self, feeds: RetainedStates) -> None:
        self._states = feeds
        self._known: dict[int, RemoteEntity] = {}
        self._gone: dict[int, Time] = {}
        self._withdrawn: dict[tuple[int, str], tuple[Time, Time]] = {}  # when, and when we heard it
        self._looked = self._checked = 0

    def __len__(self) -> int:
        return len(self._known)

    def is_gone(self, entity: int, t: Time) -> bool:
        """Has it left, as far as was known at `t`? What is said later is said by the living."""
        return entity in self._gone and t <= self._gone[entity]

    def speaks(
        self,
        now: Time,
        entity: int,
        name: str,
        form: messages.Encoding,
        number: PublicationId,
        t: Time,
    ) -> ClientState:
        """Who has said this; the publication's number tells on which node."""
        if self.is_gone(entity, t):
            return ClientState(ELSEWHERE, entity, name, form, left=True)
        client = self._at(now, entity, name, form, number >> COUNT_BITS, t)
        known = self._known[entity]
        known.spoke = max(known.spoke, t)
        return client

    def overtakes(self, entity: int, t: Time) -> bool:
        """Has something of it been heard that was made later?"""
        known = self._known.get(entity)
        return known is not None and t < known.spoke

    def settles(
        self, now: Time, entity: int, name: str, form: messages.Encoding, home: NodeId, t: Time
    ) -> ClientState:
        """It is on this node, which has said so itself."""
        return self._at(now, entity, name, form, block_of(home), t)

    def _at(
        self, now: Time, entity: int, name: str, form: messages.Encoding, block: int, t: Time
    ) -> ClientState:
        known = self._known.get(entity)
        if known is None:
            client = ClientState(ELSEWHERE, entity, name, form)
            known = self._known[entity] = RemoteEntity(client, now, block, t)
        known.heard = now
        if t >= known.since:
            known.block, known.since = block, t
        if name and not known.client.name:
            known.client.name = name
        return known.client

    def feed(self, client: ClientState, channel: str) -> int:
        feed = client.feeds.get(channel)
        if feed is None:
            feed = client.feeds[channel] = self._states.take()
            if client.left:
                self._states.leave(feed)
        return feed

    def release(self, entity: int) -> dict[str, int]:
        """It comes here: its voices are its own again."""
        known = self._known.pop(entity, None)
        return {} if known is None else known.client.feeds

    def gone(self, now: Time, entity: int, node: NodeId) -> None:
        """This node says that it has left, for good. Of somebody who is elsewhere it cannot."""
        known = self._known.get(entity)
        if known is None or known.block == block_of(node):
            self._gone[entity] = now
            self._drop(entity)

    def unchecked(self, now: Time) -> dict[int, list[int]]:
        """Who retains something and was not heard of lately, by the blocks of their nodes."""
        found: dict[int, list[int]] = {}
        if now - self._checked < SECOND:
            return found
        self._checked = now
        for entity, known in self._known.items():
            if now - max(known.heard, known.checked) > UNCHECKED:
                known.checked = now
                if any(map(self._states.retains, known.client.feeds.values())):
                    found.setdefault(known.block, []).append(entity)
        return found

    def absent(self, entity: int, node: NodeId) -> bool:
        """This node says that it is not there. Gives whether nobody knows where it is now."""
        known = self._known.get(entity)
        if known is not None and known.block == block_of(node):
            self._drop(entity)
        return entity not in self._known

    def withdraw(self, now: Time, entity: int, channel: str, t: Time) -> None:
        """Its state on this channel has ended at `t`; a later one may be known already."""
        self._withdrawn[entity, channel] = t, now
        known = self._known.get(entity)
        feed = None if known is None else known.client.feeds.get(channel)
        if known is None or feed is None or not self._states.retains(feed):
            return
        if self._states.state(feed).t <= t:
            del known.client.feeds[channel]
            self._states.leave(feed)

    def has_withdrawn(self, entity: int, channel: str, t: Time) -> bool:
        """Has its state of this moment ended? What was published before may come later."""
        return t <= self._withdrawn.get((entity, channel), (-1, 0))[0]

    def lost(self, node: NodeId) -> None:
        """With all that are there; they may be found again."""
        block = block_of(node)
        for entity in [e for e, known in self._known.items() if known.block == block]:
            self._drop(entity)

    def _drop(self, entity: int) -> None:
        known = self._known.pop(entity, None)
        if known is not None:
            known.client.left = True
            for feed in known.client.feeds.values():
                self._states.leave(feed)

    def forget(self, now: Time) -> None:
        if now - self._looked < SECOND:
            return
        self._looked = now
        for entity, known in list(self._known.items()):
            feeds = known.client.feeds.values()
            if now - known.heard > SILENT and not any(map(self._states.retains, feeds)):
                self._drop(entity)
        self._gone = {entity: t for entity, t in self._gone.items() if now - t <= SILENT}
        self._withdrawn = {
            which: (t, heard)
            for which, (t, heard) in self._withdrawn.items()
            if now - heard <= SILENT
        }
