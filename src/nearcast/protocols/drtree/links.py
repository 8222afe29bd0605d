"""The links that the paper adds to the tree ([DRtree] V.A), kept up to date by parents.

Brothers know each other and their boxes; everybody knows the root; or everybody knows all of its
ancestors. Each costs messages whenever the tree changes, so only what the strategy uses is kept.
"""

from nearcast.protocols.drtree.member import Member
from nearcast.protocols.drtree.messages import Address, NodeEntry, ParentState

BROTHERS, ROOT, ANCESTORS = "brothers", "root", "ancestors"
LINKS_OF_STRATEGY: dict[str, str | None] = {
    "double-wave": None,
    "brothers": BROTHERS,
    "root-link": ROOT,
    "ancestors": ANCESTORS,
    "by-root": None,
}


def parent_state(member: Member, level: int, *, adopted: bool = False) -> ParentState:
    """The report of a node's owner to the node's children."""
    node, kept = member.levels[level], LINKS_OF_STRATEGY[member.peer.parameters.strategy]
    above: tuple[tuple[Address, int], ...] = ()
    brothers: tuple[NodeEntry, ...] = ()
    if kept == ANCESTORS:
        above = ((member.address, level), *member.above)
    elif kept == ROOT:
        above = (root_of(member),)
    if kept == BROTHERS or member.peer.parameters.promotes == "latency":
        brothers = tuple(NodeEntry(a, c.box, c.count) for a, c in node.children.items())
    is_root = level == member.top and member.is_root
    return ParentState(member.address, level, node.box, is_root, adopted, above, brothers)


def root_of(member: Member) -> tuple[Address, int]:
    """The root as far as this member knows, and a level of it."""
    return member.above[-1] if member.above else (member.address, member.top)


def update_children(member: Member, level: int) -> None:
    children = member.other_children(level)
    if children:
        member.peer.send_all(children, parent_state(member, level))


def update_ancestor_links(member: Member) -> None:
    """The member's ancestors have changed: report that to children, if they keep links."""
    if LINKS_OF_STRATEGY[member.peer.parameters.strategy] is not None:
        for level in range(1, member.top + 1):
            update_children(member, level)


def update_brother_links(member: Member, lowest: int, highest: int) -> None:
    """The children of these nodes have changed: report that to them, if they keep brother links."""
    if LINKS_OF_STRATEGY[member.peer.parameters.strategy] == BROTHERS:
        for level in range(max(lowest, 1), highest + 1):
            update_children(member, level)
