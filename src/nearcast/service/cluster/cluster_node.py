"""A node's part in its cluster: its site, the other nodes, and the messages between them.

The site decides who owns which part of the world. `ClusterService` calls this module at messages,
ticks and flushes.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from math import cos, inf, sin, tau
from random import Random

import numpy as np
from msgspec import Struct

from nearcast.model.subscription import NodeId, PublicationId
from nearcast.node import Message, Stop
from nearcast.protocols.voronoi.site import MatcherResigned, NeighbourRemoved, Site
from nearcast.protocols.voronoi.vso.messages import Place
from nearcast.protocols.voronoi.vso.parameters import Parameters
from nearcast.service.client_state import ClientState
from nearcast.service.cluster.departure import Departure
from nearcast.service.cluster.direct_routing import DirectRouting
from nearcast.service.cluster.fence_replication import FenceReplication
from nearcast.service.cluster.handover import Handover
from nearcast.service.cluster.messages import (
    CODEC,
    CallIn,
    ClientReturned,
    ClientTransfer,
    ClusterJoinRefused,
    ClusterJoinReply,
    ClusterJoinRequest,
    CountReply,
    CountRequest,
    DirectAnswer,
    DirectForwarded,
    DirectSent,
    EntitiesAbsent,
    EntitiesLeft,
    EntityCheck,
    FenceBuckets,
    FenceRecords,
    ForwardedRequest,
    HandoverAccepted,
    HandoverCancelled,
    HandoverClaim,
    HandoverConfirmed,
    HandoverOffer,
    NodeHeartbeat,
    NodeStopping,
    PublicationBatch,
    RelayedMessage,
    RetainedStatesReport,
    RetainedStatesRequest,
    StatesInventory,
    StatesWithdrawn,
    SubscriptionEnded,
    SubscriptionHint,
    SubscriptionOwned,
    SubscriptionUpdate,
)
from nearcast.service.cluster.realm import ClusterRealm
from nearcast.service.cluster.relaying import (
    HEARD_WITHIN,
    RELAY_AFTER,
    RelayingOutbox,
    find_relay,
)
from nearcast.service.cluster.remote_subscriptions import RemoteSubscriptions, block_of
from nearcast.service.cluster.routing import Routing
from nearcast.service.cluster.scaling import Role, Scaling, ScalingParameters
from nearcast.service.cluster.state_comparison import StateComparison
from nearcast.service.cluster.subscription_registry import SubscriptionRegistry
from nearcast.service.connections import Connections
from nearcast.service.effects import ProbeNode
from nearcast.space.motion import SECOND, Time

SITE_EVERY: Time = SECOND // 10
HEARTBEAT_EVERY: Time = SECOND // 2
IDLE: Time = 3 * SECOND
LATE: Time = SECOND // 2
LOST_AFTER: Time = 4 * SECOND  # without a message
REMEMBER_LOST: Time = 600 * SECOND  # as gateways do
STOP_ANSWERED: Time = SECOND  # how long a node that stops waits for the others' answers
SITE_JOINED: Time = 5 * SECOND  # by then a new site is in the mesh, or its contact has crashed
APART = 20.0  # times the spacing: how far away a new site begins while there is no load


class KnownNode(Struct):
    """Another node of the cluster, and what it last told of itself."""

    beat: NodeHeartbeat
    last_heard: Time
    last_direct: Time  # the same without messages that another node relayed


class ClusterNode:
    """A node among others: its site, what it knows of the others, and what it tells them."""

    def __init__(
        self,
        node_id: NodeId,
        out: RelayingOutbox,
        rng: Random,
        clock: Callable[[], Time],
        realm: ClusterRealm,
        connections: Connections,
        parameters: Parameters,
        scaling: ScalingParameters,
    ) -> None:
        self.id, self.url = node_id, ""
        self.nodes: dict[NodeId, KnownNode] = {}
        self._lost: dict[NodeId, Time] = {}  # while they or this node had no site: no mesh has them
        self.stopping = False
        self.gone = False  # has it given away all that it had?
        self.joined = False  # this node has founded the cluster, or was let in; else ask again
        self.refused = ""  # why it was not let in, if it never will be
        self._out, self._random, self._clock, self._parameters = out, rng, clock, parameters
        self._connections = connections
        self.site = self._new_site()
        self.remote_subscriptions = RemoteSubscriptions()
        self.realm, self.history = realm, realm.history
        self.registry = SubscriptionRegistry(
            self.id, lambda: self.site, self.remote_subscriptions, out.send, self.is_member
        )
        self.routing = Routing(
            realm, lambda: self.site, self.remote_subscriptions, out, lambda: self.nodes
        )
        self.scaling = Scaling(self, out, scaling)
        self.handover = Handover(self, out, connections, rng)
        self.direct = DirectRouting(self, out, connections)
        self._states = StateComparison(self, out, realm)
        self._fences = FenceReplication(self, out)
        self._departure: Departure | None = None  # while it stops
        self._goodbye_until: Time | None = None
        self._last_heartbeat = self._last_site_tick = self._idle_since = self._last_tick = 0
        self._stood_still = False
        self._contact: NodeId | None = None  # through which the site joined the mesh
        self._joining_since: Time = 0

    def _new_site(self) -> Site:
        return Site(self.id, self._out, self._random, self._clock, self._parameters)

    def is_member(self, node: NodeId) -> bool:
        return node == self.id or node in self.nodes

    # Joining and leaving.

    def found(self, url: str) -> None:
        """Be the first node."""
        self.url, self.joined = url, True
        self.site.found((0.0, 0.0))
        self.apply_site_changes()

    def request_join(self, url: str, contact: NodeId) -> None:
        """Ask a node of the cluster to be let in."""
        self.url = url
        standby, geometry = self.scaling.parameters.standby, self.realm.geometry
        self._out.send(contact, ClusterJoinRequest(url, standby, geometry))

    def _on_join_reply(self, reply: ClusterJoinReply, sender: NodeId) -> None:
        if self.joined or self.site.ready:
            return
        self.joined, self.site = True, self._new_site()
        contact = sender if reply.contact is None else reply.contact
        if self.scaling.role is Role.STANDING_BY:
            self.site.set_representatives({contact: reply.place})
        else:
            self._join_mesh(reply.place, contact, reply.gateway)

    def _join_mesh(self, place: Place, contact: NodeId, gateway: NodeId) -> None:
        self._contact, self._joining_since = contact, self._clock()
        self.site.join(place, contact, gateway)

    def leave(self) -> None:
        """Begin to leave. `Stop` follows."""
        if not self.stopping:
            self.stopping = True
            now = self._clock()
            self._departure = Departure(now, self)
            self.scaling.stop(now)

    def _leave_further(self, now: Time) -> None:
        """Take the next step: clients go first, then the site's records, then this node."""
        if self._departure is not None:
            if self._departure.step(now):
                self._departure, self.gone = None, True
                if not self.site.resigned and self.nodes:
                    self.site.abandon()
                # They answer. All that they sent before has arrived by then.
                self._out.send_many(list(self.nodes), NodeStopping())
                self._goodbye_until = now + STOP_ANSWERED
            return
        answered = not self.nodes and self.realm.waiting == 0
        if self._goodbye_until is not None and (answered or now >= self._goodbye_until):
            self._goodbye_until = None
            self._out.put(Stop())  # what clients still ask for is answered

    # The site's part in the mesh, which a node that stands by has not.

    def enter_mesh(self, place: Place, contact: NodeId, gateway: NodeId) -> None:
        """Join the site, by a contact whose site is in the mesh."""
        self.site = self._new_site()
        self._join_mesh(place, contact, gateway)

    def found_mesh(self) -> None:
        """Nobody has a part of the space any more: this site has all of it."""
        self.site = self._new_site()
        self.site.found((0.0, 0.0))
        self.apply_site_changes()

    def leave_mesh(self) -> None:
        """The site has given away its records, or does so at once: other sites have its part."""
        now, former = self._clock(), self.site
        if former.mesh.me is not None:
            former.abandon()
        self.apply_site_changes()
        # Publications that are on their way here are still forwarded for a while.
        for subscription in list(former.ownership.records.slot):
            self.remote_subscriptions.drop(now, subscription)
        self.site = self._new_site()
        self._update_representatives()

    def on_role_changed(self) -> None:
        """All nodes must know it soon."""
        self._update_representatives()
        self._out.send_many(list(self.nodes), self.heartbeat())

    def _update_representatives(self) -> None:
        """While the site is not in the mesh, those that are forward for it."""
        if self.scaling.role is Role.STANDING_BY:
            places = {node: self.nodes[node].beat.site for node in self.serving_nodes()}
            known = {node: place for node, place in places.items() if place is not None}
            if known:
                self.site.set_representatives(known)

    def serving_nodes(self) -> list[NodeId]:
        """Other nodes to which clients may be sent."""
        return [node for node, known in self.nodes.items() if known.beat.role == Role.ACTIVE]

    @property
    def has_heirs(self) -> bool:
        """Is there a node that may serve the clients of this one, now or soon?"""
        return any(known.beat.role != Role.LEAVING for known in self.nodes.values())

    # Messages.

    def receive(self, sender: NodeId, message: Message) -> None:
        if isinstance(message, RelayedMessage):
            self._receive_relayed(message, sender)
            return
        known = self.nodes.get(sender)
        if known is not None:
            known.last_heard = known.last_direct = self._clock()
            if self._out.relays.pop(sender, None) is not None:
                self._out.note("node reached", sender)
        self._dispatch(message, sender)

    def _receive_relayed(self, message: RelayedMessage, sender: NodeId) -> None:
        """Of a node that cannot reach this one; or to be forwarded to one that it cannot reach."""
        source, target = message.source, message.target
        if target != self.id:
            if target in self.nodes and source in self.nodes:
                self._out.send_directly(target, message)
            return
        known, now = self.nodes.get(source), self._clock()
        if known is None or now - known.last_direct > RELAY_AFTER:
            self._out.relays[source] = sender  # answers take the same way
        if known is not None:
            known.last_heard = now
        self._dispatch(CODEC.decode(message.frame), source)

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
                if not self.gone:
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
                self.handover.receive(self._clock(), message, sender)
            case CountReply():
                self.routing.on_count_reply(message, sender)
            case DirectSent() | DirectAnswer() | DirectForwarded():
                self.direct.receive(message, sender)
            case RetainedStatesReport():
                self.routing.on_states(message, sender)
            case RetainedStatesRequest(entities):
                clients = [client for client in self.realm.clients if client is not None]
                departed = self.realm.departed_clients()
                if entities:
                    clients = [client for client in clients if client.entity in entities]
                    departed = [client for client in departed if client.entity in entities]
                self.send_states(clients, [sender])
                self.send_states(departed, [sender])
            case EntitiesLeft(entities):
                for entity in entities:
                    self.realm.on_entity_left(self._clock(), entity, sender)
            case StatesWithdrawn(states):
                self.realm.on_states_withdrawn(states)
            case EntityCheck(entities):
                self.answer_check(entities, sender)
            case StatesInventory():
                self._states.on_inventory(message, sender)
            case FenceBuckets():
                self._fences.on_buckets(message, sender)
            case FenceRecords():
                self._fences.on_records(message, sender)
            case EntitiesAbsent(entities):
                self._on_absent(entities, block_of(sender))
            case ClusterJoinRequest():
                self._on_join_request(message, sender)
            case ClusterJoinReply():
                self._on_join_reply(message, sender)
            case ClusterJoinRefused(reason):
                self.refused = reason
            case NodeStopping():
                if sender in self.nodes:
                    self._out.send(sender, NodeStopping())
                self._remove_node(sender)
            case CallIn():
                self.scaling.on_call_in(self._clock(), message, sender)
            case _:
                # Sites that do not know yet that this one has left get no answer, and act on that.
                if self.site.mesh.me is not None:
                    self.site.on(message, sender)

    def apply_site_changes(self) -> None:
        """Act on what the site has decided."""
        now = self._clock()
        for change in self.site.drain():
            self.registry.apply_site_change(now, change)
            if isinstance(change, NeighbourRemoved) and change.lost:
                self._on_node_lost(change.site)
            elif isinstance(change, MatcherResigned) and self.scaling.serves:
                self._rejoin()

    def _rejoin(self) -> None:
        """A node that serves has a site: join the mesh anew, if possible by another node. If the
        mesh is lost with all who were in it, the first of those who serve founds it again."""
        serving = self.serving_nodes()
        in_mesh = [node for node in serving if self.nodes[node].beat.site is not None]
        if not in_mesh and self._contact is not None and self.id < min(serving, default=inf):
            self.found_mesh()
            return
        serving = in_mesh or serving
        others = [node for node in serving if node != self._contact]
        contact = next(iter(others or serving), None)
        if contact is not None:
            gateway, place = self.site.gateway.gateway, self.place_for_site()
            self.enter_mesh(place, contact, gateway if gateway in self.nodes else contact)

    # The other nodes.

    def _on_join_request(self, request: ClusterJoinRequest, sender: NodeId) -> None:
        if self.stopping:
            return  # another node must let it in
        if request.geometry != self.realm.geometry:
            reason = f"its geometry is {self.realm.geometry!r}, that of this node is not"
            self._out.send(sender, ClusterJoinRefused(reason))
            return
        gateway, place = self.site.gateway.gateway, self.place_for_site()
        # This site cannot accept another while it is not in the mesh itself.
        contact = self.id if self.site.ready else next(iter(self.serving_nodes()), self.id)
        role = Role.STANDING_BY if request.standby else Role.ACTIVE
        self._add_node(sender, NodeHeartbeat(request.url, 0.0, None, (), role))
        self._out.send(
            sender, ClusterJoinReply(place, contact if gateway is None else gateway, contact)
        )
        self._out.note("node added", sender)

    def place_for_site(self) -> Place:
        """Where one more site helps most; while there is no load, somewhere near this one."""
        needed = self._most_needed_place()
        if needed is not None:
            return needed
        angle, far = self._random.random() * tau, APART * self._parameters.spacing
        x, y = self.site.place
        return x + far * cos(angle), y + far * sin(angle)

    def _most_needed_place(self) -> Place | None:
        """The place that the node with the highest load wants to share, if any."""
        needs = [(known.beat.load, known.beat.need) for known in self.nodes.values()]
        if self.site.ready:
            needs.append((self.site.load, self.half_of_load()))
        places = [(load, need) for load, need in needs if need is not None]
        return max(places)[1] if places else None

    def half_of_load(self) -> Place | None:
        """The centre of one half of this site's load; None if it cannot be shared."""
        records = self.site.ownership.records
        centres = records.centres(records.owned_by(self.id), self._clock())
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
        self._add_node(sender, beat)
        self._states.on_heartbeat(beat, sender)
        self._fences.on_heartbeat(beat, sender)
        if beat.site is not None and sender not in self.site.mesh.known:
            # Perhaps there are two meshes, as after a partition, or because sites joined each other
            # whose contacts had crashed. They must find each other.
            self.site.mesh.remember(sender)
        for other in beat.others:
            if other != self.id and other not in self.nodes:
                self._out.send(other, self.heartbeat())
                if other in beat.hears:  # perhaps only the sender can reach it
                    frame = CODEC.encode(self.heartbeat())
                    self._out.send(sender, RelayedMessage(other, self.id, frame))

    def _add_node(self, node: NodeId, beat: NodeHeartbeat) -> None:
        if node not in self.nodes:
            self._lost.pop(node, None)
            self.registry.on_node_back(node)
            self._out.send(node, self.heartbeat())
            self._out.send(node, RetainedStatesRequest())
        now, known = self._clock(), self.nodes.get(node)
        direct = now if node not in self._out.relays else 0
        if known is not None:
            direct = known.last_direct
        self.nodes[node] = KnownNode(beat, now, direct)
        self._update_representatives()
        self._connections.set_urls(self.urls())

    def heartbeat(self) -> NodeHeartbeat:
        """What this node tells of itself."""
        scaling = self.scaling
        return NodeHeartbeat(
            self.url, self.site.load, self.half_of_load(), tuple(self.nodes), scaling.role,
            scaling.share, scaling.parameters.capacity, scaling.may_leave, scaling.reason,
            self.site.place if self.site.ready else None, self._directly_reachable(),
            self._states.digest(self._clock()), self.realm.replicated_fences.digest,
        )  # fmt: skip

    def _directly_reachable(self) -> tuple[NodeId, ...]:
        """The nodes that this one has heard directly, and lately."""
        since = self._clock() - HEARD_WITHIN
        return tuple(node for node, known in self.nodes.items() if known.last_direct >= since)

    def _choose_relays(self) -> None:
        """For each node that is not heard directly, another that hears it."""
        relays = self._out.relays
        heard = {node: self.nodes[node].beat.hears for node in self._directly_reachable()}
        silent_since = self._clock() - RELAY_AFTER
        for node, known in self.nodes.items():
            silent = known.last_direct < silent_since
            via = find_relay(node, heard) if silent else None
            if via is None:
                relays.pop(node, None)
            elif node not in heard.get(relays.get(node, self.id), ()):
                relays[node] = via
                self._out.note("node relayed", node)

    def _is_relayed(self, node: NodeId) -> bool:
        """Is it alive, though this node cannot reach it?"""
        if node in self.nodes:
            self.nodes[node].last_direct = min(
                self.nodes[node].last_direct, self._clock() - RELAY_AFTER - 1
            )
            self._choose_relays()
        return node in self._out.relays

    def urls(self) -> list[str]:
        """URLs of the other active nodes, for clients. If there are none, of all: should this node
        fail, one of those that stand by takes over."""
        nodes = self.serving_nodes() or self.nodes
        return sorted(self.nodes[node].beat.url for node in nodes)

    def send_states(
        self, clients: Sequence[ClientState], nodes: Iterable[NodeId] | None = None
    ) -> None:
        """Sends the retained states of these clients to these nodes, or to all."""
        self.routing.send_states(list(self.nodes if nodes is None else nodes), clients)

    def _check_entities(self, now: Time) -> None:
        """Asks each node about those of its clients without news lately. What came late of a node
        that is no member any more nobody can confirm."""
        nodes = {block_of(node): node for node in self.nodes}
        for block, entities in self.realm.remote_entities.due_for_check(now).items():
            if block in nodes:
                self._out.send(nodes[block], EntityCheck(tuple(entities)))
            else:
                self._on_absent(entities, block)

    def answer_check(self, entities: Sequence[NodeId], sender: NodeId) -> None:
        """Tells a node which of these are not clients of this one."""
        here = {client.entity for client in self.realm.clients if client is not None}
        absent = [e for e in entities if e not in here and not self.handover.is_departing(e)]
        if absent:
            self._out.send(sender, EntitiesAbsent(tuple(absent)))

    def _on_absent(self, entities: Sequence[NodeId], block: int) -> None:
        """They are not clients of this node. Perhaps they are on one whose message was lost."""
        lost = [e for e in entities if self.realm.remote_entities.on_absent(e, block)]
        if lost:
            others = [node for node in self.nodes if block_of(node) != block]
            self._out.send_many(others, RetainedStatesRequest(tuple(lost)))

    def on_link_broken(self, node: NodeId) -> None:
        """A link has ended: does the node still accept connections?"""
        if node in self.nodes and not self.stopping:
            self._out.put(ProbeNode(node))

    def on_probed(self, node: NodeId, accepts: bool) -> None:
        if accepts or self._is_relayed(node):
            self._out.send(node, RetainedStatesRequest())  # its last messages may be lost
        else:
            self._on_node_lost(node)
        self.apply_site_changes()

    def _on_node_lost(self, node: NodeId) -> None:
        if node in self.nodes:
            self._out.note("node lost", node)
            in_mesh = self.scaling.serves and self.site.ready
            if not in_mesh or self.nodes[node].beat.role != Role.ACTIVE:
                self._lost[node] = self._clock()
        self.site.silence(node)
        self._remove_node(node)

    def _remove_node(self, node: NodeId) -> None:
        """Forgets a node and all its clients."""
        if self.nodes.pop(node, None) is None:
            return
        self._out.relays.pop(node, None)
        self.registry.on_node_lost(self._clock(), node)
        self.realm.remote_entities.on_node_lost(node)
        # A node that stops, or has lost the last other one, is perhaps cut off from nodes that live
        # on: its clients need their addresses when it fails.
        if self.nodes and not self.stopping:
            self._connections.set_urls(self.urls())

    # Time.

    def flushed(self, own: int, counted: Collection[PublicationId]) -> None:
        """Publications were matched: routes them to other nodes. The matches of some are counted
        on all nodes."""
        self._announce_subscriptions()
        *before, last = self.history.flushes
        self.routing.send_missed(last.t, before)  # first: late ones must not be overtaken
        self.handover.deliver_missed(before)
        self.routing.route_flush(last, own, counted)
        self.routing.answer_counts()

    def delivered(self) -> None:
        """The flush has been delivered: claimed clients may go."""
        if self.handover.claimed:
            self.handover.release_claimed(self._clock())

    def _announce_subscriptions(self) -> None:
        """Subscriptions are announced before any later publication."""
        changed, self.history.changed_subscriptions = self.history.changed_subscriptions, {}
        unannounced, self.history.unannounced = self.history.unannounced, []
        if changed:
            self.registry.announce(self._clock(), changed, unannounced)

    def tick(self) -> None:
        """What is due: called fifty times a second."""
        now = self._clock()
        if self.stopping:
            self._leave_further(now)
        if self.gone:
            return
        late, self._last_tick = now - self._last_tick > LATE, now
        self._stood_still = late and not self._stood_still
        if self._stood_still:
            return  # first read what others sent meanwhile
        self._announce_subscriptions()
        if self.history.withdrawn_states:
            withdrawn, self.history.withdrawn_states = self.history.withdrawn_states, []
            self._out.send_many(list(self.nodes), StatesWithdrawn(tuple(withdrawn)))
        if self.history.left_entities:
            left, self.history.left_entities = self.history.left_entities, []
            self._out.send_many(list(self.nodes), EntitiesLeft(tuple(left)))
        self._fences.tick(now)
        if now - self._last_site_tick >= SITE_EVERY:
            self._last_site_tick = now
            joins = self.scaling.serves and not self.site.ready and not self.stopping
            if joins and now - self._joining_since > SITE_JOINED:
                self.joined = False  # perhaps no other node that this one knows is in the mesh
                self._rejoin()
            elif self.site.ready and self.nodes:
                self.joined = True
            self.site.tick(now)
            self.registry.tick(now)
            self.handover.tick(now)
            self.remote_subscriptions.forget(now)
        if now - self._last_heartbeat >= HEARTBEAT_EVERY:
            self._last_heartbeat = now
            self._move_if_idle(now)
            self._check_entities(now)
            self.scaling.step(now)
            self._choose_relays()
            heartbeat = self.heartbeat()
            # Sites find each other again after a partition; their nodes may have given up. Nodes
            # that stand by have no site.
            self._lost = {n: t for n, t in self._lost.items() if now - t < REMEMBER_LOST}
            known = dict.fromkeys([*self.nodes, *self.site.mesh.known, *self._lost])
            self._out.send_many(list(known), heartbeat)
            for node in self._out.relays:
                self._out.send_directly(node, heartbeat)
            for node in [
                n for n, known in self.nodes.items() if now - known.last_heard > LOST_AFTER
            ]:
                self._on_node_lost(node)
        self.apply_site_changes()
        if self.realm.waiting == 0:  # else the next flush does it
            self.routing.send_missed(now, self.history.flushes)
            self.handover.deliver_missed(self.history.flushes)
            self.delivered()
        self.routing.answer_counts()
        self.routing.expire_counts(now)
        self.direct.tick(now)
