"""The random multigraph and its Eulerian circuit ([Lucas2011] 2.2; BubbleStorm's topology).

A peer has half as many locations as it wants links. All locations of all peers are on one closed
walk, each with a master before it and a slave after it; these are the links. A joiner is put on a
random link, which is split. When a peer leaves, its master and its slave are linked (contraction).
Neither changes the degree of other peers or the randomness of the graph. Links of a peer to itself
and several links between two peers are legal.

A crash tears the walk. Locations that miss one side search each other (`RepairWalk`); those that
miss
both join anew, as does a peer with too few links. The circuit is a part of a node: it sends through
the node, handles its own messages, and `tick` is called once a second.
"""

from collections.abc import Callable
from typing import Any

from nearcast.model.subscription import NodeId
from nearcast.node import Message
from nearcast.protocols.bubblestorm.links import CircuitLinks, CircuitNode
from nearcast.protocols.bubblestorm.location import Location, LocationState
from nearcast.protocols.bubblestorm.messages import (
    PAST_ZERO,
    Adopt,
    Heartbeat,
    Insert,
    InsertAccepted,
    Join,
    JoinCompleted,
    Leave,
    LinkRejected,
    LocationRef,
    Number,
    Released,
    RepairWalk,
    Walk,
)
from nearcast.protocols.bubblestorm.parameters import JOINED, Parameters, tolerance, walk_length
from nearcast.space.motion import SECOND, Time


