"""The publishing strategies, one function each ([DRtree] V.B).

"A local event is an event that has been published by the node itself, an upward event is an event
that a node has received from one of its children, and a downward event is an event that a node has
received from its father." A member may own several nodes of the tree; what goes from one of them to
the next costs no message. Within its chain, an event from below is served to the children of all
nodes above; an event from above, to those of all nodes below. The trace notes such a step like any
other (`step`), so that a reader can count tree nodes instead of peers.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from nearcast.model.publication import Publication
from nearcast.protocols.drtree.boxes import Box, touching
from nearcast.protocols.drtree.links import root_of
from nearcast.protocols.drtree.member import Member
from nearcast.protocols.drtree.messages import (
    MAX_HOPS,
    Address,
    PublishDown,
    PublishToBrother,
    PublishToRoot,
    PublishUp,
)
from nearcast.space.boxes import overlaps


class Direction(Enum):
    """From where an event has reached a member."""

    LOCAL = auto()
    UPWARD = auto()
    DOWNWARD = auto()
    TO_ROOT = auto()


# Asked at every hop, and ten times as fast as through the class.
LOCAL, UPWARD, DOWNWARD = Direction.LOCAL, Direction.UPWARD, Direction.DOWNWARD


class TreeEvent(Struct, frozen=True, gc=False):
    """A publication that has reached a member, after so many messages.

    `level` is the node that it has reached: 0 for a local event, the parent of `child` for an
    upward one.
    """

    publication: Publication
    box: Box
    hops: int
    direction: Direction
    level: int = 0
    child: Address | None = None


def double_wave(member: Member, event: TreeEvent) -> None:
    """Local and upward events: to interested children and the parent. Downward: to children."""
    send_to_children(member, event)
    if event.direction is not DOWNWARD:
        send_to_parent(member, event)


def brothers_wave(member: Member, event: TreeEvent) -> None:
    """Local and upward events: to interested brothers too. The parent need not serve them again,
    and where the parent is the root, it has nobody else to serve.
    """
    send_to_children(member, event, brothers_served=True)
    if event.direction is not DOWNWARD:
        parent = None if member.parent_is_root else member.parent
        send_to_brothers(member, event, besides=parent)
        if parent is not None:
            send_to_parent(member, event)


def root_link(member: Member, event: TreeEvent) -> None:
    """Local events: to the root, which sends them down. So the publisher receives its own last."""
    if event.direction is DOWNWARD:
        send_to_children(member, event)
    elif member.is_root:
        send_from_root(member, event)
    else:
        # Whoever is no longer the root passes it to its parent, who knows better.
        root, _ = root_of(member)
        knows = event.direction is LOCAL and root != member.address
        send_to_root(member, event, root if knows else member.parent)


def ancestors_wave(member: Member, event: TreeEvent) -> None:
    """Local events: to interested children and all ancestors at once. Others: to children.

    Whoever has a new parent tells it, since those below may not know it yet.
    """
    send_to_children(member, event, from_leaf=True)
    if event.direction is not DOWNWARD and member.is_recent(member.parent_since):
        send_to_parent(member, event)
    if event.direction is LOCAL:
        child = member.address
        for ancestor, level in member.above:
            send_up(member, event, ancestor, child, level - 1)
            child = ancestor


def by_root(member: Member, event: TreeEvent) -> None:
    """By parent links up to the root, and from there down: what the simulations of 2007 used."""
    if event.direction is DOWNWARD:
        send_to_children(member, event)
    elif member.is_root:
        send_from_root(member, event)
    else:
        send_to_root(member, event, member.parent)


Strategy: TypeAlias = Callable[[Member, TreeEvent], None]
STRATEGIES: dict[str, Strategy] = {
    "double-wave": double_wave,
    "brothers": brothers_wave,
    "root-link": root_link,
    "ancestors": ancestors_wave,
    "by-root": by_root,
}


def route_event(member: Member, event: TreeEvent, strategy: Strategy) -> None:
    """Handle an event at this member, or forward it to the present owner of the node it is for."""
    if event.level < len(member.levels):
        strategy(member, event)
        return
    owner = member.successor
    if owner is None or event.hops >= MAX_HOPS:
        return
    if event.child is not None:
        send_up(member, event, owner, event.child, event.level - 1)
    else:
        member.peer.carry(owner, PublishDown(event.publication, event.hops + 1, event.level))


# What the strategies are made of.


def send_to_children(
    member: Member, event: TreeEvent, *, brothers_served: bool = False, from_leaf: bool = False
) -> None:
    """To the interested children of all nodes that I own on the event's way, once.

    `brothers_served`: a node below serves its brothers itself, so the parent need not, and a root
    need not even know. `from_leaf`: each of my nodes has it from the publisher's leaf.
    """
    number, reached, top = event.publication.id, event.level, len(member.levels) - 1
    served = member.served.get(number)
    served = -1 if served is None else served
    if event.direction is DOWNWARD:
        if served < reached:
            member.served.put(number, min(reached, top))
            descend_own_nodes(member, event, reached)
        else:
            serve_recent_children(member, event)
        return
    member.served.put(number, top)
    first = reached or 1
    for level in range(max(first, served + 1), top + 1):
        rises = level > reached
        if rises and not (brothers_served and level == top and member.is_root):
            member.peer.step(event.publication, 0 if from_leaf else level - 1, level)
        recent_only, sideways = brothers_served and not rises, brothers_served and rises
        send_to_children_of(member, event, level, recent_only=recent_only, sideways=sideways)
    if served < first - 1:
        # From below, the own nodes further down may be interested like any other child.
        if event.direction is LOCAL:
            member.peer.deliver(event.publication, event.hops)
        elif first <= top and overlaps(member.levels[first - 1].box, event.box):
            member.peer.step(event.publication, first - brothers_served, first - 1)
            descend_own_nodes(member, event, first - 1)


def serve_recent_children(member: Member, event: TreeEvent) -> None:
    """A second copy has come, by a way that has changed: perhaps in place of children that came to
    me after the first one. They get it, once."""
    if member.served_again.get(event.publication.id) is None:
        member.served_again.put(event.publication.id, True)
        for level in range(1, min(event.level, member.top) + 1):
            send_to_children_of(member, event, level, recent_only=True)


def send_from_root(member: Member, event: TreeEvent) -> None:
    if event.direction is LOCAL and member.top:
        member.peer.step(event.publication, 0, member.top)
    send_to_children(member, replace(event, direction=Direction.DOWNWARD, level=member.top))


def descend_own_nodes(member: Member, event: TreeEvent, level: int) -> None:
    """Downward through the own nodes from that level on, as far as they are interested."""
    levels = member.levels
    for k in range(min(level, len(levels) - 1), 0, -1):
        send_to_children_of(member, event, k)
        if not overlaps(levels[k - 1].box, event.box):
            return
        member.peer.step(event.publication, k, k - 1)
    member.peer.deliver(event.publication, event.hops)


def send_to_children_of(
    member: Member,
    event: TreeEvent,
    level: int,
    *,
    recent_only: bool = False,
    sideways: bool = False,
) -> None:
    """To the interested children of one node, but not to myself nor where it came from.

    `recent_only`: only to those that their brothers may not know yet. `sideways`: from my own
    node among them, as from a brother.
    """
    children = member.levels[level].children
    found = touching(children.items(), event.box)
    if recent_only:
        found = [address for address in found if member.is_recent(children[address].changed)]
    if member.address in found:
        found.remove(member.address)
    if event.child in found and level == event.level:
        found.remove(event.child)
    if found:
        kind = PublishToBrother if sideways else PublishDown
        member.peer.carry_all(found, kind(event.publication, event.hops + 1, level - 1))
    for detached in member.detached_nodes:
        if detached.served_at == level and overlaps(detached.box, event.box):
            down = PublishDown(event.publication, event.hops + 1, detached.level)
            member.peer.carry(detached.address, down)


def send_to_parent(member: Member, event: TreeEvent) -> None:
    if member.parent is not None:
        send_up(member, event, member.parent, member.address, member.top)


def send_to_brothers(member: Member, event: TreeEvent, besides: Address | None) -> None:
    found = [
        address
        for address, box in member.brothers.items()
        if address != besides and overlaps(box, event.box)
    ]
    if found:
        sideways = PublishToBrother(event.publication, event.hops + 1, member.top)
        member.peer.carry_all(found, sideways)


def send_up(member: Member, event: TreeEvent, to: Address, child: Address, level: int) -> None:
    member.peer.carry(to, PublishUp(event.publication, event.hops + 1, child, level))


def send_to_root(member: Member, event: TreeEvent, to: Address | None) -> None:
    if to is not None and event.hops < MAX_HOPS:
        member.peer.carry(to, PublishToRoot(event.publication, event.hops + 1))
