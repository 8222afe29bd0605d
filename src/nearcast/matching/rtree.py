"""An R-tree in main memory: boxes within boxes, so that a search skips what is far away.

The tree is Guttman's ("R-trees", SIGMOD 1984): it grows and shrinks with every put and drop and is
never rebuilt. Its decisions are those of `space.rtree`. It holds a box around each region.
A moving region has a box around all that it touches in a slice of time. When a publication's moment
lies outside the slice, moving regions are inserted anew for another one. The tree finds candidates;
`wants` decides about each.
"""

from collections.abc import Iterable
from math import hypot, inf

from msgspec import Struct

from nearcast.matching.matcher import Matcher
from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import Formula, Subscription, SubscriptionId
from nearcast.space.boxes import BoxBounds, Margin, box_around, swept_box, union
from nearcast.space.motion import SECOND, Moving, Path, Time
from nearcast.space.rtree import SPLITS, choose

# Seconds that a slice may last. Its end costs two changes of the tree per moving region, each as
# dear as several searches; so it is not cut short for the sake of tight boxes alone.
SHORTEST, USUAL, LONGEST = 0.1, 1.0, 60.0

NOWHERE = BoxBounds((inf, inf, inf), (-inf, -inf, -inf))  # the union of no boxes
# `overlap` finds a distance at most a few roundings too short, in proportion to the numbers that it
# compares: one part in 1e12 is more than enough. 1e-160, because the squares of smaller distances
# underflow to nothing. Each box of a pair takes its own room: neither knows the other.
MARGIN = Margin(1e-12, 1e-160)


