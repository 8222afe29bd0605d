"""The publishing strategies, one function each (seed 000, V.B).

"A local event is an event that has been published by the node itself, an upward event is an event
that a node has received from one of its children, and a downward event is an event that a node has
received from its father." A member may own several nodes of the tree; what goes from one of them to
the next costs no message. Within its chain, an event from below is served to the children of all
nodes above; an event from above, to those of all nodes below. Such a step is told to the trace like
any other (`step`), so that a reader may count nodes instead of peers.
"""

from collections.abc import Callable
from enum import Enum, auto
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from nearcast.model.publication import Publication
from nearcast.protocols.drtree.boxes import touch, touching
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
from nearcast.space.rtree import BoxBounds


class Direction(Enum):
    LOCAL = auto()
    UPWARD = auto()
    DOWNWARD = auto()
    TO_ROOT = auto()


class TreeEvent(Struct, frozen=True):
    """A publication that has reached a member, after so many messages.

    `level` is the node that it has reached: 0 for a local event, the father of `child` for an
    upward one.
    """

    publication: Publication
    box: BoxBounds
    hops: int
    way: Direction
    level: int = 0
    child: Address | None = None


def double_wave(member: Member, news: TreeEvent) -> None:
    """Local and upward events: to interested children and the father. Downward: to children."""
    send_to_children(member, news)
    if news.way is not Direction.DOWNWARD:
        send_to_parent(member, news)


def brothers_wave(member: Member, news: TreeEvent) -> None:
    """Local and upward events: to interested brothers too. The father need not serve them again,
    and where the father is the root, it has nobody else to serve.
    """
    send_to_children(member, news, brothers_served=True)
    if news.way is not Direction.DOWNWARD:
        father = None if member.parent_is_root else member.parent
        send_to_brothers(member, news, besides=father)
        if father is not None:
            send_to_parent(member, news)


def root_link(member: Member, news: TreeEvent) -> None:
    """Local events: to the root, which sends them down. So the publisher hears itself last."""
    if news.way is Direction.DOWNWARD:
        send_to_children(member, news)
    elif member.is_root:
        send_from_root(member, news)
    else:
        # Whoever is no longer the root passes it to its father, who knows better.
        root, _ = root_of(member)
        knows = news.way is Direction.LOCAL and root != member.address
        send_to_root(member, news, root if knows else member.parent)


def ancestors_wave(member: Member, news: TreeEvent) -> None:
    """Local events: to interested children and all ancestors at once. Others: to children.

    Whoever has a new father tells it, since those below may not know it yet.
    """
    send_to_children(member, news, from_leaf=True)
    if news.way is not Direction.DOWNWARD and member.lately(member.parent_since):
        send_to_parent(member, news)
    if news.way is Direction.LOCAL:
        child = member.address
        for ancestor, level in member.above:
            send_up(member, news, ancestor, child, level - 1)
            child = ancestor


def by_root(member: Member, news: TreeEvent) -> None:
    """By father links up to the root, and from there down: what the simulations of 2007 used."""
    if news.way is Direction.DOWNWARD:
        send_to_children(member, news)
    elif member.is_root:
        send_from_root(member, news)
    else:
        send_to_root(member, news, member.parent)


Strategy: TypeAlias = Callable[[Member, TreeEvent], None]
STRATEGIES: dict[str, Strategy] = {
    "double-wave": double_wave,
    "brothers": brothers_wave,
    "root-link": root_link,
    "ancestors": ancestors_wave,
    "by-root": by_root,
}


def route_event(member: Member, news: TreeEvent, strategy: Strategy) -> None:
    """What has come to a member goes its way, or to whoever owns the node that is meant now."""
    if news.level <= member.top:
        strategy(member, news)
        return
    owner = member.successor
    if owner is None or news.hops >= MAX_HOPS:
        return
    if news.child is not None:
        send_up(member, news, owner, news.child, news.level - 1)
    else:
        member.host.carry([owner], PublishDown(news.publication, news.hops + 1, news.level))


