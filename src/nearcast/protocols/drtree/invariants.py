"""The legal state: what must be true of all members together when nothing is under way.

One root; father and child agree on each other, on level and box; nodes have between `least` and
`most` children and the root at least two; boxes are exact; every owner is the child of largest
coverage, unless something else decides that; added links are true (seed 000, IV).
Leaves are at one level by construction: whoever owns a node owns one of its children, down to a
leaf.
"""

from collections.abc import Mapping

from nearcast.protocols.drtree.boxes import enclosing_box
from nearcast.protocols.drtree.links import ANCESTORS, BROTHERS, LINKS_OF_STRATEGY, ROOT
from nearcast.protocols.drtree.member import Member
from nearcast.protocols.drtree.messages import Address
from nearcast.protocols.drtree.parameters import Parameters
from nearcast.space.rtree import volume


def find_violations(members: Mapping[Address, Member], parameters: Parameters) -> list[str]:
    """What is not as it should be, one sentence each; none in the legal state."""
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
    if node.box != enclosing_box([child.box for child in node.children.values()]):
        found.append(f"{name} has a box that is not its children's")
    sizes = {address: volume(child.box) for address, child in node.children.items()}
    if parameters.promotes == "coverage" and sizes[owner.address] < max(sizes.values()):
        found.append(f"{name} is not owned by its largest child")
    if parameters.promotes == "address" and min(node.children) < owner.address:
        found.append(f"{name} is not owned by its child of least address")
    return found


def check_parent(members: Mapping[Address, Member], member: Member) -> list[str]:
    father = members.get(member.parent) if member.parent is not None else None
    if father is None:
        return [f"{member.address} has a father {member.parent} who is not there"]
    level = member.top + 1
    if level > father.top or member.address not in father.levels[level].children:
        return [f"{member.address} is no child of its father {father.address}"]
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
    father = members[above[0][0]]
    if member.top + 1 > father.top:
        return []  # told as a wrong father already
    node = father.levels[member.top + 1]
    brothers = {a: child.box for a, child in node.children.items() if a != name}
    if member.brothers != brothers:
        return [f"{name} does not know its brothers"]
    if member.parent_is_root != (father.is_root and member.top + 1 == father.top):
        return [f"{name} does not know whether its father is the root"]
    return []
