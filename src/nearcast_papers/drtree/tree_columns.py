"""A DR-tree at rest, as columns: read from simulated peers, or grown without messages.

A tree of a million peers would take the simulator hours and more memory than a machine has, since
each peer joins by messages and checks its neighbours. `grow_tree` puts one box after the other into
Guttman's R-tree with the decisions that the overlay's members share with it (`space.rtree`: the
child of least enlargement, the split), and gives each node the owner that the overlay's rule gives
it. Nobody joins while another does.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from nearcast.matching.rtree import Tree, TreeNode
from nearcast.model.subscription import NodeId
from nearcast.protocols.drtree.member import Member
from nearcast.protocols.drtree.messages import SLOTS, Address
from nearcast.protocols.drtree.parameters import Parameters
from nearcast.space.boxes import BoxBounds
from nearcast.space.rtree import volume

Place = TypeVar("Place")
NO_NODE = -1


class TreeColumns(NamedTuple):
    """The nodes of a tree: the root first, level by level, the leaves last."""

    level: NDArray[np.int64]  # 0: a leaf
    parent: NDArray[np.int64]  # the number of the node above; NO_NODE above the root
    owner: NDArray[np.int64]  # a peer
    low: NDArray[np.float64]  # of its box, a column for each dimension
    high: NDArray[np.float64]


def read_tree(members: Mapping[Address, Member]) -> TreeColumns:
    """The tree of these members, which is in its legal state; one member for each peer."""
    roots = [member for member in members.values() if member.is_root]
    if len(roots) != 1 or any(address % SLOTS for address in members):
        raise ValueError("there must be one tree, in which each peer has one member")

    def children(place: tuple[Address, int]) -> list[tuple[Address, int]]:
        address, level = place
        return [(child, level - 1) for child in members[address].levels[level].children]

    places, parent = level_order((roots[0].address, roots[0].top), children)
    boxes = [members[address].levels[level].box for address, level in places]
    owner = [address // SLOTS for address, _ in places]
    return in_columns([level for _, level in places], parent, owner, boxes)


def grow_tree(boxes: Mapping[NodeId, BoxBounds], parameters: Parameters) -> TreeColumns:
    """A tree of peers with these boxes, which come one after the other."""
    if parameters.promotes == "latency":
        raise ValueError("who owns a node by latency is measured, so only a simulated tree has it")
    tree = Tree(parameters.least, parameters.most, parameters.split)
    for peer, box in boxes.items():
        tree.insert(peer, box)
    root = tree.root if len(boxes) > 1 else tree.root.children[0]
    nodes, parent = level_order(root, lambda node: node.children)
    owner = owners(nodes, parent, by_address=parameters.promotes == "address")
    return in_columns([node.level for node in nodes], parent, owner, [node.box for node in nodes])


def owners(nodes: Sequence[TreeNode], parent: Sequence[int], *, by_address: bool) -> list[NodeId]:
    """A leaf's peer owns it; the owner of the largest child owns a node, of equals the first."""
    found = [node.subscription for node in nodes]
    best: list[tuple[list[float], NodeId] | None] = [None] * len(nodes)
    for number in range(len(nodes) - 1, 0, -1):  # children before their parents
        above, peer = parent[number], found[number]
        rank = [] if by_address else [-part for part in volume(nodes[number].box)]
        known = best[above]
        if known is None or (rank, peer) < known:
            best[above] = rank, peer
            found[above] = peer
    return found


def level_order(
    root: Place, children: Callable[[Place], Sequence[Place]]
) -> tuple[list[Place], list[int]]:
    """All places from the root down, and the number of the one above each."""
    places, parent = [root], [NO_NODE]
    for number, place in enumerate(places):  # it grows meanwhile
        below = children(place)
        places += below
        parent += [number] * len(below)
    return places, parent


def in_columns(
    level: Sequence[int],
    parent: Sequence[int],
    owner: Sequence[NodeId],
    boxes: Sequence[BoxBounds],
) -> TreeColumns:
    return TreeColumns(
        np.array(level, np.int64),
        np.array(parent, np.int64),
        np.array(owner, np.int64),
        np.array([box.low for box in boxes], np.float64),
        np.array([box.high for box in boxes], np.float64),
    )


class TreeCut(NamedTuple):
    """A tree cut into parts below a level: each part has some neighbouring subtrees."""

    level: int  # of the lowest nodes at the top
    parts: int
    part: NDArray[np.int64]  # of each node below the cut; of others it means nothing
    home: NDArray[np.int64]  # of each peer its part; TOP: it owns a node above the cut
    at_top: NDArray[np.bool_]  # the nodes that whoever owns one above the cut must know


TOP = -1
SUBTREES = 4  # in each part at least, so that parts have about as many peers


def cut_tree(tree: TreeColumns, parts: int) -> TreeCut:
    """Cut it at the highest level at which each part can have some subtrees."""
    height = int(tree.level[0])
    widths = np.bincount(tree.level, minlength=height + 1)
    wide = np.flatnonzero(widths >= SUBTREES * parts)
    cut = max(1, int(wide[-1]) if len(wide) else 0)
    leaves = (tree.level == 0).astype(np.int64)
    part = np.zeros(len(tree.level), np.int64)
    for level in range(1, min(cut, height) + 1):
        below = np.flatnonzero(tree.level == level - 1)
        np.add.at(leaves, tree.parent[below], leaves[below])
    subtrees = np.flatnonzero(tree.level == cut)
    before = np.cumsum(leaves[subtrees]) - leaves[subtrees]
    part[subtrees] = before * parts // max(1, int(leaves[subtrees].sum()))
    for level in range(cut - 1, -1, -1):
        here = np.flatnonzero(tree.level == level)
        if level < height:
            part[here] = part[tree.parent[here]]
    peers = int(widths[0])
    tops = np.zeros(peers, np.int64)
    np.maximum.at(tops, tree.owner, tree.level)
    home = np.empty(peers, np.int64)
    bottom = np.flatnonzero(tree.level == 0)
    home[tree.owner[bottom]] = part[bottom]
    home[tops >= cut] = TOP
    owned = (tree.level >= cut) | (home[tree.owner] == TOP)
    return TreeCut(cut, parts, part, home, owned | owned[tree.parent])
