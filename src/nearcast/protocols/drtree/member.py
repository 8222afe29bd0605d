"""One leaf of the tree and the nodes above it that its owner holds ([DRtree] IV.B).

A member owns a contiguous chain of nodes, from its leaf (level 0) upwards, so in every node that it
owns, the node below is a child of its own. Its parent is the owner of the node above the chain. A
member without parent is a root: a newcomer and an orphan are roots of small trees that look for
the large one. So joining, repair and reunion are the same operation.
"""

from random import Random
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from nearcast.model.publication import Publication
from nearcast.node import Message
from nearcast.protocols.dedup import DUPLICATE_WINDOW, PublicationStates
from nearcast.protocols.drtree.messages import (
    MAX_FORWARDS,
    Address,
    ChildState,
    NodeEntry,
    PublicationMessage,
)
from nearcast.space.boxes import BoxBounds, union
from nearcast.space.motion import Time

NEVER: Time = -(2**62)


class PeerCallbacks(Protocol):
    """What a member calls on the peer that hosts it."""

    parameters: Any
    rng: Random
    now: Time
    period: Time  # of the checks

    def send(self, to: Address, message: Message) -> None: ...
    def send_all(self, to: list[Address], message: Message) -> None: ...
    def note(self, fact: str, about: Address, value: float | None = None) -> None: ...
    def deliver(self, publication: Publication, hops: int) -> None: ...
    def contact(self, member: "Member") -> Address | None: ...
    def suspect(self, contact: Address) -> None: ...
    def entered_tree(self, member: "Member") -> None: ...
    def carry(self, to: Address, message: PublicationMessage) -> None: ...
    def carry_all(self, to: list[Address], message: PublicationMessage) -> None: ...
    def step(self, publication: Publication, leaves: int, arrives: int) -> None: ...


class ChildRecord:
    """A child as its parent knows it."""

    __slots__ = ("box", "brother_latency", "changed", "count", "last_received")

    def __init__(self, box: BoxBounds, count: int, last_received: Time) -> None:
        self.box = box
        self.count = count  # of its own children
        self.last_received = self.changed = last_received
        self.brother_latency: Time | None = None  # its mean round trip to its brothers, as it says


class OwnedNode:
    """A node of the tree; its children are nodes of the level below, by their owners."""

    __slots__ = ("box", "children")

    def __init__(self, box: BoxBounds, children: dict[Address, ChildRecord]) -> None:
        self.box = box
        self.children = children


class DetachedNode(NamedTuple):
    """A node split off from one of mine, which others may still reach only through me."""

    served_at: int  # level of my node that serves it, until then
    until: Time
    address: Address
    level: int
    box: BoxBounds


