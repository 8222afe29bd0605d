"""The service of a node in a cluster: other nodes, and clients that are handed over.

At each flush, publications go to the nodes whose clients may want them (`routing`). Messages of
other nodes are received here and dispatched by `cluster_node`.
"""

from collections.abc import Sequence
from random import Random

from nearcast.client_protocol import messages
from nearcast.client_protocol.close_codes import CloseCode
from nearcast.client_protocol.limits import Limits
from nearcast.errors import MalformedMessageError, Refused
from nearcast.model.subscription import NodeId, PublicationId
from nearcast.node import Effect, Message, Timer
from nearcast.protocols.voronoi.vso.parameters import Parameters
from nearcast.service.access.grants import Grant
from nearcast.service.client_state import FlushDeliveries
from nearcast.service.cluster.cluster_node import ClusterNode
from nearcast.service.cluster.realm import ClusterRealm
from nearcast.service.cluster.relaying import RelayingOutbox
from nearcast.service.cluster.scaling import ScalingParameters
from nearcast.service.connection import Connection
from nearcast.service.effects import Fault, Refuse
from nearcast.service.recipients import AcceptedDirect
from nearcast.service.service import FLUSH, Service
from nearcast.space.motion import SECOND, Time

CLUSTER_TICK_EVERY: Time = SECOND // 50
GATHERED: Time = SECOND // 50  # publications of other nodes wait for more, and are sorted


class ClusterTick(Timer, frozen=True):
    """Heartbeats, the site, handovers: fifty times a second."""


CLUSTER_TICK = ClusterTick()


