"""The random multigraph and its Eulerian circuit (seed 002, 2.2; BubbleStorm's topology).

A peer has half as many locations as it wants links; all locations of all peers stand on one closed
walk, each with a master before it and a slave after it, and these are the links. A joiner is put on
a random link (the link is split), a leaver's neighbours join hands (it is contracted): both leave
everybody else's degree as it was, and the graph as random as it was. Links of a peer to itself and
several between two are legal.

A crash tears the walk. Locations that miss one side look for each other (`Seek`); those that miss
both join anew, as does whoever has too few links. A part of a node: it shares the node's way to
send, is handed the messages that are its own, and is woken by `tick`.
"""

from collections.abc import Callable
from typing import Any

from nearcast.model.subscription import NodeId
from nearcast.node import Message
from nearcast.protocols.bubblestorm.links import Host, Links
from nearcast.protocols.bubblestorm.location import Location, State
from nearcast.protocols.bubblestorm.messages import (
    PAST_ZERO,
    Adopt,
    Beat,
    End,
    Insert,
    Join,
    Leave,
    No,
    Number,
    Released,
    Seek,
    Settled,
    Walk,
    Yes,
)
from nearcast.protocols.bubblestorm.parameters import JOINED, Parameters, tolerance, walk_length
from nearcast.space.motion import SECOND, Time


