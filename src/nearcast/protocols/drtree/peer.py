"""A node of the DR-tree overlay: its subscriptions, its members in the tree, its publications.

Every member is one box in the tree. With areas=merged a node has one member, whose box covers all
of its subscriptions; with areas=split it has a member for each group of areas that touch. Whichever
member a publication reaches, the node delivers it once, for all matching subscriptions. A node
without subscriptions is outside the tree and publishes through a member that it knows.
"""

from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from msgspec.structs import replace

from nearcast.model.commands import Command, Leave, Publish
from nearcast.model.interests import ActiveInterests
from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId, SubscriptionId
from nearcast.node import Message, Node, Timer
from nearcast.protocols.dedup import DeliveredPublications, publication_key
from nearcast.protocols.drtree.boxes import Box, box_of_publication, is_valid_box
from nearcast.protocols.drtree.contacts import MemberContacts
from nearcast.protocols.drtree.interests import MemberInterests, group_touching
from nearcast.protocols.drtree.member import Member
from nearcast.protocols.drtree.messages import (
    SLOTS,
    Address,
    ChildState,
    Dissolve,
    Join,
    Merge,
    NotMyChild,
    ParentState,
    Ping,
    Pong,
    PublicationMessage,
    PublishDown,
    PublishForOutsider,
    PublishToBrother,
    PublishUp,
    RemoveChild,
    TakeOver,
)
from nearcast.protocols.drtree.parameters import Parameters
from nearcast.protocols.drtree.placement import on_ping, on_pong
from nearcast.protocols.drtree.stabilisation import (
    check_member,
    on_child_state,
    on_not_my_child,
    on_parent_state,
    on_remove_child,
)
from nearcast.protocols.drtree.strategies import (
    DOWNWARD,
    LOCAL,
    STRATEGIES,
    UPWARD,
    Direction,
    TreeEvent,
    route_event,
)
from nearcast.protocols.drtree.tree import (
    leave_tree,
    on_dissolve,
    on_join,
    on_merge,
    on_take_over,
    request_join,
    resize_leaf,
)
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import Vector

MILLISECOND: Time = 1_000
MAX_LOCAL_MESSAGES = 1_000  # between members of one node for one input; more go round in circles

HANDLERS: dict[type[Message], Callable[[Member, Any], None]] = {
    Join: on_join,
    ParentState: on_parent_state,
    ChildState: on_child_state,
    NotMyChild: on_not_my_child,
    RemoveChild: on_remove_child,
    TakeOver: on_take_over,
    Dissolve: on_dissolve,
    Merge: on_merge,
    Ping: on_ping,
    Pong: on_pong,
}
# Boxes in a message, which must be of the tree's dimensions.
BOXES: dict[type[Message], Callable[[Any], list[Box]]] = {
    Join: lambda m: [m.child.box],
    ParentState: lambda m: [m.box, *[entry.box for entry in m.brothers]],
    ChildState: lambda m: [m.child.box],
    TakeOver: lambda m: [entry.box for entries in m.chain for entry in entries],
    Merge: lambda m: [entry.box for entry in m.children],
}


class CheckMembers(Timer, frozen=True):
    """The periodic check of all members."""


class JoinTree(Timer, frozen=True):
    """It is a member's turn to join the tree."""

    slot: int


class FinishLeaving(Timer, frozen=True):
    """All others know that this node has left, so it can stop."""


class RefreshBoxes(Timer, frozen=True):
    """Areas that move will soon leave their boxes, so boxes are computed again."""