class Circuit(CircuitLinks):
    """The locations of one peer: joining, leaving, repair, and the wanted degree."""

    def __init__(self, node: CircuitNode, parameters: Parameters, desired: int) -> None:
        super().__init__(node)
        self.desired = desired
        self.leaving = False
        self._beat = round(parameters.beat_s * SECOND)
        self._dead = round(parameters.dead_s * SECOND)
        self._patience = round(parameters.patience_s * SECOND)
        self._last_heartbeat: Time = 0
        self._started = False
        self._alone_since: Time = 0  # since when there has been no location
        self._contacts: dict[Number, NodeId] = {}  # which contact was asked to join each
        self.handlers: dict[type[Message], Callable[[NodeId, Any], None]] = {
            Join: self._on_join,
            Walk: self._on_walk,
            Adopt: self._on_adopt,
            Insert: self._on_insert,
            InsertAccepted: self._on_insert_accepted,
            LinkRejected: self._on_link_rejected,
            JoinCompleted: self._on_join_completed,
            Leave: self._on_leave,
            Released: self._on_released,
            Heartbeat: self._on_heartbeat,
            RepairWalk: self._on_repair_walk,
        }

    # Read by the node.

    @property
    def joined(self) -> bool:
        return self.degree >= min(JOINED, self.desired)

    @property
    def gone(self) -> bool:
        """Have all locations left, or is there no other peer?"""
        return (
            self.leaving
            and all(end[0] == self._node.id for _, end in self.links)
            and all(location.is_in for location in self.locations.values())
        )

    # Called by the node.

    def create(self) -> None:
        """The first peer is a circuit by itself."""
        ring = [self._new(LocationState.SETTLED) for _ in range(self.desired // 2)]
        for location, after in zip(ring, [*ring[1:], ring[0]], strict=True):
            location.slave = self._end(after)
            after.master = self._end(location)
        self._links = None

    def leave(self) -> None:
        self.leaving = True
        for location in list(self.locations.values()):
            self._retire(location)

    def tick(self) -> None:
        """Check locations, send heartbeats, and adjust the degree; once a second."""
        now = self._node.now
        for location in list(self.locations.values()):
            self._check_location(location, now)
        if now - self._last_heartbeat >= self._beat:
            self._last_heartbeat = now
            for location in self.locations.values():
                self._send_heartbeats(location)
        if not self.leaving:
            self._give_up_own_ring()
            self._evaluate()
            if self.locations:
                self._alone_since = now
            elif now - self._alone_since > self._dead or not self._started:
                self.create()  # nobody else is there
        self._started = True

    def _drop(self, location: Location) -> None:
        super()._drop(location)
        self._contacts.pop(location.number, None)

    def _give_up_own_ring(self) -> None:
        """A peer that is a circuit by itself gives it up to join another; the lower id stays."""
        mine = [location for location in self.locations.values() if location.is_in]
        alone = mine and all(end[0] == self._node.id for _, end in self.links)
        if not alone or any(location.changing is not None for location in mine):
            return
        other = self._node.contact()
        if other is not None and other < self._node.id:
            for location in mine:
                self._drop(location)

    # Degree.

    def _evaluate(self) -> None:
        """Too few links: add a location. Too many: remove one."""
        coming = sum(not location.is_in for location in self.locations.values())
        going = sum(location.state == LocationState.LEAVING for location in self.locations.values())
        degree, slack = self.degree - 2 * going, tolerance(self.desired)
        lacking = self.desired - slack - degree - 2 * coming
        for _ in range(0, min(lacking, 2 * self.desired - len(self.locations)), 2):
            self._begin()
        if degree > self.desired + slack and not coming:
            settled = [one for one in self.locations.values() if one.state == LocationState.SETTLED]
            self._retire(settled[-1])

    # Joining: a walk to a random link, which is split.

    def _begin(self) -> None:
        # Walks from a random contact reunite parts of a broken circuit.
        contact = self._node.contact() if self._node.rng.random() < 0.5 or not self.degree else None
        if contact is not None:
            location = self._new(LocationState.JOINING)
            self._contacts[location.number] = contact
            self._node.post(contact, Join(self._end(location)))
        elif self.degree:
            self._walk(self._end(self._new(LocationState.JOINING)), self._length())

    def _length(self) -> int:
        return walk_length(self._node.known_network()[1].peers)

    def _on_join(self, sender: NodeId, message: Join) -> None:
        if message.end[0] != sender:
            return
        if not self.locations and not self.leaving and self._node.contact() is None:
            self.create()  # two peers that have lost all others
        self._walk(message.end, self._length())

    def _on_walk(self, sender: NodeId, message: Walk) -> None:
        if self.is_linked(message.location, sender):
            self._walk(message.end, message.hops)
        else:
            self._refuse(message.end)  # the link has been split or contracted since

    def _refuse(self, end: LocationRef) -> None:
        """The joiner will try again."""
        self._node.post(end[0], LinkRejected(end[1], (self._node.id, 0), True))

    def _walk(self, end: LocationRef, hops: int) -> None:
        settled = [location for location in self.locations.values() if location.is_in]
        while settled:
            if hops <= 0 and end[0] != self._node.id and self._split(end):
                return
            if hops <= -PAST_ZERO:
                self._refuse(end)
                return
            hops -= 1
            location = self._node.rng.choice(settled)
            link = location.master if self._node.rng.random() < 0.5 else location.slave
            if link is not None and link[0] != self._node.id:
                self._node.post(link[0], Walk(link[1], end, hops))
                return
        self._refuse(end)

    def _split(self, end: LocationRef) -> bool:
        able = [location for location in self.locations.values() if location.may_split]
        if not able or self.leaving:
            return False
        location = self._node.rng.choice(able)
        assert location.slave is not None
        location.change(end, None, self._node.now)
        round_, network = self._node.known_network()
        self._node.post(end[0], Adopt(end[1], self._end(location), location.slave, network, round_))
        return True

    def _on_adopt(self, sender: NodeId, message: Adopt) -> None:
        location = self.locations.get(message.location)
        if (
            location is None
            or location.state != LocationState.JOINING
            or message.master[0] != sender
        ):
            if message.master[0] == sender:
                self._node.post(
                    sender,
                    LinkRejected(message.master[1], (self._node.id, message.location), False),
                )
            return
        if not self.degree:
            self._node.learn_network(message.round, message.network)
        location.become(LocationState.LINKING, self._node.now)
        self._contacts.pop(location.number, None)
        location.master, location.slave = message.master, message.slave
        self._node.post(
            message.slave[0], Insert(message.slave[1], message.master, self._end(location))
        )

    def _on_insert(self, sender: NodeId, message: Insert) -> None:
        if message.after[0] != sender:
            return  # not from the peer that it speaks of
        location, me = self.locations.get(message.location), (self._node.id, message.location)
        if location is None or not location.is_in or location.master not in (
            None, message.before, message.after,
        ):  # fmt: skip
            self._node.post(sender, LinkRejected(message.after[1], me, False))
            return
        self._put(location, message.after, is_master=True)
        self._node.post(sender, InsertAccepted(message.after[1], me))
        if location.state == LocationState.LEAVING:
            self._ask_to_leave(location)  # the former master, which could not help, may be gone

    def _on_insert_accepted(self, sender: NodeId, message: InsertAccepted) -> None:
        location = self.locations.get(message.location)
        if location is None or message.end[0] != sender:
            return
        if location.state == LocationState.LINKING and location.slave == message.end:
            assert location.master is not None
            master, slave = location.master, location.slave
            location.become(LocationState.SETTLED, self._node.now)
            location.master = location.slave = None
            self._put(location, master, is_master=True)
            self._put(location, slave, is_master=False)
            self._node.post(master[0], JoinCompleted(master[1], self._end(location), slave))
            if self.leaving:
                self._retire(location)
        elif location.leaver is not None and location.changing == message.end:
            leaver = location.leaver
            self._put(location, message.end, is_master=False)
            location.stay()
            self._node.post(leaver[0], Released(leaver[1]))

    def _on_join_completed(self, sender: NodeId, message: JoinCompleted) -> None:
        location = self.locations.get(message.location)
        if message.end[0] != sender:
            return
        # A late message is valid if the link is as it was when the joiner got its place.
        late = location is not None and location.changing is None and location.is_in
        if location is not None and location.slave == message.slave and (
            late or location.changing == message.end
        ):  # fmt: skip
            self._put(location, message.end, is_master=False)
            location.stay()
        elif location is None or location.slave != message.end:
            self._node.post(
                sender, LinkRejected(message.end[1], (self._node.id, message.location), True)
            )

    # Leaving: the link to the master and the link to the slave become one.

    def _retire(self, location: Location) -> None:
        if location.state == LocationState.JOINING:
            self._drop(location)
        elif location.state == LocationState.SETTLED:
            location.become(LocationState.LEAVING, self._node.now)
            self._ask_to_leave(location)

    def _ask_to_leave(self, location: Location) -> None:
        if location.changing is not None:
            return  # the joiner behind it comes first
        location.sought = self._node.now
        me = self._end(location)
        if location.master is None:
            if location.slave is not None:
                self._node.post(location.slave[0], LinkRejected(location.slave[1], me, True))
            self._drop(location)
        elif location.master == me:
            self._drop(location)  # a circuit of one
        else:
            self._node.post(location.master[0], Leave(location.master[1], me, location.slave))

    def _on_leave(self, sender: NodeId, message: Leave) -> None:
        location = self.locations.get(message.location)
        if message.end[0] != sender:
            return
        if location is None or not location.is_in:
            self._node.post(
                sender, LinkRejected(message.end[1], (self._node.id, message.location), True)
            )
        elif location.slave != message.end:
            return  # the master has changed; the leaver will learn it
        elif location.state == LocationState.LEAVING or location.changing is not None:
            return  # one at a time; it will ask again
        elif message.slave is None:
            self._put(location, None, is_master=False)
            self._node.post(sender, Released(message.end[1]))
        else:
            location.change(message.slave, message.end, self._node.now)
            self._node.post(
                message.slave[0], Insert(message.slave[1], message.end, self._end(location))
            )

    def _on_released(self, sender: NodeId, message: Released) -> None:
        location = self.locations.get(message.location)
        if location is not None and location.state == LocationState.LEAVING and (
            location.master is None or location.master[0] == sender
        ):  # fmt: skip
            self._drop(location)

    # Looking after locations.

    def _check_location(self, location: Location, now: Time) -> None:
        stuck = now - location.since > self._patience
        if location.state == LocationState.JOINING:
            if now - location.since > 2 * self._patience:
                contact = self._contacts.get(location.number)
                if contact is not None:
                    self._node.suspect(contact)
                self._drop(location)
        elif location.state == LocationState.LINKING:
            if stuck:
                self._give_up(location)
        else:
            if location.changing is not None and now - location.changing_since > self._patience:
                location.stay()
            if location.master is not None and now - location.master_received > self._dead:
                self._put(location, None, is_master=True)
            if location.slave is not None and now - location.slave_received > self._dead:
                self._put(location, None, is_master=False)
                location.stay()
            self._repair(location, now)

    def _repair(self, location: Location, now: Time) -> None:
        if location.state == LocationState.LEAVING:
            self._ask_to_leave(location)
        elif location.master is None and location.slave is None:
            self._drop(location)  # `_evaluate` will start a new one
        elif now - location.sought > self._patience:
            location.sought = now
            if location.slave is None:
                self._pass_on_repair_walk(
                    location.number, self._end(location), True, self._length()
                )
            elif location.master is None:
                self._pass_on_repair_walk(
                    location.number, self._end(location), False, self._length()
                )

    def _give_up(self, location: Location) -> None:
        """Abandon a location that could not be linked."""
        if location.master is not None:
            master = location.master
            self._node.post(master[0], LinkRejected(master[1], self._end(location), False))
        location.master = location.slave = None
        self._drop(location)

    def _send_heartbeats(self, location: Location) -> None:
        me = self._end(location)
        if not location.is_in:
            return
        if location.slave is not None and location.changing is None:
            self._node.post(location.slave[0], Heartbeat(location.slave[1], me, True, self.degree))
        if location.master is not None:
            self._node.post(
                location.master[0], Heartbeat(location.master[1], me, False, self.degree)
            )

    def _on_heartbeat(self, sender: NodeId, message: Heartbeat) -> None:
        if message.end[0] != sender:
            return
        location, is_master = self.locations.get(message.location), message.master
        if location is None or not location.is_in:
            me = (self._node.id, message.location)
            self._node.post(sender, LinkRejected(message.end[1], me, not is_master))
            return
        known = location.master if is_master else location.slave
        if known is None and (is_master or location.changing is None):
            self._put(location, message.end, is_master=is_master)
        elif known != message.end:
            if is_master or location.changing is None:
                self._node.post(
                    sender, LinkRejected(message.end[1], self._end(location), not is_master)
                )
        elif is_master:
            location.master_received = self._node.now
        else:
            location.slave_received = self._node.now
        location.degree = message.degree

    def _on_link_rejected(self, sender: NodeId, message: LinkRejected) -> None:
        location = self.locations.get(message.location)
        if location is None or message.end[0] != sender:
            return
        if location.state == LocationState.JOINING:
            self._drop(location)  # its walk found no place
        elif location.state == LocationState.LINKING:
            if message.end == (location.master if message.master else location.slave):
                self._give_up(location)
        elif location.changing == message.end and not message.master:
            location.stay()
        elif message.master and location.master == message.end:
            self._put(location, None, is_master=True)
        elif not message.master and location.slave == message.end and location.changing is None:
            self._put(location, None, is_master=False)

    # Repair: a location without slave and one without master search each other.

    def _on_repair_walk(self, sender: NodeId, message: RepairWalk) -> None:
        if self.is_linked(message.location, sender):
            self._pass_on_repair_walk(message.location, message.end, message.slave, message.hops)

    def _pass_on_repair_walk(
        self, came: Number, end: LocationRef, for_slave: bool, hops: int
    ) -> None:
        """Link the missing half if it is here; else forward the walk."""
        for location in self.locations.values():
            missing = location.master if for_slave else location.slave
            free = missing is None and location.state == LocationState.SETTLED
            # A link of a peer to itself would not help.
            if free and location.changing is None and end[0] != self._node.id:
                self._put(location, end, is_master=for_slave)
                me = self._end(location)
                self._node.post(end[0], Heartbeat(end[1], me, not for_slave, self.degree))
                return
        links = [link for link in self.links if link[1][0] != self._node.id and link[0] != came]
        if links and hops > 0:
            link = self._node.rng.choice(links)[1]
            self._node.post(link[0], RepairWalk(link[1], end, for_slave, hops - 1))
