"""The parts of a tree as files, and the peers of a part as the overlay's own nodes.

A part has the peers of some neighbouring subtrees. Who owns a node above the cut is in no part:
every task knows all of these, and lets them act in place of the part that it simulates. A peer is
made when the first message comes to it, in the state that it has in a tree that has settled.
"""

from bisect import bisect_left, bisect_right
from random import Random
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from nearcast.model.subscription import NodeId
from nearcast.node import Message, Node
from nearcast.protocols.drtree.contacts import MemberContacts
from nearcast.protocols.drtree.links import ANCESTORS, BROTHERS, LINKS_OF_STRATEGY
from nearcast.protocols.drtree.member import NEVER, ChildRecord, Member, OwnedNode
from nearcast.protocols.drtree.messages import SLOTS, Address
from nearcast.protocols.drtree.parameters import Parameters
from nearcast.protocols.drtree.peer import DRTreePeer
from nearcast.sim.workload_player import first_interests
from nearcast.space.boxes import BoxBounds
from nearcast.space.motion import Time
from nearcast.storage import AnyPath, encode_parquet, open_parquet, write_whole
from nearcast.workloads.workload import Workload
from nearcast_papers.drtree.tree_columns import NO_NODE, TOP, TreeColumns, TreeCut

TOP_FILE = "top.parquet"
ON_RANDOM = Random(0)  # only decides when a peer checks its neighbours, which nobody does here


# A message for another part: the part, when it arrives, to whom, from whom, and what.
Left: TypeAlias = tuple[int, Time, NodeId, NodeId, Message]


def part_file(part: int) -> str:
    return f"part-{part:05}.parquet"


def write_parts(tree: TreeColumns, cut: TreeCut, acts: NDArray[np.int64], to: AnyPath) -> None:
    """Write the top and each part. `acts`: when each peer acts for the first time."""
    to.mkdir(parents=True, exist_ok=True)
    table = pa.table(
        {
            "node": np.arange(len(tree.level)), "level": tree.level, "parent": tree.parent,
            "owner": tree.owner, "home": cut.home[tree.owner], "acts": acts[tree.owner],
            "count": np.bincount(tree.parent[1:], minlength=len(tree.parent)),
            **{f"low{axis}": column for axis, column in enumerate(tree.low.T)},
            **{f"high{axis}": column for axis, column in enumerate(tree.high.T)},
        }
    )  # fmt: skip
    write_whole(to / TOP_FILE, encode_parquet(table.filter(pa.array(cut.at_top))))
    below = np.flatnonzero(tree.level < cut.level)
    order = below[np.argsort(cut.part[below], kind="stable")]
    edges = np.searchsorted(cut.part[order], np.arange(cut.parts + 1)).tolist()
    for part in range(cut.parts):
        rows = table.take(order[edges[part] : edges[part + 1]])
        write_whole(to / part_file(part), encode_parquet(rows))


class TreePart:
    """What a task knows of the tree, a part and the top: columns of nodes in the tree's order, so
    that the children of a node stand together."""

    def __init__(self, folder: AnyPath, part: int) -> None:
        self.part = part
        own, top = (read_nodes(folder / name) for name in (part_file(part), TOP_FILE))
        publishing = own.filter(pc.equal(own["level"], 0))
        self.publishers = pairs_of(publishing, "owner", "acts")
        both = pa.concat_tables([own, top.filter(pc.invert(pc.is_in(top["node"], own["node"])))])
        both = both.sort_by("node")
        names = ("node", "level", "parent", "owner", "count")
        self.node, self.level, self.parent, self.owner, self.count = (
            both[name].to_pylist() for name in names
        )
        self.home = dict(pairs_of(both, "owner", "home"))  # of all whom somebody here sends to
        self.leaf = {self.owner[row]: row for row, level in enumerate(self.level) if level == 0}
        self._low, self._high = (
            [both[name].to_pylist() for name in both.column_names if name.startswith(side)]
            for side in ("low", "high")
        )

    def box(self, row: int) -> BoxBounds:
        return BoxBounds(
            tuple([side[row] for side in self._low]), tuple([side[row] for side in self._high])
        )

    def above(self, row: int) -> int | None:
        """The row of the node above; None above the root."""
        parent = self.parent[row]
        return None if parent == NO_NODE else bisect_left(self.node, parent)

    def below(self, row: int) -> range:
        """The rows of the children."""
        node = self.node[row]
        return range(bisect_left(self.parent, node), bisect_right(self.parent, node))

    def chain(self, peer: NodeId) -> list[int]:
        """The rows of the nodes that a peer owns, from its leaf upwards."""
        rows = [self.leaf[peer]]
        while (above := self.above(rows[-1])) is not None and self.owner[above] == peer:
            rows.append(above)
        return rows

    def ancestors(self, row: int) -> list[tuple[Address, int]]:
        """The owners of the nodes above, each with the level of its lowest one there."""
        found: list[tuple[Address, int]] = []
        owner, above = self.owner[row], self.above(row)
        while above is not None:
            if self.owner[above] != owner:
                owner = self.owner[above]
                found.append((owner * SLOTS, self.level[above]))
            above = self.above(above)
        return found