# What the strategies are made of.


def send_to_children(
    member: Member, news: TreeEvent, *, brothers_served: bool = False, from_leaf: bool = False
) -> None:
    """To the interested children of all nodes that I own on the event's way, once.

    `brothers_served`: a node below serves its brothers itself, so the father need not, and a root
    need not even know. `from_leaf`: each of my nodes has it from the publisher's leaf.
    """
    served = member.passed.get(news.publication.id)
    if served is None:
        served = member.passed_before.get(news.publication.id, -1)
    if news.way is Direction.DOWNWARD:
        if served < news.level:
            member.passed[news.publication.id] = min(news.level, member.top)
            descend_own_nodes(member, news, news.level)
        return
    member.passed[news.publication.id] = member.top
    first = max(news.level, 1)
    for level in range(max(first, served + 1), member.top + 1):
        rises, is_root = level > news.level, level == member.top and member.is_root
        if rises and not (brothers_served and is_root):
            member.host.step(news.publication, 0 if from_leaf else level - 1, level)
        lately = brothers_served and not rises
        send_to_children_of(member, news, level, lately=lately, sideways=brothers_served and rises)
    if served < max(first - 1, 0):
        # From below, the own nodes further down may be interested like any other child.
        if news.way is Direction.LOCAL:
            member.host.deliver(news.publication, news.hops)
        elif first <= member.top and touch(member.levels[first - 1].box, news.box):
            member.host.step(news.publication, first - brothers_served, first - 1)
            descend_own_nodes(member, news, first - 1)


def send_from_root(member: Member, news: TreeEvent) -> None:
    if news.way is Direction.LOCAL and member.top:
        member.host.step(news.publication, 0, member.top)
    send_to_children(member, replace(news, way=Direction.DOWNWARD, level=member.top))


def descend_own_nodes(member: Member, news: TreeEvent, level: int) -> None:
    """Downward through the own nodes from that level on, as far as they are interested."""
    for k in range(min(level, member.top), 0, -1):
        send_to_children_of(member, news, k)
        if not touch(member.levels[k - 1].box, news.box):
            return
        member.host.step(news.publication, k, k - 1)
    member.host.deliver(news.publication, news.hops)


def send_to_children_of(
    member: Member, news: TreeEvent, level: int, *, lately: bool = False, sideways: bool = False
) -> None:
    """To the interested children of one node, but not to myself nor where it came from.

    `lately`: only to those of whom their brothers may not have heard yet. `sideways`: from my own
    node among them, as from a brother.
    """
    children = member.levels[level].children
    found = touching(children.items(), news.box)
    if lately:
        found = [address for address in found if member.lately(children[address].changed)]
    came_from = news.child if level == news.level else None
    for not_to in (member.address, came_from):
        if not_to in found:
            found.remove(not_to)
    if found:
        kind = PublishToBrother if sideways else PublishDown
        member.host.carry(found, kind(news.publication, news.hops + 1, level - 1))
    for shoot in member.offshoots:
        if shoot.served_at == level and touch(shoot.box, news.box):
            down = PublishDown(news.publication, news.hops + 1, shoot.level)
            member.host.carry([shoot.address], down)


def send_to_parent(member: Member, news: TreeEvent) -> None:
    if member.parent is not None:
        send_up(member, news, member.parent, member.address, member.top)


def send_to_brothers(member: Member, news: TreeEvent, besides: Address | None) -> None:
    found = [
        address
        for address, box in member.brothers.items()
        if address != besides and touch(box, news.box)
    ]
    if found:
        member.host.carry(found, PublishToBrother(news.publication, news.hops + 1, member.top))


def send_up(member: Member, news: TreeEvent, to: Address, child: Address, level: int) -> None:
    member.host.carry([to], PublishUp(news.publication, news.hops + 1, child, level))


def send_to_root(member: Member, news: TreeEvent, to: Address | None) -> None:
    if to is not None and news.hops < MAX_HOPS:
        member.host.carry([to], PublishToRoot(news.publication, news.hops + 1))