def slice_seconds(regions: Iterable[Moving | Path], at: Time) -> float:
    """Seconds in which a typical region that still moves travels its own width.

    In boxes swept for so long, a third of the candidates are answers. With shorter slices more are,
    but that is worth the insertions only if publications a second outnumber the moving regions.
    """
    times = []
    for region in regions:
        leg = region.leg(at) if isinstance(region, Path) else region
        if not leg.moves or leg.until <= at:
            continue
        s = leg.shape
        widest = max(r if r < inf else 0.0 for r in (s.rx, s.ry, s.rz))
        speed = hypot(*leg.velocity) + max(map(abs, leg.growth))
        times.append(2.0 * (widest / speed) if widest else USUAL)
    typical = sorted(times)[len(times) // 2] if times else LONGEST
    return min(max(typical, SHORTEST), LONGEST)


# The tree


class TreeNode(Struct, eq=False):
    """A box and what hangs in it: nodes of the level below or, at level 0, one subscription."""

    level: int
    box: BoxBounds = NOWHERE
    children: list["TreeNode"] = []
    parent: "TreeNode | None" = None
    subscription: SubscriptionId = -1

    def adopt(self, children: list["TreeNode"]) -> None:
        """Have these children and no others, in a box that fits them exactly."""
        self.children = children
        for child in children:
            child.parent = self
        self.box = union([child.box for child in children]) if children else NOWHERE


def touching(nodes: list[TreeNode], wanted: BoxBounds) -> list[TreeNode]:
    """Those whose boxes share a point with this one.

    It is `space.boxes.overlaps` written out for three dimensions, which takes a fifth of the time;
    and here is where a search spends it.
    """
    (west, south, bottom), (east, north, top) = wanted
    hits = []
    for node in nodes:
        (x0, y0, z0), (x1, y1, z1) = node.box
        if (
            x0 <= east and west <= x1
            and y0 <= north and south <= y1
            and z0 <= top and bottom <= z1
        ):  # fmt: skip
            hits.append(node)
    return hits


class Tree:
    """Guttman's R-tree of boxes, each that of one subscription; `search` takes three dimensions.

    A node has `least` to `most` children (his m and M), except that the root may have fewer.
    """

    def __init__(self, least: int, most: int, split: str) -> None:
        if not 2 <= least <= most / 2:
            raise ValueError(f"nodes cannot have at least {least} and at most {most} children")
        if split not in SPLITS:
            raise ValueError(f"a split is one of {', '.join(SPLITS)}, not {split!r}")
        self._least, self._most, self._split = least, most, SPLITS[split]
        self._entries: dict[SubscriptionId, TreeNode] = {}
        self.root = TreeNode(1)

    def box(self, subscription: SubscriptionId) -> BoxBounds:
        return self._entries[subscription].box

    def search(self, wanted: BoxBounds) -> list[SubscriptionId]:
        """The subscriptions whose boxes share a point with this one, in no particular order."""
        found: list[SubscriptionId] = []
        nodes = [self.root]
        while nodes:
            node = nodes.pop()
            hits = touching(node.children, wanted)
            if node.level > 1:
                nodes.extend(hits)  # Search S1
            else:
                found.extend([entry.subscription for entry in hits])  # Search S2
        return found

    def insert(self, subscription: SubscriptionId, box: BoxBounds) -> None:
        entry = TreeNode(0, box, subscription=subscription)
        self._entries[subscription] = entry
        self._hang(entry)

    def remove(self, subscription: SubscriptionId) -> None:
        """Guttman's Delete, without FindLeaf (D1): an entry knows where it hangs."""
        orphans = self._take_out(self._entries.pop(subscription))
        # CondenseTree CT6. The highest first, for they shape the tree that the others come to.
        for orphan in reversed(orphans):
            self._hang(orphan)
        while self.root.level > 1 and len(self.root.children) == 1:  # D4
            self.root = self.root.children[0]
            self.root.parent = None

    def _hang(self, added: TreeNode) -> None:
        """Guttman's Insert, for an entry or for a node that has lost its parent."""
        home = self.root
        while home.level > added.level + 1:  # ChooseLeaf CL2 to CL4
            home = home.children[choose([child.box for child in home.children], added.box)]
        home.children.append(added)
        added.parent = home
        node: TreeNode | None = home
        while node is not None:  # AdjustTree AT1 to AT5
            node.box = added.box if node.box is NOWHERE else union([node.box, added.box])
            if len(node.children) > self._most:
                self._divide(node)
            node = node.parent

    def _divide(self, node: TreeNode) -> None:
        """Leave one group of the children to the node and the other to a new sibling."""
        children, sibling = node.children, TreeNode(node.level)
        kept, given = self._split([child.box for child in children], self._least)
        node.adopt([children[i] for i in kept])
        sibling.adopt([children[i] for i in given])
        if node.parent is None:
            self.root = TreeNode(node.level + 1)  # Insert I4: the tree grows taller.
            self.root.adopt([node, sibling])
        else:
            node.parent.children.append(sibling)
            sibling.parent = node.parent

    def _take_out(self, entry: TreeNode) -> list[TreeNode]:
        """Guttman's CondenseTree: nodes left with too few children go too, and orphan them."""
        orphans: list[TreeNode] = []
        lost, node = entry, entry.parent
        while node is not None:
            remaining = [child for child in node.children if child is not lost]
            if node.parent is not None and len(remaining) < self._least:
                orphans.extend(remaining)  # CT3
                lost = node
            else:
                node.adopt(remaining)  # CT4
            node = node.parent
        return orphans


# The engine


class RTreeMatcher(Matcher):
    """Matches with an R-tree in memory. Regions that move are in it by the box that they sweep."""

    def __init__(self, least: int = 4, most: int = 8, split: str = "rstar") -> None:
        self.tree = Tree(least, most, split)
        self._subscriptions: dict[SubscriptionId, Subscription] = {}
        self._moving: dict[SubscriptionId, Moving | Path] = {}
        self._apart: dict[SubscriptionId, None] = {}  # formulas, whose bounds nobody knows
        self._slice: tuple[Time, Time] = (0, 0)

    def put(self, subscription: Subscription) -> None:
        self.drop(subscription.id)
        self._subscriptions[subscription.id] = subscription
        region = subscription.region
        if isinstance(region, Formula):
            self._apart[subscription.id] = None
            return
        if isinstance(region, Path) or region.moves:
            self._moving[subscription.id] = region
        self.tree.insert(subscription.id, swept_box(region, *self._slice, MARGIN))

    def drop(self, subscription: SubscriptionId) -> None:
        known = self._subscriptions.pop(subscription, None)
        if known is None:
            return
        if isinstance(known.region, Formula):
            del self._apart[subscription]
            return
        self._moving.pop(subscription, None)
        self.tree.remove(subscription)

    def match(self, publication: Publication, at: Time) -> list[SubscriptionId]:
        self._cover(at)
        near = self.tree.search(box_around(publication.shape, MARGIN))
        candidates = sorted([*near, *self._apart])
        return [c for c in candidates if wants(self._subscriptions[c], publication, at)]

    def _cover(self, at: Time) -> None:
        """Insert what moves anew if its boxes were not made for this moment."""
        lo, hi = self._slice
        if not self._moving or lo <= at <= hi:
            return
        ahead = round(slice_seconds(self._moving.values(), at) * SECOND)
        lo, hi = self._slice = at - ahead // 4, at + ahead  # publications may be a little late
        for subscription, region in self._moving.items():
            box = swept_box(region, lo, hi, MARGIN)
            if box != self.tree.box(subscription):  # else it has arrived, or not yet begun
                self.tree.remove(subscription)
                self.tree.insert(subscription, box)