class Circuit(Links):
    def __init__(self, host: Host, parameters: Parameters, desired: int) -> None:
        super().__init__(host)
        self.desired = desired
        self.leaving = False
        self._beat = round(parameters.beat_s * SECOND)
        self._dead = round(parameters.dead_s * SECOND)
        self._patience = round(parameters.patience_s * SECOND)
        self._beaten: Time = 0
        self._started = False
        self._lonely: Time = 0  # since when nobody was there to ask
        self._contacts: dict[Number, NodeId] = {}  # who was asked for a location
        self.listeners: dict[type[Message], Callable[[NodeId, Any], None]] = {
            Join: self._on_join,
            Walk: self._on_walk,
            Adopt: self._on_adopt,
            Insert: self._on_insert,
            Yes: self._on_yes,
            No: self._on_no,
            Settled: self._on_settled,
            Leave: self._on_leave,
            Released: self._on_released,
            Beat: self._on_beat,
            Seek: self._on_seek,
        }

    # What its node sees.

    @property
    def joined(self) -> bool:
        return self.degree >= min(JOINED, self.desired)

    @property
    def gone(self) -> bool:
        """Has it left, or is nobody else there to say goodbye to?"""
        return (
            self.leaving
            and all(end[0] == self._host.id for _, end in self.ways)
            and all(location.is_in for location in self.locations.values())
        )

    # What its node does.

    def create(self) -> None:
        """The first peer is a ring by itself."""
        ring = [self._new(State.SETTLED) for _ in range(self.desired // 2)]
        for location, after in zip(ring, [*ring[1:], ring[0]], strict=True):
            location.slave = self._end(after)
            after.master = self._end(location)
        self._ways = None

    def leave(self) -> None:
        self.leaving = True
        for location in list(self.locations.values()):
            self._retire(location)

    def tick(self) -> None:
        now = self._host.now
        for location in list(self.locations.values()):
            self._look_after(location, now)
        if now - self._beaten >= self._beat:
            self._beaten = now
            for location in self.locations.values():
                self._say_beat(location)
        if not self.leaving:
            self._look_for_others()
            self._evaluate()
            if self.locations:
                self._lonely = now
            elif now - self._lonely > self._dead or not self._started:
                self.create()  # nobody else is there
        self._started = True

    def _drop(self, location: Location) -> None:
        super()._drop(location)
        self._contacts.pop(location.number, None)

    def _look_for_others(self) -> None:
        """Whoever is a ring by itself gives it up for that of another; the lower number stays."""
        mine = [location for location in self.locations.values() if location.is_in]
        alone = mine and all(end[0] == self._host.id for _, end in self.ways)
        if not alone or any(location.changing is not None for location in mine):
            return
        other = self._host.contact()
        if other is not None and other < self._host.id:
            for location in mine:
                self._drop(location)

    # Degree.

    def _evaluate(self) -> None:
        """Too few links: another location; too many: one less."""
        coming = sum(not location.is_in for location in self.locations.values())
        going = sum(location.state == State.LEAVING for location in self.locations.values())
        degree, slack = self.degree - 2 * going, tolerance(self.desired)
        lacking = self.desired - slack - degree - 2 * coming
        for _ in range(0, min(lacking, 2 * self.desired - len(self.locations)), 2):
            self._begin()
        if degree > self.desired + slack and not coming:
            settled = [one for one in self.locations.values() if one.state == State.SETTLED]
            self._retire(settled[-1])

    # Joining: a walk to a random link, which is split.

    def _begin(self) -> None:
        # Walks that begin anywhere reunite what has fallen apart.
        contact = self._host.contact() if self._host.rng.random() < 0.5 or not self.degree else None
        if contact is not None:
            location = self._new(State.JOINING)
            self._contacts[location.number] = contact
            self._host.post(contact, Join(self._end(location)))
        elif self.degree:
            self._walk(self._end(self._new(State.JOINING)), self._length())

    def _length(self) -> int:
        return walk_length(self._host.known_network()[1].peers)

    def _on_join(self, sender: NodeId, message: Join) -> None:
        if message.end[0] != sender:
            return
        if not self.locations and not self.leaving and self._host.contact() is None:
            self.create()  # two who have lost everybody else
        self._walk(message.end, self._length())

    def _on_walk(self, sender: NodeId, message: Walk) -> None:
        if self.is_linked(message.location, sender):
            self._walk(message.end, message.hops)
        else:
            self._refuse(message.end)  # the link has been split or contracted meanwhile

    def _refuse(self, end: End) -> None:
        """The joiner will try again."""
        self._host.post(end[0], No(end[1], (self._host.id, 0), True))

    def _walk(self, end: End, hops: int) -> None:
        settled = [location for location in self.locations.values() if location.is_in]
        while settled:
            if hops <= 0 and end[0] != self._host.id and self._split(end):
                return
            if hops <= -PAST_ZERO:
                self._refuse(end)
                return
            hops -= 1
            location = self._host.rng.choice(settled)
            way = location.master if self._host.rng.random() < 0.5 else location.slave
            if way is not None and way[0] != self._host.id:
                self._host.post(way[0], Walk(way[1], end, hops))
                return
        self._refuse(end)

    def _split(self, end: End) -> bool:
        able = [location for location in self.locations.values() if location.may_split]
        if not able or self.leaving:
            return False
        location = self._host.rng.choice(able)
        assert location.slave is not None
        location.change(end, None, self._host.now)
        round_, census = self._host.known_network()
        self._host.post(end[0], Adopt(end[1], self._end(location), location.slave, census, round_))
        return True

    def _on_adopt(self, sender: NodeId, message: Adopt) -> None:
        location = self.locations.get(message.location)
        if location is None or location.state != State.JOINING or message.master[0] != sender:
            if message.master[0] == sender:
                self._host.post(
                    sender, No(message.master[1], (self._host.id, message.location), False)
                )
            return
        if not self.degree:
            self._host.learn_network(message.round, message.census)
        location.become(State.LINKING, self._host.now)
        self._contacts.pop(location.number, None)
        location.master, location.slave = message.master, message.slave
        self._host.post(
            message.slave[0], Insert(message.slave[1], message.master, self._end(location))
        )

    def _on_insert(self, sender: NodeId, message: Insert) -> None:
        if message.after[0] != sender:
            return  # nobody speaks for another
        location, me = self.locations.get(message.location), (self._host.id, message.location)
        if location is None or not location.is_in or location.master not in (
            None, message.before, message.after,
        ):  # fmt: skip
            self._host.post(sender, No(message.after[1], me, False))
            return
        self._put(location, message.after, is_master=True)
        self._host.post(sender, Yes(message.after[1], me))
        if location.state == State.LEAVING:
            self._ask_to_leave(location)  # whoever could not help before may be gone

    def _on_yes(self, sender: NodeId, message: Yes) -> None:
        location = self.locations.get(message.location)
        if location is None or message.end[0] != sender:
            return
        if location.state == State.LINKING and location.slave == message.end:
            assert location.master is not None
            master, slave = location.master, location.slave
            location.become(State.SETTLED, self._host.now)
            location.master = location.slave = None
            self._put(location, master, is_master=True)
            self._put(location, slave, is_master=False)
            self._host.post(master[0], Settled(master[1], self._end(location), slave))
            if self.leaving:
                self._retire(location)
        elif location.leaver is not None and location.changing == message.end:
            leaver = location.leaver
            self._put(location, message.end, is_master=False)
            location.stay()
            self._host.post(leaver[0], Released(leaver[1]))

    def _on_settled(self, sender: NodeId, message: Settled) -> None:
        location = self.locations.get(message.location)
        if message.end[0] != sender:
            return
        # A late word counts if the link is still as it was when the joiner was put on it.
        late = location is not None and location.changing is None and location.is_in
        if location is not None and location.slave == message.slave and (
            late or location.changing == message.end
        ):  # fmt: skip
            self._put(location, message.end, is_master=False)
            location.stay()
        elif location is None or location.slave != message.end:
            self._host.post(sender, No(message.end[1], (self._host.id, message.location), True))

    # Leaving: the link to the master and the link to the slave become one.

    def _retire(self, location: Location) -> None:
        if location.state == State.JOINING:
            self._drop(location)
        elif location.state == State.SETTLED:
            location.become(State.LEAVING, self._host.now)
            self._ask_to_leave(location)

    def _ask_to_leave(self, location: Location) -> None:
        if location.changing is not None:
            return  # first the joiner behind it
        location.sought = self._host.now
        me = self._end(location)
        if location.master is None:
            if location.slave is not None:
                self._host.post(location.slave[0], No(location.slave[1], me, True))
            self._drop(location)
        elif location.master == me:
            self._drop(location)  # a circuit of one
        else:
            self._host.post(location.master[0], Leave(location.master[1], me, location.slave))

    def _on_leave(self, sender: NodeId, message: Leave) -> None:
        location = self.locations.get(message.location)
        if message.end[0] != sender:
            return
        if location is None or not location.is_in:
            self._host.post(sender, No(message.end[1], (self._host.id, message.location), True))
        elif location.slave != message.end:
            return  # the master has changed, and the leaver will hear of it
        elif location.state == State.LEAVING or location.changing is not None:
            return  # one after the other; it will ask again
        elif message.slave is None:
            self._put(location, None, is_master=False)
            self._host.post(sender, Released(message.end[1]))
        else:
            location.change(message.slave, message.end, self._host.now)
            self._host.post(
                message.slave[0], Insert(message.slave[1], message.end, self._end(location))
            )

    def _on_released(self, sender: NodeId, message: Released) -> None:
        location = self.locations.get(message.location)
        if location is not None and location.state == State.LEAVING and (
            location.master is None or location.master[0] == sender
        ):  # fmt: skip
            self._drop(location)

    # Looking after locations.

    def _look_after(self, location: Location, now: Time) -> None:
        stuck = now - location.since > self._patience
        if location.state == State.JOINING:
            if now - location.since > 2 * self._patience:
                contact = self._contacts.get(location.number)
                if contact is not None:
                    self._host.suspect(contact)
                self._drop(location)
        elif location.state == State.LINKING:
            if stuck:
                self._give_up(location)
        else:
            if location.changing is not None and now - location.changing_since > self._patience:
                location.stay()
            if location.master is not None and now - location.heard_master > self._dead:
                self._put(location, None, is_master=True)
            if location.slave is not None and now - location.heard_slave > self._dead:
                self._put(location, None, is_master=False)
                location.stay()
            self._mend(location, now)

    def _mend(self, location: Location, now: Time) -> None:
        if location.state == State.LEAVING:
            self._ask_to_leave(location)
        elif location.master is None and location.slave is None:
            self._drop(location)  # the degree will ask for a new one
        elif now - location.sought > self._patience:
            location.sought = now
            if location.slave is None:
                self._seek(location.number, self._end(location), True, self._length())
            elif location.master is None:
                self._seek(location.number, self._end(location), False, self._length())

    def _give_up(self, location: Location) -> None:
        """A place that came to nothing."""
        if location.master is not None:
            master = location.master
            self._host.post(master[0], No(master[1], self._end(location), False))
        location.master = location.slave = None
        self._drop(location)

    def _say_beat(self, location: Location) -> None:
        me = self._end(location)
        if not location.is_in:
            return
        if location.slave is not None and location.changing is None:
            self._host.post(location.slave[0], Beat(location.slave[1], me, True, self.degree))
        if location.master is not None:
            self._host.post(location.master[0], Beat(location.master[1], me, False, self.degree))

    def _on_beat(self, sender: NodeId, message: Beat) -> None:
        if message.end[0] != sender:
            return
        location, is_master = self.locations.get(message.location), message.master
        if location is None or not location.is_in:
            me = (self._host.id, message.location)
            self._host.post(sender, No(message.end[1], me, not is_master))
            return
        known = location.master if is_master else location.slave
        if known is None and (is_master or location.changing is None):
            self._put(location, message.end, is_master=is_master)
        elif known != message.end:
            if is_master or location.changing is None:
                self._host.post(sender, No(message.end[1], self._end(location), not is_master))
        elif is_master:
            location.heard_master = self._host.now
        else:
            location.heard_slave = self._host.now
        location.degree = message.degree

    def _on_no(self, sender: NodeId, message: No) -> None:
        location = self.locations.get(message.location)
        if location is None or message.end[0] != sender:
            return
        if location.state == State.JOINING:
            self._drop(location)  # its walk found no place
        elif location.state == State.LINKING:
            if message.end == (location.master if message.master else location.slave):
                self._give_up(location)
        elif location.changing == message.end and not message.master:
            location.stay()
        elif message.master and location.master == message.end:
            self._put(location, None, is_master=True)
        elif not message.master and location.slave == message.end and location.changing is None:
            self._put(location, None, is_master=False)

    # Mending: a location without slave and one without master are looking for each other.

    def _on_seek(self, sender: NodeId, message: Seek) -> None:
        if self.is_linked(message.location, sender):
            self._seek(message.location, message.end, message.slave, message.hops)

    def _seek(self, came: Number, end: End, for_slave: bool, hops: int) -> None:
        """Is the other half here? Else somewhere else."""
        for location in self.locations.values():
            missing = location.master if for_slave else location.slave
            free = missing is None and location.state == State.SETTLED
            # A link to itself would be no use to anybody.
            if free and location.changing is None and end[0] != self._host.id:
                self._put(location, end, is_master=for_slave)
                me = self._end(location)
                self._host.post(end[0], Beat(end[1], me, not for_slave, self.degree))
                return
        ways = [way for way in self.ways if way[1][0] != self._host.id and way[0] != came]
        if ways and hops > 0:
            way = self._host.rng.choice(ways)[1]
            self._host.post(way[0], Seek(way[1], end, for_slave, hops - 1))
