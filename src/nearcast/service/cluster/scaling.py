"""Which nodes of a cluster serve: no more than its load needs ([VSO] III-A, IV-F).

A node is *active* (its site has a part of the space), *standing by* (a member without a part),
*entering* or *leaving*. An active node whose load share stays above a mark calls in the most
capable node that stands by, at the place where it helps most (`CallIn`). An active node that began
as a standby leaves when its load share stays below another mark and the others can carry what it
has: it hands over its clients, then its site's records, and stands by again.

Each decision is a function of what nodes tell in their heartbeats. Three things keep a node from
coming and going: the marks are far apart, a state must last, and nobody leaves if one of those who
inherit its load would be near the upper mark.

[VSO] IV-F asks the gateway for a candidate; here every node knows the candidates and asks one.
[VSO] III-A lets a matcher go when it has no subscription; here, when others have room for them.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum
from math import inf
from typing import TYPE_CHECKING

from msgspec import Struct

from nearcast.model.subscription import NodeId
from nearcast.node import Outbox
from nearcast.protocols.voronoi.records import leg
from nearcast.protocols.voronoi.vso.messages import Place
from nearcast.service.cluster.departure import Departure
from nearcast.service.cluster.messages import CallIn, NodeHeartbeat
from nearcast.space.motion import SECOND, Time

if TYPE_CHECKING:
    from nearcast.service.cluster.cluster_node import ClusterNode

DELIVERIES = 10.0  # per second, which belong to each subscription of a node's capacity
ROOM = 0.6  # load share of all who stay, together, up to which a node may leave
REBALANCED = 3  # times as long a node waits for help if the active nodes have room
INHERITED = 0.7  # and of each of them; below the upper mark
FALLEN = 0.02  # a load share that falls by so much is being helped
ANSWERED: Time = 5 * SECOND  # within which a node that was called in says so, or is active
HELPED: Time = 5 * SECOND  # by then it has taken over a part of the load, or begun to
ENTERED: Time = 15 * SECOND  # within which it has its part
CHOSEN: Time = 2 * SECOND  # for so long all agree who leaves, before it does
VACANT: Time = 3 * SECOND  # without any active node, until one that stands by takes over


class Role(IntEnum):
    """What a node is in its cluster at present."""

    ACTIVE, STANDING_BY, ENTERING, LEAVING = range(4)

    @property
    def label(self) -> str:
        return ("active", "standing by", "entering", "leaving")[self]


class ScalingParameters(Struct, frozen=True, kw_only=True):
    """When a node calls in others, and when it leaves itself."""

    # Does it wait until it is called in?
    standby: bool = False
    # Subscriptions that it can serve, each with ten deliveries per second.
    capacity: float = 100_000.0
    # The CPU share of its process at which it is full; 0: CPU time is not counted.
    cpu_limit: float = 0.0
    # The load share above which it calls in another node, and for how many seconds.
    high: float = 0.8
    high_s: float = 3.0
    # The load share below which it may leave, and for how many seconds.
    low: float = 0.25
    low_s: float = 30.0

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high:
            raise ValueError(f"low ({self.low:g}) must be below high ({self.high:g})")


class Load(Struct, frozen=True):
    """What a node carries, against its capacity."""

    subscriptions: int = 0  # that its site owns, or of its own clients: the larger number
    deliveries: float = 0.0  # per second
    cpu: float = 0.0  # share of one core

    def parts(self, parameters: ScalingParameters) -> list[tuple[float, str]]:
        """Each load share, and in words."""
        capacity, limit = parameters.capacity, parameters.cpu_limit
        owned, rate, most = self.subscriptions, self.deliveries, capacity * DELIVERIES
        return [
            (owned / capacity, f"{owned:,} of {capacity:,.0f} subscriptions"),
            (rate / most, f"{rate:,.0f} of {most:,.0f} deliveries a second"),
            (self.cpu / limit if limit else 0.0, f"{self.cpu:.0%} of a CPU core"),
        ]

    def share(self, parameters: ScalingParameters) -> float:
        """The largest of its load shares. Above 1 is too much."""
        return max(share for share, _ in self.parts(parameters))

    def reason(self, parameters: ScalingParameters) -> str:
        return max(self.parts(parameters))[1]


class Candidate(Struct, frozen=True):
    """What a node tells of itself that decides who comes and who goes."""

    role: Role
    share: float  # of its capacity
    capacity: float
    standby: bool  # it may leave

    @classmethod
    def of(cls, beat: NodeHeartbeat) -> "Candidate":
        return cls(Role(beat.role), beat.share, beat.capacity, beat.standby)


# Decisions.


def choose_standby(
    nodes: Mapping[NodeId, Candidate], tried: Collection[NodeId] = ()
) -> NodeId | None:
    """The most capable node that stands by ([VSO] IV-F, 4); without any, one that just leaves."""
    for role in (Role.STANDING_BY, Role.LEAVING):
        free = [
            n for n, one in nodes.items() if one.role is role and one.standby and n not in tried
        ]
        if free:
            return min(free, key=lambda node: (-nodes[node].capacity, node))
    return None


def choose_leaving(nodes: Mapping[NodeId, Candidate], low: float) -> NodeId | None:
    """The node with the least load among those that may leave; nobody while another enters or
    leaves, or if it is the only one. All nodes choose the same."""
    if any(one.role in (Role.ENTERING, Role.LEAVING) for one in nodes.values()):
        return None
    active = [node for node, one in nodes.items() if one.role is Role.ACTIVE]
    idle = [n for n in active if nodes[n].standby and nodes[n].share < low]
    if len(active) < 2 or not idle:
        return None
    return min(idle, key=lambda node: (nodes[node].share, node))


def can_carry(
    others: Iterable[Candidate], share: float, capacity: float, inherited: Mapping[NodeId, float],
    nodes: Mapping[NodeId, Candidate], high: float,
) -> bool:  # fmt: skip
    """Can the other active nodes carry the load of one that leaves, with room to spare?

    `inherited`: how many subscriptions each of them would get.
    """
    active = [one for one in others if one.role is Role.ACTIVE]
    carried = share * capacity + sum(one.share * one.capacity for one in active)
    if not active or carried > ROOM * sum(one.capacity for one in active):
        return False
    if any(one.share > high for one in active):  # it may be needed there
        return False
    return all(
        heir in nodes and nodes[heir].share + more / nodes[heir].capacity <= min(INHERITED, high)
        for heir, more in inherited.items()
    )


def patience(nodes: Iterable[Candidate], parameters: ScalingParameters) -> Time:
    """For how long a node is overloaded before it calls in another one. While the active nodes
    together have room, their sites get the time to move closer first ([VSO] IV-F, 1 to 3)."""
    active = [one for one in nodes if one.role is Role.ACTIVE]
    carried, capacity = sum(a.share * a.capacity for a in active), sum(a.capacity for a in active)
    periods = 1 if carried > ROOM * capacity else REBALANCED
    return round(periods * parameters.high_s * SECOND)


class Overload:
    """Since when a load share is above a mark and does not fall."""

    def __init__(self) -> None:
        self._since: Time | None = None
        self._lowest = inf

    def lasts(self, now: Time, share: float, mark: float) -> Time:
        """For how long, by now. A share that falls is being helped, so the time begins again."""
        if share <= mark:
            self._since, self._lowest = None, inf
            return 0
        if self._since is None or share < self._lowest - FALLEN:
            self._since, self._lowest = now, share
        return now - self._since

    def restart(self) -> None:
        self._since, self._lowest = None, inf


class Lasting:
    """Since when a condition has been true."""

    def __init__(self) -> None:
        self._since: Time | None = None

    def update(self, now: Time, holds: bool) -> Time:
        """For how long it has been true by now; 0 if it is not."""
        if not holds:
            self._since = None
        elif self._since is None:
            self._since = now
        return 0 if self._since is None else now - self._since


class Scaling:
    """The role of one node, and whom it calls in."""

    def __init__(self, node: "ClusterNode", out: Outbox, parameters: ScalingParameters) -> None:
        self.parameters = parameters
        self.role = Role.STANDING_BY if parameters.standby else Role.ACTIVE
        self.reason = ""  # why it has this role
        self.load = Load()
        self.share = 0.0  # as it was last told
        self._node, self._out = node, out
        self._since: Time = 0  # when the role began
        self._deliveries, self._counted_at, self._rate = 0, 0, 0.0
        self._cpu = 0.0
        self._overload = Overload()
        self._idle, self._chosen, self._vacant = Lasting(), Lasting(), Lasting()
        self._called: tuple[NodeId, Time] | None = None  # whom this node has called in, and when
        self._tried: dict[NodeId, None] = {}  # who did not come
        self._helped_until: Time = 0
        self._departure: Departure | None = None
        self._again: tuple[CallIn, NodeId] | None = None  # called in while it leaves, and by whom

    @property
    def serves(self) -> bool:
        """May clients be sent to this node?"""
        return self.role is Role.ACTIVE

    @property
    def clears(self) -> bool:
        """Are all its clients to go to other nodes?"""
        return self.role in (Role.STANDING_BY, Role.LEAVING)

    # What it carries.

    def count_deliveries(self, count: int) -> None:
        self._deliveries += count

    def report_cpu(self, share: float) -> None:
        """The CPU share of this node's process in the last second."""
        self._cpu = (self._cpu + share) / 2

    def _measure(self, now: Time) -> None:
        node = self._node
        if now > self._counted_at:
            rate = self._deliveries * SECOND / (now - self._counted_at)
            self._rate = (self._rate + rate) / 2 if self._counted_at else rate
            self._deliveries, self._counted_at = 0, now
        owned = len(node.site.ownership.records.owned_by(node.id))
        self.load = Load(max(owned, len(node.registry.mine)), self._rate, self._cpu)
        # Rounded, so that all nodes compare the same numbers.
        self.share = round(self.load.share(self.parameters), 3)

    def _itself(self) -> Candidate:
        return Candidate(self.role, self.share, self.parameters.capacity, self.may_leave)

    @property
    def may_leave(self) -> bool:
        return self.parameters.standby and not self._node.stopping

    # Time, before each heartbeat.

    def step(self, now: Time) -> None:
        """Measure the load, and decide."""
        self._measure(now)
        if self._node.stopping:
            self._call_in_replacement(now)
            return
        nodes = self._others()
        match self.role:
            case Role.STANDING_BY:
                self._step_standing_by(now, nodes)
            case Role.ENTERING:
                self._step_entering(now)
            case Role.LEAVING:
                self._step_leaving(now, nodes)
            case Role.ACTIVE:
                self._call_in_if_overloaded(now, nodes)
                self._leave_if_idle(now, nodes)

    def _become(self, now: Time, role: Role, reason: str) -> None:
        self.role, self.reason, self._since = role, reason, now
        self._overload.restart()
        for condition in (self._idle, self._chosen, self._vacant):
            condition.update(now, False)
        if role is not Role.ACTIVE:
            self._called = None
        self._node.on_role_changed()

    def stop(self, now: Time) -> None:
        """This node stops."""
        self._departure = None
        self._become(now, Role.LEAVING, "it stops")
        self._call_in_replacement(now)

    def _call_in_replacement(self, now: Time) -> None:
        """If this was the only active node, one that stands by takes its part."""
        node, nodes = self._node, self._others()
        nobody = all(one.role is Role.STANDING_BY for one in nodes.values())
        has_clients = not node.handover.all_gone
        if nobody and has_clients and self._called is None and node.site.ready:
            self._call_in(now, node.place_for_site(), nodes, f"{node.url} stops")

    def _others(self) -> dict[NodeId, Candidate]:
        return {node: Candidate.of(known.beat) for node, known in self._node.nodes.items()}

    # Standing by, and being called in.

    def on_call_in(self, now: Time, call: CallIn, sender: NodeId) -> None:
        """An overloaded node needs help."""
        if not self.may_leave:
            return
        if self.role is Role.STANDING_BY:
            self._enter(now, call, sender)
        elif self.role is Role.LEAVING and self._departure is not None:
            self._again = call, sender
            if not self._departure.resigning:  # its part is still its own
                self._return(now, call.reason)

    def _enter(self, now: Time, call: CallIn, sender: NodeId) -> None:
        self._out.note("called in", sender, call.share)
        self._again = None
        self._node.enter_mesh(call.place, sender, call.gateway)
        self._become(now, Role.ENTERING, call.reason)

    def _step_entering(self, now: Time) -> None:
        if self._node.site.ready:
            self._become(now, Role.ACTIVE, self.reason)
        elif now - self._since > ENTERED:
            self._stand_by(now, "it could not enter")

    def _step_standing_by(self, now: Time, nodes: Mapping[NodeId, Candidate]) -> None:
        """If nobody is active any more, the most capable one takes over."""
        waiting = {node: one for node, one in nodes.items() if one.role is Role.STANDING_BY}
        vacant = self._node.joined and len(waiting) == len(nodes)
        if self._vacant.update(now, vacant) >= VACANT:
            waiting[self._node.id] = self._itself()
            if choose_standby(waiting) == self._node.id:
                self._out.note("called in")
                self._node.found_mesh()
                self._become(now, Role.ACTIVE, "no node was active")

    # Calling in another node.

    def _call_in_if_overloaded(self, now: Time, nodes: Mapping[NodeId, Candidate]) -> None:
        lasts = self._overload.lasts(now, self.share, self.parameters.high)
        if not lasts:
            self._tried.clear()
        if self._called is not None:
            self._called = self._still_awaited(now, *self._called, nodes)
        if self._called is not None or now < self._helped_until:
            return
        if lasts < patience([*nodes.values(), self._itself()], self.parameters):
            return
        place = self._node.half_of_load()
        if place is not None:
            reason = f"{self._node.url} has {self.load.reason(self.parameters)}"
            self._call_in(now, place, nodes, reason)

    def _still_awaited(
        self, now: Time, node: NodeId, called: Time, nodes: Mapping[NodeId, Candidate]
    ) -> tuple[NodeId, Time] | None:
        """The node that was called in, and when; None: it has come, or failed to."""
        role = nodes[node].role if node in nodes else None
        if role is Role.ACTIVE:
            self._helped_until = now + HELPED
            return None
        if now - called > (ENTERED if role is Role.ENTERING else ANSWERED):
            self._tried[node] = None
            return None
        return node, called

    def _call_in(
        self, now: Time, place: Place, nodes: Mapping[NodeId, Candidate], reason: str
    ) -> None:
        chosen = choose_standby(nodes, self._tried)
        if chosen is None:
            self._tried.clear()
            return
        gateway = self._node.site.gateway.gateway
        gateway = self._node.id if gateway is None else gateway
        self._called = chosen, now
        self._out.note("calls in", chosen, self.share)
        self._out.send(chosen, CallIn(place, gateway, self.share, reason[:256]))

    # Leaving.

    def _leave_if_idle(self, now: Time, nodes: Mapping[NodeId, Candidate]) -> None:
        parameters, node = self.parameters, self._node
        idle = self.may_leave and self.share < parameters.low
        lasts = self._idle.update(now, idle)
        chosen = False
        if lasts >= parameters.low_s * SECOND:
            everybody = {**nodes, node.id: self._itself()}
            chosen = choose_leaving(everybody, parameters.low) == node.id and can_carry(
                nodes.values(), self.share, parameters.capacity, self._inherited(now), nodes,
                parameters.high,
            )  # fmt: skip
        if self._chosen.update(now, chosen) >= CHOSEN:
            self._again = None
            self._departure = Departure(now, node)
            self._become(now, Role.LEAVING, f"its load share was {self.share:.2f}")

    def _inherited(self, now: Time) -> dict[NodeId, float]:
        """How many records each other site would get."""
        site, found = self._node.site, dict[NodeId, float]()
        records = site.ownership.records
        for record in records.of(records.owned_by(site.id)):
            x, y, *_ = leg(record.region, now)[0]
            heir = site.heir((x, y))
            if heir is not None:
                found[heir] = found.get(heir, 0.0) + 1.0
        return found

    def _step_leaving(self, now: Time, nodes: Mapping[NodeId, Candidate]) -> None:
        departure = self._departure
        assert departure is not None
        rivals = [n for n, one in nodes.items() if one.role is Role.LEAVING and one.standby]
        nobody = not any(one.role is Role.ACTIVE for one in nodes.values())
        if not departure.resigning and (nobody or any(n < self._node.id for n in rivals)):
            self._return(now, "it stays, because others leave")
        elif departure.step(now):
            self._out.note("stood down", None, self.share)
            self._stand_by(now, self.reason)
            if self._again is not None:
                self._enter(now, *self._again)

    def _return(self, now: Time, reason: str) -> None:
        """It is needed after all, before it has given away its part."""
        self._departure = self._again = None
        self._out.note("returned", None, self.share)
        self._become(now, Role.ACTIVE, reason)

    def _stand_by(self, now: Time, reason: str) -> None:
        self._departure = None
        self._node.leave_mesh()
        self._become(now, Role.STANDING_BY, reason)
