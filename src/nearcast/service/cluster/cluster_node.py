"""A node's part in its cluster: its site, the other nodes, and the messages between them.

The site decides who owns which part of the world, by the same code as the simulator's matchers;
this is its host. The gateway and the realm serve the clients of this node and know of other nodes
only through this module.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from math import cos, sin, tau
from random import SystemRandom
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from nearcast.client_protocol import messages
from nearcast.errors import JoinError, WireError
from nearcast.model.subscription import NodeId
from nearcast.node import Message, Outbox, Send, SendMany
from nearcast.protocols.voronoi.local_diagram import LocalDiagram
from nearcast.protocols.voronoi.site import MatcherResigned, NeighbourRemoved, Site
from nearcast.protocols.voronoi.vso_messages import Place
from nearcast.protocols.voronoi.vso_parameters import Parameters
from nearcast.service.client_state import ClientState
from nearcast.service.cluster.handover import Handover
from nearcast.service.cluster.messages import (
    CODEC,
    ClientReturned,
    ClientTransfer,
    ClusterJoinReply,
    ClusterJoinRequest,
    CountReply,
    CountRequest,
    Credential,
    EntitiesAbsent,
    EntitiesLeft,
    EntityCheck,
    ForwardedRequest,
    HandoverAccepted,
    HandoverCancelled,
    HandoverClaim,
    HandoverConfirmed,
    HandoverOffer,
    LinkRefused,
    NodeHeartbeat,
    NodeStopping,
    PublicationBatch,
    RetainedStatesReport,
    RetainedStatesRequest,
    StatesWithdrawn,
    SubscriptionEnded,
    SubscriptionHint,
    SubscriptionOwned,
    SubscriptionUpdate,
)
from nearcast.service.cluster.realm import ClusterRealm
from nearcast.service.cluster.remote_subscriptions import RemoteSubscriptions, block_of
from nearcast.service.cluster.routing import Routing
from nearcast.service.cluster.subscription_registry import SubscriptionRegistry
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import BOX, DISC

if TYPE_CHECKING:
    from nearcast.server.cluster_links import ClusterLinks
    from nearcast.server.gateway import Gateway

LOG = logging.getLogger("nearcast.live")
TICK_S = 0.02
LOOK_S = 0.05  # between two looks at whether a stopping node may go
SITE_EVERY: Time = SECOND // 10
HEARTBEAT_EVERY: Time = SECOND // 2
IDLE: Time = 3 * SECOND
LATE: Time = SECOND // 2
LOST_AFTER: Time = 4 * SECOND  # without a message
ANSWER_S = 1.5  # within which a living node accepts a connection
JOIN_S = 10.0
STOP_ANSWER_S = 1.0  # how long a stopping node waits for answers
APART = 20.0  # times the spacing: how far away a new site begins while there is no load


class KnownNode(Struct):
    """Another node of the cluster."""

    url: str
    load: float
    need: Place | None
    last_heard: Time


def warm_up() -> None:
    """Loads or compiles the kernels of sites: later this would make the node seem dead."""
    diagram = LocalDiagram()
    for site, place in enumerate(((0.0, 0.0), (10.0, 0.0), (0.0, 10.0))):
        diagram.put(site, place, 5.0)
    diagram.owners([[1.0, 2.0]])
    diagram.touched([DISC, BOX], [0.0, 1.0], [0.0, 1.0], [1.0, 2.0], [1.0, 2.0])
    diagram.related(0, 1.0)
    diagram.related_with({3: (5.0, 5.0, 1.0)}, 3, 1.0)
    diagram.bordering(0, 5.0)


class ClusterNode:
    """A node among others: dispatches their messages, ticks its site, sends what was decided."""

    def __init__(
        self,
        gateway: "Gateway",
        realm: ClusterRealm,
        links: "ClusterLinks",
        url: str,
        parameters: Parameters,
    ) -> None:
        self.gateway, self.links, self.url = gateway, links, url
        self.id = links.name
        self.nodes: dict[NodeId, KnownNode] = {}
        self.stopping = self._gone = False
        self._parameters = parameters
        self._out, self._random = Outbox(), SystemRandom()
        self.site = self._new_site()
        self.remote_subscriptions = RemoteSubscriptions()
        self.realm, self.history = realm, realm.history
        self.registry = SubscriptionRegistry(
            self.id, lambda: self.site, self.remote_subscriptions, self._out.send, self.is_member
        )
        self.routing = Routing(
            realm,
            lambda: self.site,
            self.remote_subscriptions,
            self._out.send,
            gateway.schedule_flush,
            lambda: self.nodes,
        )
        self.handover = Handover(self, self._out.send)
        self._join_reply: asyncio.Future[ClusterJoinReply | None] | None = None  # None: not let in
        self._probes: dict[asyncio.Task[None], None] = {}
        self._announced_urls: tuple[str, ...] = ()
        self._last_heartbeat = self._last_site_tick = self._idle_since = self._last_tick = 0
        self._stood_still = False

    def _new_site(self) -> Site:
        return Site(self.id, self._out, self._random, self.gateway.now, self._parameters)

    def is_member(self, node: NodeId) -> bool:
        return node == self.id or node in self.nodes

    # Joining and stopping.

    async def start(self, join: Sequence[tuple[str, int]]) -> None:
        """Found a cluster, or join one through the first of these that answers."""
        warm_up()
        self.links.on_broken = self._broken
        self.links.on_refused = lambda: self._resolve_join(None)
        await self.links.open(self._receive)
        if join:
            contact, enter = await self._request_join(join)
            self.site.join(enter.place, contact, enter.gateway)
        else:
            self.site.found((0.0, 0.0))
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        self._apply_site_changes()

    async def _request_join(
        self, join: Sequence[tuple[str, int]]
    ) -> tuple[NodeId, ClusterJoinReply]:
        why = ""
        for host, port in join:
            self._join_reply = asyncio.get_running_loop().create_future()
            try:
                async with asyncio.timeout(JOIN_S / len(join)):
                    contact = await self.links.meet(host, port, JOIN_S)
                    self.links.send(
                        contact, CODEC.encode(ClusterJoinRequest(self.url)), lossy=False
                    )
                    enter = await self._join_reply
                if enter is not None:
                    return contact, enter
                why = self.links.refused
            except OSError as error:  # TimeoutError is one
                why = self.links.refused or str(error) or "nobody answers"
            LOG.info("no way into the cluster at %s:%d: %s", host, port, why)
        places = ", ".join(f"{host}:{port}" for host, port in join)
        raise JoinError(f"cannot join the cluster at {places}: {why}")

    def _resolve_join(self, enter: ClusterJoinReply | None) -> None:
        if self._join_reply is not None and not self._join_reply.done():
            self._join_reply.set_result(enter)

    async def stop(self, patience_s: float = 4.0) -> None:
        """Hands over all clients, then the site's records; ends when no node needs this one."""
        self.stopping = True
        if self.nodes:
            self.handover.hand_over_all()
            await _until(lambda: self.handover.all_gone or not self.nodes, patience_s)
            self.site.resign()
            await _until(lambda: self.site.resigned or not self.nodes, patience_s / 2)
        self._timer.cancel()
        self._gone = True
        if not self.site.resigned and self.nodes:
            self.site.abandon()
        self._out.send_many(list(self.nodes), NodeStopping())
        self._send_effects()
        # They answer. All that they sent before has arrived by then, and has been forwarded.
        await _until(lambda: not self.nodes and self.gateway.idle, STOP_ANSWER_S)
        for probe in list(self._probes):
            probe.cancel()
        await self.links.close()

    # Messages.

    def _receive(self, sender: NodeId, frames: Sequence[bytes]) -> None:
        if sender in self.nodes:
            self.nodes[sender].last_heard = self.gateway.now()
        for frame in frames:
            try:
                self._dispatch(CODEC.decode(frame), sender)
            except WireError as why:
                LOG.warning("a frame of node %d is refused: %s", sender, why)
            except Exception:
                LOG.exception("a message of node %d failed", sender)
        self._apply_site_changes()

    def _dispatch(self, message: Message, sender: NodeId) -> None:
        match message:
            case PublicationBatch() | CountRequest():
                self.routing.receive(message, sender)
            case (
                SubscriptionUpdate()
                | SubscriptionHint()
                | SubscriptionEnded()
                | SubscriptionOwned()
            ):
                self.registry.receive(message, sender)
            case NodeHeartbeat():
                if not self._gone:
                    self._on_heartbeat(message, sender)
            case (
                HandoverOffer()
                | HandoverAccepted()
                | HandoverClaim()
                | ClientTransfer()
                | HandoverConfirmed()
                | HandoverCancelled()
                | ClientReturned()
                | ForwardedRequest()
            ):
                self.handover.receive(message, sender)
            case CountReply():
                self.routing.on_count_reply(message, sender)
            case RetainedStatesReport():
                self.routing.on_states(message, sender)
            case RetainedStatesRequest(entities):
                clients = [client for client in self.realm.clients if client is not None]
                if entities:
                    clients = [client for client in clients if client.entity in entities]
                self.send_states(clients, [sender])
            case EntitiesLeft(entities):
                for entity in entities:
                    self.realm.on_entity_left(self.gateway.now(), entity, sender)
            case StatesWithdrawn(states):
                for entity, channel, t in states:
                    self.realm.remote_entities.withdraw(self.gateway.now(), entity, channel, t)
            case EntityCheck(entities):
                self._on_check(entities, sender)
            case EntitiesAbsent(entities):
                self._on_absent(entities, sender)
            case ClusterJoinRequest(url):
                self._on_join_request(url, sender)
            case ClusterJoinReply():
                self._resolve_join(message)
            case NodeStopping():
                if sender in self.nodes:
                    self._out.send(sender, NodeStopping())
                self._remove_node(sender)
            case Credential() | LinkRefused():
                pass
            case _:
                self.site.on(message, sender)

    def _send_effects(self) -> None:
        """Sends what was decided."""
        for effect in self._out.drain():
            if isinstance(effect, Send):
                self.links.send(effect.to, CODEC.encode(effect.message), lossy=False)
            elif isinstance(effect, SendMany):
                frame = CODEC.encode(effect.message)
                for one in effect.to:
                    self.links.send(one, frame, lossy=False)

    def _apply_site_changes(self) -> None:
        now = self.gateway.now()
        for change in self.site.drain():
            self.registry.apply_site_change(now, change)
            if isinstance(change, NeighbourRemoved) and change.lost:
                self._on_node_lost(change.site)
            elif isinstance(change, MatcherResigned) and not self.stopping:
                self._rejoin()
        self._send_effects()

    def _rejoin(self) -> None:
        """The site was idle and gave up its place. In a cluster every node has one: join again."""
        contact = next(iter(self.nodes), None)
        if contact is not None:
            gateway, place = self.site.gateway.gateway or contact, self._place_for_site()
            self.site = self._new_site()
            self.site.join(place, contact, gateway)

    # The other nodes.

    def _on_join_request(self, url: str, sender: NodeId) -> None:
        gateway, place = self.site.gateway.gateway, self._place_for_site()
        self._add_node(sender, url, 0.0, None)
        self._out.send(sender, ClusterJoinReply(place, self.id if gateway is None else gateway))
        LOG.info("node %d has joined, at %s", sender, url)

    def _place_for_site(self) -> Place:
        """Where one more site helps most; while there is no load, somewhere near this one."""
        needed = self._most_needed_place()
        if needed is not None:
            return needed
        angle, far = self._random.random() * tau, APART * self._parameters.spacing
        x, y = self.site.place
        return x + far * cos(angle), y + far * sin(angle)

    def _most_needed_place(self) -> Place | None:
        """The place that the node with the highest load wants to share, if any."""
        needs = [(known.load, known.need) for known in self.nodes.values()]
        if self.site.ready:
            needs.append((self.site.load, self._half_of_load()))
        places = [(load, need) for load, need in needs if need is not None]
        return max(places)[1] if places else None

    def _half_of_load(self) -> Place | None:
        """The centre of one half of this site's load; None if it cannot be shared."""
        records = self.site.ownership.records
        centres = records.centres(records.owned_by(self.id), self.gateway.now())
        centres = centres[(np.abs(centres) < 1e29).all(axis=1)]
        if len(centres) > 1:
            axis = int(np.ptp(centres, axis=0).argmax())
            half = centres[centres[:, axis] >= np.median(centres[:, axis])]
            x, y = half.mean(axis=0).tolist()
            if abs(x - self.site.place[0]) + abs(y - self.site.place[1]) > 1.0:
                return x, y
        return None

    def _move_if_idle(self, now: Time) -> None:
        """A site without load for a while moves to where most help is needed."""
        needed = self._most_needed_place()
        if self.site.load > 0 or needed is None or not self.site.ready:
            self._idle_since = now
        elif now - self._idle_since > IDLE and self.site.mesh.me is not None:
            self._idle_since = now
            self.site.mesh.move_to(needed, self.site.mesh.me.reach)

    def _on_heartbeat(self, beat: NodeHeartbeat, sender: NodeId) -> None:
        self._add_node(sender, beat.url, beat.load, beat.need)
        for other in beat.others:
            if other != self.id and other not in self.nodes:
                self._out.send(other, self._heartbeat())

    def _add_node(self, node: NodeId, url: str, load: float, need: Place | None) -> None:
        if node not in self.nodes:
            self.registry.on_node_back(node)
            self._out.send(node, self._heartbeat())
            self._out.send(node, RetainedStatesRequest())
        self.nodes[node] = KnownNode(url, load, need, self.gateway.now())
        self._notify_clients()

    def _heartbeat(self) -> NodeHeartbeat:
        return NodeHeartbeat(self.url, self.site.load, self._half_of_load(), tuple(self.nodes))

    def urls(self) -> list[str]:
        """URLs of the other nodes, for clients."""
        return sorted(known.url for known in self.nodes.values())

    def send_states(
        self, clients: Iterable[ClientState], nodes: Iterable[NodeId] | None = None
    ) -> None:
        """Sends the retained states of these clients to these nodes, or to all."""
        self.routing.send_states(list(self.nodes if nodes is None else nodes), clients)

    def _notify_clients(self) -> None:
        urls = tuple(self.urls())
        if urls != self._announced_urls:
            self._announced_urls = urls
            notice = messages.NodesNotice(list(urls))
            for session in list(self.gateway.sessions):
                if session.client is not None:
                    session.send(notice)

    def _check_entities(self, now: Time) -> None:
        """Asks each node about those of its clients without news lately."""
        unchecked = self.realm.remote_entities.due_for_check(now)
        for node in self.nodes:
            if block_of(node) in unchecked:
                self._out.send(node, EntityCheck(tuple(unchecked[block_of(node)])))

    def _on_check(self, entities: Sequence[NodeId], sender: NodeId) -> None:
        here = {client.entity for client in self.realm.clients if client is not None}
        absent = [e for e in entities if e not in here and not self.handover.is_departing(e)]
        if absent:
            self._out.send(sender, EntitiesAbsent(tuple(absent)))

    def _on_absent(self, entities: Sequence[NodeId], sender: NodeId) -> None:
        """They are not there any more. Perhaps they are on a node whose message was lost."""
        lost = [e for e in entities if self.realm.remote_entities.on_absent(e, sender)]
        if lost:
            others = [node for node in self.nodes if node != sender]
            self._out.send_many(others, RetainedStatesRequest(tuple(lost)))

    def _broken(self, node: NodeId) -> None:
        """A link has ended. Checks whether the node still accepts connections."""
        if node in self.nodes and not self.stopping:
            probe = asyncio.get_running_loop().create_task(self._probe(node))
            self._probes[probe] = None
            probe.add_done_callback(self._probes.pop)

    async def _probe(self, node: NodeId) -> None:
        card = self.links.book.record(node)
        if card is None:
            return
        try:
            async with asyncio.timeout(ANSWER_S):
                _, writer = await asyncio.open_connection(card.host, card.port)
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            self._out.send(node, RetainedStatesRequest())  # its last messages may be lost
        except OSError:
            self._on_node_lost(node)
        self._apply_site_changes()

    def _on_node_lost(self, node: NodeId) -> None:
        if node in self.nodes:
            LOG.warning("node %d at %s is lost", node, self.nodes[node].url)
        self.site.silence(node)
        self._remove_node(node)

    def _remove_node(self, node: NodeId) -> None:
        """Forgets a node and all its clients."""
        if self.nodes.pop(node, None) is None:
            return
        self.registry.on_node_lost(self.gateway.now(), node)
        self.realm.remote_entities.on_node_lost(node)
        self._notify_clients()

    # Time.

    def flushed(self, own: int) -> None:
        """The gateway has flushed: routes the publications to other nodes."""
        self._announce_subscriptions()
        *before, last = self.history.flushes
        self.routing.send_missed(last.t, before)  # first: late ones must not be overtaken
        self.handover.deliver_missed(before)
        self.routing.route_flush(last, own)
        self.routing.answer_counts()
        self._send_effects()

    def delivered(self) -> None:
        """The gateway has delivered the flush: claimed clients may go."""
        if self.handover.claimed:
            self.handover.release_claimed(self.gateway.now())
            self._send_effects()

    def _announce_subscriptions(self) -> None:
        """Subscriptions are announced before any later publication."""
        changed, self.history.changed_subscriptions = self.history.changed_subscriptions, {}
        unannounced, self.history.unannounced = self.history.unannounced, []
        if changed:
            self.registry.announce(self.gateway.now(), changed, unannounced)

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        try:
            self._run_tick(self.gateway.now())
        except Exception:
            LOG.exception("a tick of the cluster failed")

    def _run_tick(self, now: Time) -> None:
        late, self._last_tick = now - self._last_tick > LATE, now
        self._stood_still = late and not self._stood_still
        if self._stood_still:
            return  # first read what others sent meanwhile
        self._announce_subscriptions()
        if self.history.left_entities:
            left, self.history.left_entities = self.history.left_entities, []
            self._out.send_many(list(self.nodes), EntitiesLeft(tuple(left)))
        if self.history.withdrawn_states:
            withdrawn, self.history.withdrawn_states = self.history.withdrawn_states, []
            self._out.send_many(list(self.nodes), StatesWithdrawn(tuple(withdrawn)))
        if now - self._last_site_tick >= SITE_EVERY:
            self._last_site_tick = now
            self.site.tick(now)
            self.registry.tick(now)
            self.handover.tick(now)
            self.remote_subscriptions.forget(now)
        if now - self._last_heartbeat >= HEARTBEAT_EVERY:
            self._last_heartbeat = now
            self.routing.forget(now)
            self._move_if_idle(now)
            self._check_entities(now)
            self._out.send_many(list(self.nodes), self._heartbeat())
            for node in [
                n for n, known in self.nodes.items() if now - known.last_heard > LOST_AFTER
            ]:
                self._on_node_lost(node)
        self._apply_site_changes()
        if self.gateway.idle:  # else the next flush does it
            self.routing.send_missed(now, self.history.flushes)
            self.handover.deliver_missed(self.history.flushes)
            self.delivered()
        self.routing.answer_counts()
        self._send_effects()


async def _until(condition: Callable[[], bool], seconds: float) -> None:
    """Waits for a condition, for so long at most."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not condition():
                await asyncio.sleep(LOOK_S)