class DRTreePeer(Node):
    """One participant. It hosts the members that stand for its subscriptions in the tree."""

    def __init__(
        self, node_id: NodeId, rng: Random, parameters: Parameters, contacts: MemberContacts
    ) -> None:
        super().__init__(node_id, rng)
        self.parameters = parameters
        self.contacts = contacts
        self.dimensions = parameters.names
        self.strategy = STRATEGIES[parameters.strategy]
        self.period = round(parameters.check_ms * MILLISECOND)
        self.horizon = round(parameters.horizon_ms * MILLISECOND)
        self.members: dict[int, Member] = {}
        self.interests = MemberInterests()
        self.active = ActiveInterests()
        self.delivered = DeliveredPublications()
        self.recent_publishers: dict[NodeId, tuple[Time, Vector]] = {}
        self.checking = False
        self.level: int | None = None
        self._local: deque[tuple[int, Message]] = deque()

    @property
    def ready(self) -> bool:
        return all(member.settled or member.gone for member in self.members.values())

    def known(self, now: Time) -> Iterable[tuple[NodeId, Vector]]:
        """The publishers of the last seconds, and where they published."""
        memory = round(self.parameters.memory_s * SECOND)
        return [
            (other, where)
            for other, (t, where) in self.recent_publishers.items()
            if now - t <= memory and other != self.id
        ]

    # Doors.

    def on_command(self, command: Command) -> None:
        match command:
            case Publish():
                self._publish(command.stamped(self.id, self.now))
            case Leave():
                self.interests.end_all(self.now)
                for member in self.members.values():
                    self._leave(member)
                # Until then, messages that were sent before others knew are forwarded.
                self.out.set_timer(FinishLeaving(), self.period // 5)
            case _:
                why = self.active.apply(command, self.id, self.now)
                if why is None:
                    self._change(command.subscription)
                else:
                    self.out.note(why, command.subscription)
        self._step()

    def on_message(self, sender: NodeId, message: Message) -> None:
        if self.parameters.note_levels and isinstance(message, PublicationMessage):
            leaves, arrives = message.levels(self.level or 0)
            if self.parameters.strategy == "ancestors" and isinstance(message, PublishUp):
                leaves = 0  # links to ancestors begin at leaves
            self.step(message.publication, leaves, arrives)
        if type(message) is PublishDown:
            self._down(sender, message)
        else:
            self._receive_for_member(sender, message)
        if self._local:
            self._step()

    def on_timer(self, timer: Timer) -> None:
        match timer:
            case CheckMembers():
                self._check()
            case FinishLeaving():
                self.out.stop()
            case JoinTree(slot) if slot in self.members:
                member = self.members[slot]
                if member.parent is None and not member.in_tree and not member.gone:
                    request_join(member)
            case RefreshBoxes():
                self.interests.forget(self.now - self.horizon)
                self._regroup()
                for slot in dict.fromkeys([*self.interests.slots(), *self.members]):
                    self._cover(slot)
        self._step()

    def _receive_for_member(self, sender: NodeId, message: Any) -> None:
        member, kind = self.members.get(message.slot), type(message)
        handle = HANDLERS.get(kind)
        if member is None:
            self.out.note("ignored", sender)
        elif handle is None:
            route_event(member, self._event_of(message), self.strategy)
        elif kind in BOXES and not all(
            is_valid_box(box, len(self.dimensions)) for box in BOXES[kind](message)
        ):
            self.out.note("refused", sender)
        else:
            handle(member, message)
            if member.gone:
                leave_tree(member)

    def _down(self, sender: NodeId, message: PublishDown) -> None:
        """The fast path: most messages are these, and most of them end at a leaf."""
        member = self.members.get(message.slot)
        publication, hops, level = message.publication, message.hops, message.level
        if member is None:
            self.out.note("ignored", sender)
        elif level == 0 and len(member.levels) == 1:
            self.deliver(publication, hops)
        else:
            box = box_of_publication(publication, self.dimensions)
            route_event(member, TreeEvent(publication, box, hops, DOWNWARD, level), self.strategy)

    def _step(self) -> None:
        """Messages between members of this node, which do not go over the network."""
        for _ in range(MAX_LOCAL_MESSAGES):
            if not self._local:
                return
            slot, message = self._local.popleft()
            self._receive_for_member(self.id, replace(message, slot=slot))
        self._local.clear()
        self.out.note("ignored", self.id)

    # Publications.

    def _publish(self, publication: Publication) -> None:
        event = TreeEvent(publication, box_of_publication(publication, self.dimensions), 0, LOCAL)
        for member in self.members.values():
            if (member.parent is not None or member.in_tree) and not member.gone:
                route_event(member, event, self.strategy)
                return
        self.deliver(publication, 0)  # outside the tree, nobody else delivers it here
        contact = self.contacts.any(self.rng, self.id * SLOTS)
        if contact is not None:
            self.send(contact, PublishForOutsider(publication, 1))

    def _event_of(self, message: PublicationMessage) -> TreeEvent:
        publication, hops = message.publication, message.hops
        box = box_of_publication(publication, self.dimensions)
        if isinstance(message, PublishUp):
            return TreeEvent(publication, box, hops, UPWARD, message.level + 1, message.child)
        if isinstance(message, PublishDown | PublishToBrother):
            return TreeEvent(publication, box, hops, DOWNWARD, message.level)
        outside = isinstance(message, PublishForOutsider)
        return TreeEvent(publication, box, hops, LOCAL if outside else Direction.TO_ROOT)

    def deliver(self, publication: Publication, hops: int) -> None:
        wanting = self.interests.wanting(publication)
        if wanting and self.delivered.is_new(publication_key(publication), self.now):
            self.out.deliver(publication, tuple(wanting), hops)
            shape = publication.shape
            self.recent_publishers[publication.node] = (self.now, (shape.x, shape.y, shape.z))

    # Members and their boxes.

    def _change(self, number: SubscriptionId) -> None:
        """A subscription has begun, changed or ended; so do the boxes of its members."""
        subscription = self.active.current.get(number)
        if subscription is None:
            for slot in dict.fromkeys(self.interests.end(number, self.now)):
                self._cover(slot)
            return
        slots = self.interests.put(subscription, self.dimensions, self.now)
        for changed in dict.fromkeys([*self._regroup(), *slots]):
            self._cover(changed)

    def _regroup(self) -> list[int]:
        """Areas that touch get one member, if not all have one; returns the slots that changed.

        Large groups keep the slot that they have: moving between members costs messages.
        """
        if self.parameters.areas == "merged":
            return []
        before, changed = self.interests.present(), []
        areas = self.interests.areas(self.dimensions, self.now, self.now + self.horizon)
        taken = dict.fromkeys([*self.interests.slots(), *self.members])
        given: dict[int, None] = {}
        for group in sorted(group_touching(areas), key=len, reverse=True):
            slot = next((before[r] for r in group if before[r] not in given), None)
            if slot is None:
                slot = next((s for s in range(SLOTS) if s not in taken), SLOTS - 1)
            given[slot] = taken[slot] = None
            for rectangle in group:
                if before[rectangle] != slot:
                    self.interests.give(rectangle, slot, self.now)
                    changed += [slot, before[rectangle]]
        return changed

    def _cover(self, slot: int) -> None:
        """Give a member the box of its subscriptions from now to the horizon, or let it leave."""
        begin, end = self.now - self.horizon // 2, self.now + self.horizon
        box = self.interests.box(slot, self.dimensions, max(begin, 0), end)
        member = self.members.get(slot)
        if box is None:
            if member is not None and not member.gone:
                self._leave(member)
        elif member is not None and not member.gone:
            resize_leaf(member, box)
        else:
            member = self.members[slot] = Member(self.id * SLOTS + slot, box, self)
            self.out.set_timer(JoinTree(slot), self.contacts.join_delay(self.now))
            if not self.checking:
                self.checking = True
                self.out.set_timer(CheckMembers(), self.rng.randrange(self.period) + 1)
        if self.interests.box_changes(slot):
            self.out.set_timer(RefreshBoxes(), self.horizon // 2)

    def _leave(self, member: Member) -> None:
        self.contacts.remove(member.address)
        leave_tree(member)

    def _check(self) -> None:
        for slot, member in list(self.members.items()):
            if member.gone:
                if not member.changed:  # at its second check: nobody writes to it any more
                    del self.members[slot]
                member.changed = False
                continue
            check_member(member)
            member.served.forget(self.now)
            member.served_again.forget(self.now)
            if member.parent is not None or member.in_tree:
                self.contacts.add(member.address)
            self._note_parent(member)
        self._note_level()
        if self.recent_publishers:
            horizon = self.now - round(self.parameters.memory_s * SECOND)
            self.recent_publishers = {
                node: seen for node, seen in self.recent_publishers.items() if seen[0] >= horizon
            }
        self.checking = bool(self.members)
        if self.checking:
            self.out.set_timer(CheckMembers(), self.period)

    # Links are noted in the trace at checks. Between two checks, at one moment, much may change and
    # change back, and notes of one moment have no order.

    def _note_parent(self, member: Member) -> None:
        if member.parent == member.noted_parent:
            return
        if member.noted_parent is not None:
            self.note("unlinked", member.noted_parent)
        if member.parent is not None:
            self.note("linked", member.parent)
        member.noted_parent = member.parent

    def _note_level(self) -> None:
        """The highest level that this node owns."""
        level = max([member.top for member in self.members.values()], default=0)
        if level != self.level:
            self.level = level
            self.out.note("level", None, float(level))

    # What members call (`PeerCallbacks`).

    def send(self, to: Address, message: Message) -> None:
        node, slot = divmod(to, SLOTS)
        if node == self.id:
            self._local.append((slot, message))
        else:
            self.out.send(node, replace(message, slot=slot) if slot else message)

    def send_all(self, to: list[Address], message: Message) -> None:
        nodes = [address // SLOTS for address in to if not address % SLOTS]
        if len(nodes) == len(to) > 1 and self.id not in nodes:
            self.out.send_many(nodes, message)
        else:
            for address in to:
                self.send(address, message)

    def carry(self, to: Address, message: PublicationMessage) -> None:
        """Send a publication on. Between members of one node that is no hop."""
        if to // SLOTS == self.id:
            message = replace(message, hops=message.hops - 1)
        self.send(to, message)

    def carry_all(self, to: list[Address], message: PublicationMessage) -> None:
        near = [address for address in to if address // SLOTS == self.id]
        for address in near:
            self.carry(address, message)
        self.send_all([address for address in to if address not in near] if near else to, message)

    def note(self, fact: str, about: Address, value: float | None = None) -> None:
        self.out.note(fact, about // SLOTS, value)

    def step(self, publication: Publication, leaves: int, arrives: int) -> None:
        """A publication has gone from a node of the tree to the next, of one peer or of two."""
        if self.parameters.note_levels:
            self.out.note("leaves", publication.id, float(leaves))
            self.out.note("arrives", publication.id, float(arrives))

    def contact(self, member: Member) -> Address | None:
        return self.contacts.any(self.rng, member.address)

    def suspect(self, contact: Address) -> None:
        self.contacts.remove(contact)

    def entered_tree(self, member: Member) -> None:
        if not member.gone:
            self.contacts.add(member.address)
