"""What must be true of a DR-tree: at every moment, and when nothing is under way.

At every moment (`ConsistentChains`), each member's own chain of nodes fits together. Leaves are
therefore all at one level: the owner of a node owns one of its children, down to a leaf.

When nothing is under way, the tree is in its legal state ([DRtree] IV): one root; parent and child
agree on each other, on level and box; nodes have between `least` and `most` children and the root
at least two; boxes are exact; every owner is the child of largest coverage, unless `promotes` says
otherwise; the added links are correct. A tree that is being joined, left or repaired is not legal
for a while.
"""

from collections.abc import Iterator, Mapping

from nearcast.model.subscription import NodeId
from nearcast.node import Node
from nearcast.protocols.drtree.links import ANCESTORS, BROTHERS, LINKS_OF_STRATEGY, ROOT
from nearcast.protocols.drtree.member import Member
from nearcast.protocols.drtree.messages import Address
from nearcast.protocols.drtree.parameters import Parameters
from nearcast.protocols.drtree.peer import DRTreePeer
from nearcast.protocols.overlay import Invariant
from nearcast.space.boxes import union
from nearcast.space.motion import Time
from nearcast.space.rtree import volume


def find_violations(members: Mapping[Address, Member], parameters: Parameters) -> list[str]:
    """What is not legal, a sentence each; none in the legal state."""
    roots = [member for member in members.values() if member.is_root]
    found = [] if len(roots) == 1 or not members else [f"there are {len(roots)} roots"]
    for member in members.values():
        for level in range(1, member.top + 1):
            found += check_node(members, member, level, parameters)
        if member.parent is not None:
            found += check_parent(members, member)
        found += check_links(members, member, parameters)
    return found


def check_node(
    members: Mapping[Address, Member], owner: Member, level: int, parameters: Parameters
) -> list[str]:
    name = f"node {level} of {owner.address}"
    node, found = owner.levels[level], []
    is_root = owner.is_root and level == owner.top
    least = 2 if is_root else parameters.least
    if not least <= len(node.children) <= parameters.most:
        found.append(f"{name} has {len(node.children)} children")
    if owner.address not in node.children:
        return [*found, f"{name} lacks its owner's own node"]
    for address, child in node.children.items():
        known = members.get(address)
        if known is None:
            found.append(f"{name} lists {address}, who is not there")
        elif known is not owner and (known.top != level - 1 or known.parent != owner.address):
            found.append(f"{name} lists {address}, who is not its child")
        elif known.levels[level - 1].box != child.box:
            found.append(f"{name} has a wrong box for {address}")
        elif len(known.levels[level - 1].children) != child.count:
            found.append(f"{name} has a wrong count for {address}")
    if node.box != union([child.box for child in node.children.values()]):
        found.append(f"{name} has a box that is not its children's")
    sizes = {address: volume(child.box) for address, child in node.children.items()}
    if parameters.promotes == "coverage" and sizes[owner.address] < max(sizes.values()):
        found.append(f"{name} is not owned by its largest child")
    if parameters.promotes == "address" and min(node.children) < owner.address:
        found.append(f"{name} is not owned by its child of least address")
    return found


def check_parent(members: Mapping[Address, Member], member: Member) -> list[str]:
    parent = members.get(member.parent) if member.parent is not None else None
    if parent is None:
        return [f"{member.address} has a parent {member.parent} who is not there"]
    level = member.top + 1
    if level > parent.top or member.address not in parent.levels[level].children:
        return [f"{member.address} is no child of its parent {parent.address}"]
    return []


def ancestors_of(members: Mapping[Address, Member], member: Member) -> list[tuple[Address, int]]:
    """The ancestors above a member's own chain, each with its lowest level on the way."""
    above: list[tuple[Address, int]] = []
    while member.parent is not None and member.parent in members and len(above) < 64:
        above.append((member.parent, member.top + 1))
        member = members[member.parent]
    return above


def check_links(
    members: Mapping[Address, Member], member: Member, parameters: Parameters
) -> list[str]:
    kept, name = LINKS_OF_STRATEGY[parameters.strategy], member.address
    above = ancestors_of(members, member)
    if kept == ANCESTORS and list(member.above) != above:
        return [f"{name} does not know its ancestors"]
    if kept == ROOT and [a for a, _ in member.above] != [a for a, _ in above[-1:]]:
        return [f"{name} does not know the root"]
    if kept != BROTHERS or not above:
        return []
    parent = members[above[0][0]]
    if member.top + 1 > parent.top:
        return []  # told as a wrong parent already
    node = parent.levels[member.top + 1]
    brothers = {a: child.box for a, child in node.children.items() if a != name}
    if member.brothers != brothers:
        return [f"{name} does not know its brothers"]
    if member.parent_is_root != (parent.is_root and member.top + 1 == parent.top):
        return [f"{name} does not know whether its parent is the root"]
    return []


def members_of(nodes: Mapping[NodeId, Node]) -> dict[Address, Member]:
    """All members of all peers, by address."""
    peers = [node for node in nodes.values() if isinstance(node, DRTreePeer)]
    return {member.address: member for peer in peers for member in peer.members.values()}


class ConsistentChains:
    """Every member is a child in each of its own nodes, and boxes are those of the children."""

    def violations(self, nodes: Mapping[NodeId, Node], now: Time) -> list[str]:  # noqa: ARG002
        return [wrong for member in members_of(nodes).values() for wrong in check_chain(member)]


def check_chain(member: Member) -> Iterator[str]:
    for level in range(1, member.top + 1):
        node, below = member.levels[level], member.levels[level - 1]
        own = node.children.get(member.address)
        if own is None:
            yield f"node {level} of {member.address} lacks its owner's own node"
        elif own.box != below.box:
            yield f"node {level} of {member.address} has a wrong box for its owner's own node"
        if node.box != union([child.box for child in node.children.values()]):
            yield f"node {level} of {member.address} has a box that is not its children's"


def invariants(*, calm: bool) -> list[Invariant]:
    """Interests that move change the tree all the time, so the legal state is not asked for."""
    del calm
    return [ConsistentChains()]