class ClusterService(Service):
    """Decides for the clients of a node, together with the other nodes of its cluster."""

    def __init__(
        self,
        node_id: NodeId,
        rng: Random,
        realm: ClusterRealm,
        limits: Limits,
        parameters: Parameters,
        *,
        name: str = "",
        clients: int = 10_000,
        requests: int = 500,
        scaling: ScalingParameters | None = None,
    ) -> None:
        out = RelayingOutbox(node_id)
        super().__init__(
            node_id, rng, realm, limits, name=name, clients=clients, requests=requests, out=out
        )
        self.cluster = ClusterNode(
            node_id, out, rng, lambda: self.now, realm, self.connections, parameters,
            scaling or ScalingParameters(),
        )  # fmt: skip

    # Inputs.

    def found_cluster(self, now: Time, url: str) -> list[Effect]:
        """Be the first node of a cluster. `url`: where clients reach this node."""
        self._advance(now)
        self.cluster.found(url)
        self.out.set_timer(CLUSTER_TICK, CLUSTER_TICK_EVERY)
        return self.out.drain()

    def join_cluster(self, now: Time, url: str, contact: NodeId) -> list[Effect]:
        """Ask this node to be let into its cluster. To be called again, perhaps with another, if
        nobody answers; the node has joined once `cluster.joined`."""
        self._advance(now)
        self.cluster.request_join(url, contact)
        self.out.set_timer(CLUSTER_TICK, CLUSTER_TICK_EVERY)
        return self.out.drain()

    def leave_cluster(self, now: Time) -> list[Effect]:
        """Hand over all clients and records; `Stop` follows when no node needs this one."""
        self._advance(now)
        self.cluster.leave()
        return self._drain()

    def forward(
        self, now: Time, connection: Connection, frame: bytes, packed: bool
    ) -> list[Effect]:
        """A request of a client that another node serves now (`Connection.elsewhere`)."""
        self._advance(now)
        self.cluster.handover.forward_request(connection, frame, packed)
        return self._drain()

    def report_cpu(self, now: Time, share: float) -> list[Effect]:
        """How much of a CPU core this node's process has used since the last report."""
        self._advance(now)
        self.cluster.scaling.report_cpu(share)
        return self.out.drain()

    def link_broken(self, now: Time, node: NodeId) -> list[Effect]:
        """The link to another node has ended."""
        self._advance(now)
        self.cluster.on_link_broken(node)
        return self._drain()

    def probed(self, now: Time, node: NodeId, accepts: bool) -> list[Effect]:
        """The answer to `ProbeNode`: does the node still accept connections?"""
        self._advance(now)
        self.cluster.on_probed(node, accepts)
        return self._drain()

    def _drain(self) -> list[Effect]:
        self._apply_decisions()
        return self.out.drain()

    # Hooks.

    def on_message(self, sender: NodeId, message: Message) -> None:
        self.on_messages([(sender, message)])

    def on_messages(self, arrivals: Sequence[tuple[NodeId, Message]]) -> None:
        waited = self.realm.waiting
        for sender, message in arrivals:
            try:
                self.cluster.receive(sender, message)
            except Exception as error:
                self.out.put(Fault(f"a message of node {sender} failed", error, 0))
        self.cluster.apply_site_changes()
        self._apply_decisions()
        if self.realm.waiting and not waited:
            self.out.set_timer(FLUSH, GATHERED)

    def on_timer(self, timer: Timer) -> None:
        if timer == CLUSTER_TICK:
            self.out.set_timer(CLUSTER_TICK, CLUSTER_TICK_EVERY)
            self.cluster.tick()
            self._apply_decisions()
        else:
            super().on_timer(timer)

    def _join(self, connection: Connection, request: messages.JoinRequest, grant: Grant) -> None:
        if self.cluster.gone:  # nobody could take it over any more
            self._end(connection, "the node stops", CloseCode.GOING_AWAY)
        else:
            super()._join(connection, request, grant)

    def _claim(self, connection: Connection, request: messages.JoinRequest) -> None:
        self.cluster.handover.claim_client(self.now, connection, request)
        connection.joining = True  # until it is welcomed or turned away, by this token

    def _end_client(self, connection: Connection) -> None:
        """The client leaves, unless it is another node's, or returns to its former one."""
        self.cluster.handover.connection_ends(self.now, connection)
        super()._end_client(connection)

    def _deliver(self, flushed: FlushDeliveries) -> None:
        try:
            self.cluster.flushed(flushed.own, self._counted)
        except Exception as error:
            self.out.put(Fault("publications could not be passed on to other nodes", error, 1))
        super()._deliver(flushed)
        self.cluster.scaling.count_deliveries(len(flushed))
        self.cluster.delivered()
        self._apply_decisions()

    def _route_direct(
        self, connection: Connection, number: int | None, message: AcceptedDirect
    ) -> None:
        self.cluster.direct.send(connection, number, message)

    def _counted_here(self, publication: PublicationId, t: Time, readers: int) -> None:
        self.cluster.routing.count_here(publication, t, readers)

    # What handovers decide.

    def _apply_decisions(self) -> None:
        """Connections that end, and requests that were forwarded."""
        handover = self.cluster.handover
        while handover.ended or handover.forwarded:
            ended, handover.ended = handover.ended, []
            for connection, reason, code in ended:
                self._end(connection, reason, code)
            forwarded, handover.forwarded = handover.forwarded, []
            for connection, frame, packed in forwarded:
                self._handle_forwarded(connection, frame, packed)

    def _handle_forwarded(self, connection: Connection, frame: bytes, packed: bool) -> None:
        """A request that its client sent to the node that served it before."""
        encoding = messages.MSGPACK if packed else messages.JSON
        number = None
        try:
            try:
                request = encoding.decode_request(frame)
            except messages.DECODE_ERRORS as why:
                number = encoding.request_id(frame)
                raise messages.as_malformed(why) from None
            number = request.id
            if type(request) is encoding.publish_class:
                waited = self.realm.waiting
                self.publish(connection, request, encoding)
                if not waited:
                    self.out.set_timer(FLUSH, 0)
            elif (kind := encoding.message_class(request)) is messages.SendRequest:
                self._send(connection, request, encoding)
            else:
                self._handle(connection, kind, request)
        except (Refused, MalformedMessageError) as why:
            self.out.put(Refuse(connection, messages.ErrorNotice(str(why), number)))