class Member:
    """A leaf of the tree, with the chain of nodes above it that the same peer owns."""

    # More than 30 attributes in a dictionary take a table of their own for each member.
    __slots__ = (
        "above", "address", "adoption_box", "asked_at", "brother_latency", "brothers", "changed",
        "confirmed", "contact", "denied", "detached_nodes", "displaced", "former", "gone",
        "handed_over", "heir", "in_tree", "join_attempts", "last_received", "levels", "moved_at",
        "moving", "noted_parent", "parent", "parent_box", "parent_is_root", "parent_since", "peer",
        "reported_box", "resized", "round_trips", "served", "served_again", "settled",
    )  # fmt: skip

    def __init__(self, address: Address, box: BoxBounds, peer: PeerCallbacks) -> None:
        self.address = address
        self.peer = peer
        self.levels = [OwnedNode(box, {})]
        # The parent, what it last sent of itself, and what was last sent to it.
        self.parent: Address | None = None
        self.noted_parent: Address | None = None  # the parent that the trace knows
        self.parent_box: BoxBounds | None = None
        self.parent_is_root = False
        self.last_received: Time = 0
        self.parent_since: Time = NEVER
        self.confirmed = False  # has it called me its child since I took it for my parent?
        self.denied = False  # has it denied that?
        self.former: Address | None = None  # whom the parent may still know in my place
        self.reported_box: BoxBounds | None = None
        # A root that is in no tree looks for one to join.
        self.in_tree = False
        self.contact: Address | None = None
        self.join_attempts = 0
        self.asked_at: Time = 0
        # A leaf whose area changes: was it resized since the last check, must it move in the tree,
        # has it asked for that; and its parent's box when it was adopted.
        self.resized = self.displaced = self.moving = False
        self.adoption_box: BoxBounds | None = None
        self.moved_at: Time = NEVER
        # Added links (V.A): ancestors above the chain, each with its lowest level on my path (the
        # last one is the root); and the brothers of the uppermost node.
        self.above: tuple[tuple[Address, int], ...] = ()
        self.brothers: dict[Address, BoxBounds] = {}
        # Round trips to brothers and children: how many, and their mean (promotes=latency).
        self.round_trips: dict[Address, tuple[int, Time]] = {}
        self.brother_latency: Time | None = None  # the mean to all brothers
        self.detached_nodes: list[DetachedNode] = []
        self.heir: Address | None = None  # to whom I have handed over recently
        self.handed_over: Time = NEVER
        self.gone = False  # it has left, and forwards what still comes
        self.changed = True  # since the last check
        self.settled = False  # nothing changed between the last two checks
        self.served: PublicationStates[int] = PublicationStates(DUPLICATE_WINDOW)  # highest level
        self.served_again: PublicationStates[bool] = PublicationStates(DUPLICATE_WINDOW)

    @property
    def top(self) -> int:
        return len(self.levels) - 1

    @property
    def is_root(self) -> bool:
        return self.parent is None

    def entry(self, level: int) -> NodeEntry:
        node = self.levels[level]
        return NodeEntry(self.address, node.box, len(node.children))

    def other_children(self, level: int) -> list[Address]:
        """The children of that node which belong to somebody else."""
        mine = self.address
        return [address for address in self.levels[level].children if address != mine]

    def own_entry(self, level: int) -> ChildRecord:
        """My own node below that one, as its child. Whatever has happened, I am one."""
        children = self.levels[level].children
        child = children.get(self.address)
        if child is None:
            below = self.levels[level - 1]
            child = children[self.address] = ChildRecord(
                below.box, len(below.children), self.peer.now
            )
            self.mark_changed()
        return child

    def mark_changed(self) -> None:
        self.changed = True
        self.settled = False

    def set_parent(self, parent: Address | None) -> None:
        self.last_received = self.peer.now
        self.denied = False
        if parent == self.parent:
            return
        if parent is not None:
            self.join_attempts = 0
        self.parent, self.parent_box, self.parent_is_root = parent, None, False
        self.parent_since, self.confirmed, self.reported_box = self.peer.now, False, None
        self.brothers, self.brother_latency = {}, None
        self.mark_changed()

    def add_level(self, node: OwnedNode) -> None:
        """Own one more node above the others; it has me for a child."""
        below = self.levels[-1]
        node.children[self.address] = ChildRecord(below.box, len(below.children), self.peer.now)
        node.box = union([child.box for child in node.children.values()])
        self.levels.append(node)
        self.mark_changed()

    def drop_levels(self, level: int) -> None:
        """Own nothing from that level on."""
        del self.levels[level:]
        self.mark_changed()

    def refit(self, level: int) -> int:
        """Boxes are exact again up the own chain after a change among the children of a node, and
        the parent hears of it (CHECK_MBR, at once). Returns the highest node that has changed.
        """
        highest = max(level, 1)
        for k in range(highest, len(self.levels)):
            node, below, own = self.levels[k], self.levels[k - 1], self.own_entry(k)
            if own.box == below.box and k > highest:
                own.count = len(below.children)
                break
            if own.box != below.box:
                own.box, own.changed = below.box, self.peer.now
            own.count = len(below.children)
            node.box = union([child.box for child in node.children.values()])
            highest = k
        self.mark_changed()
        if self.parent is not None and self.levels[-1].box != self.reported_box:
            self.report_to_parent()
        return highest

    def is_recent(self, t: Time) -> bool:
        """Within the last period, so that others may not know of it yet?"""
        return self.peer.now - t <= self.peer.period

    def keep_serving(self, served_at: int, address: Address, level: int, box: BoxBounds) -> None:
        """For a period, what comes to my node goes to that one too."""
        until = self.peer.now + self.peer.period
        self.detached_nodes.append(DetachedNode(served_at, until, address, level, box))

    @property
    def successor(self) -> Address | None:
        """Who owns the nodes above mine that I may have had: the heir if it was lately, and else my
        parent, since whoever hands a node over becomes a child of the heir.
        """
        return self.heir if self.is_recent(self.handed_over) else self.parent

    def forward(self, message: Message, hops: int) -> bool:
        """A message for a node above mine."""
        to = self.successor
        if to is None or hops >= MAX_FORWARDS:
            self.peer.note("ignored", self.address)
            return False
        self.peer.send(to, replace(message, hops=hops + 1, slot=0))
        return True

    def report_to_parent(self) -> None:
        assert self.parent is not None
        entry = self.entry(self.top)
        self.reported_box = self.levels[-1].box
        self.peer.send(
            self.parent,
            ChildState(self.top, entry, self.former, brother_latency=self.brother_latency),
        )
