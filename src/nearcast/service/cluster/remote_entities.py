"""Entities on other nodes, as this node knows them: their feeds and retained states.

Every node knows the states of all entities in the cluster, so a watch or a query is answered at
once, as if there were one node only. A state stays known until its entity, or its node, is reported
gone, and one with a ttl until it expires (`state_expiry`), on all nodes alike: it has no home any
more. An entity that retains nothing is forgotten when it has been silent for a while. Messages
overtake each other between nodes: what arrives late of an entity that has left is dropped, and the
node that last published for an entity is its home.

Messages can also be lost, with a link or a node. So the home of an entity that has been silent for
`UNCHECKED` is asked whether it is still there; without a home that is a member it is dropped.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable

from msgspec import Struct

from nearcast.client_protocol import messages
from nearcast.model.subscription import NodeId, PublicationId
from nearcast.service.client_state import NO_SLOT, AcceptedPublication, ClientState
from nearcast.service.cluster.remote_subscriptions import COUNT_BITS, block_of
from nearcast.service.retained_state import RetainedStates
from nearcast.service.state_expiry import StateExpiry
from nearcast.space.motion import SECOND, Time

SILENT: Time = 60 * SECOND
UNCHECKED: Time = 5 * SECOND


class RemoteEntity(Struct):
    """An entity on another node."""

    client: ClientState
    last_heard: Time  # when we last heard of it
    block: int  # of its home, and since when that is known
    since: Time
    checked: Time = 0  # when its home was last asked


class RemoteEntities:
    """All entities on other nodes that this node knows."""

    def __init__(
        self,
        states: RetainedStates,
        expiry: StateExpiry,
        waiting: Callable[[], Iterable[AcceptedPublication]],
    ) -> None:
        """`waiting`: the publications of other nodes that wait for the next flush."""
        self._states, self._expiry, self._waiting = states, expiry, waiting
        self._known: dict[int, RemoteEntity] = {}
        self._gone: dict[int, Time] = {}
        # By entity: when its last known publication was made. A node that is lost may only be out
        # of reach, and what it sent before may still arrive: so this is kept.
        self._last_published: dict[int, Time] = {}
        self._withdrawn: dict[tuple[int, str], tuple[Time, Time]] = {}  # when, and when we heard it
        self._looked = self._checked = 0

    def __len__(self) -> int:
        return len(self._known)

    def named(self, name: str) -> list[ClientState]:
        """All of this name."""
        return [one.client for one in self._known.values() if one.client.name == name]

    def has_left(self, entity: int, t: Time) -> bool:
        """Had it left at `t`? What is later shows that it is there again."""
        return entity in self._gone and t <= self._gone[entity]

    def on_publication(
        self,
        now: Time,
        entity: int,
        name: str,
        form: messages.Encoding,
        number: PublicationId,
        t: Time,
        departed: bool = False,
    ) -> ClientState:
        """The publisher of this; its home follows from the publication's number. `departed`: it had
        left when it was published, which is perhaps known already."""
        if self.has_left(entity, t) or (departed and entity not in self._known):
            gone = self._expiry.find(entity)
            return gone or ClientState(NO_SLOT, entity, name, form, left=True)
        self._last_published[entity] = max(t, self._last_published.get(entity, 0))
        return self._update(now, entity, name, form, number >> COUNT_BITS, t)

    def has_newer(self, entity: int, t: Time) -> bool:
        """Is a later publication of it known?"""
        return t < self._last_published.get(entity, 0)

    def set_home(
        self, now: Time, entity: int, name: str, form: messages.Encoding, home: NodeId, t: Time
    ) -> ClientState:
        """This node says that the entity is its client."""
        return self._update(now, entity, name, form, block_of(home), t)

    def _update(
        self, now: Time, entity: int, name: str, form: messages.Encoding, block: int, t: Time
    ) -> ClientState:
        known = self._known.get(entity)
        if known is None:
            feeds = self._expiry.take_back(entity)
            client = ClientState(NO_SLOT, entity, name, form, feeds=feeds)
            known = self._known[entity] = RemoteEntity(client, now, block, t)
        known.last_heard = now
        if t >= known.since:
            known.block, known.since = block, t
        if name and not known.client.name:
            known.client.name = name
        return known.client

    def feed(self, client: ClientState, request: messages.PublishRequest, t: Time) -> int:
        """The feed of this publication. A client that has left gets one that has ended, unless the
        publication is a state with a ttl."""
        channel = request.channel
        feed = client.feeds.get(channel)
        if client.left and request.retain and request.ttl is None and feed is not None:
            if self._states.retains(feed) and self._states.state(feed).t < t:
                self._expiry.end(client, channel, 0)  # it left with this state, which has ended
            feed = None
        if feed is None:
            feed = self._states.new_feed()
            if not client.left or (request.retain and request.ttl is not None):
                client.feeds[channel] = feed
            else:
                self._states.remove(feed)
        if client.left and client.feeds:
            self._expiry.add(client)
        return feed

    def remove(self, entity: int) -> dict[str, int]:
        """It becomes a client of this node. Returns its feeds."""
        known = self._known.pop(entity, None)
        return self._expiry.take_back(entity) if known is None else known.client.feeds

    def knows(self, entity: int) -> bool:
        """Is it known to be on another node?"""
        return entity in self._known

    def on_entity_left(self, now: Time, entity: int, node: NodeId) -> None:
        """Its node says that it has left for good; another node's word does not count."""
        known = self._known.get(entity)
        if known is None or known.block == block_of(node):
            self._gone[entity] = now
            self._end([entity])

    def on_left_here(self, now: Time, entity: int) -> None:
        """It was a client of this node, and has left for good."""
        self._gone[entity] = now

    def due_for_check(self, now: Time) -> dict[int, list[int]]:
        """Entities with states and without news lately, by the blocks of their homes."""
        found: dict[int, list[int]] = {}
        if now - self._checked < SECOND:
            return found
        self._checked = now
        for entity, known in self._known.items():
            if now - max(known.last_heard, known.checked) > UNCHECKED:
                known.checked = now
                if any(map(self._states.retains, known.client.feeds.values())):
                    found.setdefault(known.block, []).append(entity)
        return found

    def states_of(self, block: int, until: Time) -> list[tuple[NodeId, str, PublicationId]]:
        """States of this home's entities, made until then: entity, channel, publication."""
        found = []
        for entity, known in self._known.items():
            for channel, feed in known.client.feeds.items() if known.block == block else ():
                if self._states.retains(feed):
                    state = self._states.state(feed)
                    if state.t <= until:
                        found.append((entity, channel, state.accepted.id))
        return found

    def on_absent(self, entity: int, block: int) -> bool:
        """It is not on the node of this block. Returns whether its home is unknown now."""
        known = self._known.get(entity)
        if known is not None and known.block == block:
            self._end([entity])
        return entity not in self._known

    def withdraw(self, now: Time, entity: int, channel: str, t: Time) -> None:
        """Its state on this channel has ended at `t`; a later one may be known already."""
        self._withdrawn[entity, channel] = t, now
        known = self._known.get(entity)
        client = self._expiry.find(entity) if known is None else known.client
        feed = None if client is None else client.feeds.get(channel)
        if client is None or feed is None or not self._states.retains(feed):
            return
        if self._states.state(feed).t <= t:
            self._expiry.end(client, channel, 0)

    def withdraw_others(self, now: Time, entity: int, retained: Collection[str], t: Time) -> None:
        """It had no states at `t` but on these channels."""
        known = self._known.get(entity)
        for channel in [] if known is None else list(known.client.feeds):
            if channel not in retained:
                self.withdraw(now, entity, channel, t)

    def withdrawals(
        self, states: Iterable[tuple[int, str, PublicationId]]
    ) -> list[tuple[int, str, Time]]:
        """Which of these have ended, and when: entity and channel."""
        return [
            (entity, channel, self._withdrawn[entity, channel][0])
            for entity, channel, _ in states
            if (entity, channel) in self._withdrawn
        ]

    def has_withdrawn(self, entity: int, channel: str, t: Time) -> bool:
        """Has its state of this moment ended? What was published before may come later."""
        return t <= self._withdrawn.get((entity, channel), (-1, 0))[0]

    def on_node_lost(self, node: NodeId) -> None:
        """Removes all entities of a node; they may be learned again."""
        block = block_of(node)
        self._end([e for e, known in self._known.items() if known.block == block])

    def _end(self, entities: Iterable[int]) -> None:
        """They have left: their states end, those with a ttl when they expire."""
        waiting: dict[int, list[AcceptedPublication]] = defaultdict(list)
        for one in self._waiting():
            waiting[one.client.entity].append(one)
        for entity in entities:
            if entity not in self._known:
                continue
            client = self._known.pop(entity).client
            kept = self._expiry.channels_to_keep(client, waiting[entity])
            for channel in [channel for channel in client.feeds if channel not in kept]:
                self._states.remove(client.feeds.pop(channel))
            client.left = True
            if kept:
                self._expiry.add(client)

    def forget(self, now: Time) -> None:
        if now - self._looked < SECOND:
            return
        self._looked = now
        self._end(
            [
                entity
                for entity, known in self._known.items()
                if now - known.last_heard > SILENT
                and not any(map(self._states.retains, known.client.feeds.values()))
            ]
        )
        self._gone = {entity: t for entity, t in self._gone.items() if now - t <= SILENT}
        self._last_published = {
            entity: t for entity, t in self._last_published.items() if now - t <= SILENT
        }
        self._withdrawn = {
            which: (t, last_heard)
            for which, (t, last_heard) in self._withdrawn.items()
            if now - last_heard <= SILENT
        }