def read_nodes(file: AnyPath) -> pa.Table:
    with open_parquet(file) as parquet:
        return parquet.read()


def pairs_of(table: pa.Table, one: str, other: str) -> list[tuple[int, int]]:
    return list(zip(table[one].to_pylist(), table[other].to_pylist(), strict=True))


class Elsewhere(Node):
    """In place of a peer of another part: keeps what comes for it."""

    def __init__(self, node_id: NodeId, part: int, left: list[Left]) -> None:
        super().__init__(node_id, ON_RANDOM)
        self.part, self.left = part, left

    def on_message(self, sender: NodeId, message: Message) -> None:
        self.left.append((self.part, self.now, self.id, sender, message))


class PartPeers(dict[NodeId, Node]):
    """The nodes of a part's simulation: peers of the part and of the top, and others' stand-ins."""

    def __init__(
        self, tree: TreePart, parameters: Parameters, workload: Workload, *, publish: bool
    ) -> None:
        super().__init__()
        self.publish = publish  # in the first round; later ones only go down
        self.tree, self.parameters, self.workload = tree, parameters, workload
        self.contacts = MemberContacts(0)
        self.left: list[Left] = []

    def __missing__(self, peer: NodeId) -> Node:
        home = self.tree.home[peer]
        assert self.publish or home != TOP, f"a publication came back to peer {peer} at the top"
        node: Node
        if home in (TOP, self.tree.part):
            node = self.restored(peer)
        else:
            node = Elsewhere(peer, home, self.left)
        self[peer] = node
        return node

    def restored(self, peer_id: NodeId) -> DRTreePeer:
        """The overlay's node, as it is when its tree has settled."""
        peer = subscribed_peer(peer_id, self.parameters, self.workload, self.contacts)
        (member,) = peer.members.values()
        place_member(member, self.tree, self.parameters.strategy)
        peer.level = member.top
        return peer

    def __contains__(self, peer: object) -> bool:
        return peer in self.tree.home

    def get(self, peer: NodeId, default: Any = None) -> Any:
        return self.__getitem__(peer) if peer in self else default


def subscribed_peer(
    peer_id: NodeId, parameters: Parameters, workload: Workload, contacts: MemberContacts
) -> DRTreePeer:
    """A peer that has its first interests, and a member that is in no tree."""
    peer = DRTreePeer(peer_id, ON_RANDOM, parameters, contacts)
    for first in first_interests(workload.life(peer_id, 0, 0)):
        peer.obey(0, first)
    if list(peer.members) != [0]:
        raise ValueError(f"peer {peer_id} has {len(peer.members)} members in the tree, not one")
    return peer


def place_member(member: Member, tree: TreePart, strategy: str) -> None:
    """Give a member its nodes and links in a tree in which nothing has changed for long."""

    def children(row: int) -> dict[Address, ChildRecord]:
        return {
            tree.owner[child] * SLOTS: ChildRecord(tree.box(child), tree.count[child], NEVER)
            for child in tree.below(row)
        }

    rows = tree.chain(member.address // SLOTS)
    member.levels += [OwnedNode(tree.box(row), children(row)) for row in rows[1:]]
    member.in_tree = member.settled = True
    parent = tree.above(rows[-1])
    if parent is None:
        return
    member.parent = tree.owner[parent] * SLOTS
    member.parent_is_root = tree.above(parent) is None
    kept = LINKS_OF_STRATEGY[strategy]
    if kept == BROTHERS:
        brothers = children(parent).items()
        member.brothers = {a: child.box for a, child in brothers if a != member.address}
    elif kept is not None:
        above = tree.ancestors(rows[-1])
        member.above = tuple(above if kept == ANCESTORS else above[-1:])
