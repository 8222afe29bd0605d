"""How the tree grows and shrinks: join, split, promotion, handover, merging, goodbye.

The paper's tree is that of the 2007 DR-tree. Requests climb along parent links to the root and
descend by least enlargement. Who owns a node changes it alone, so an act is one local change and a
few messages that tell of it. A message for a node that has changed hands meanwhile climbs again, or
is passed to the new owner, who is the parent of the old one.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from nearcast.protocols.drtree.links import (
    parent_state,
    update_ancestor_links,
    update_brother_links,
)
from nearcast.protocols.drtree.member import NEVER, ChildRecord, Member, OwnedNode
from nearcast.protocols.drtree.messages import (
    MAX_HOPS,
    Address,
    Dissolve,
    Join,
    Merge,
    NodeEntry,
    RemoveChild,
    TakeOver,
)
from nearcast.protocols.drtree.placement import best_placed
from nearcast.space.boxes import BoxBounds, contains, union
from nearcast.space.rtree import SPLITS, choose, volume


def ownership_rank(member: Member, address: Address, child: ChildRecord) -> tuple[float, ...]:
    """What a child has to say for itself as an owner; the more, the better."""
    return (-address,) if member.peer.parameters.promotes == "address" else volume(child.box)


def largest_child(
    member: Member, children: Mapping[Address, ChildRecord], besides: Address | None = None
) -> Address:
    """The child of largest coverage, of equal ones the smallest address (1.5, promotion)."""
    return max(
        (address for address in children if address != besides),
        key=lambda address: (ownership_rank(member, address, children[address]), -address),
    )


def choose_owner(member: Member, children: Mapping[Address, ChildRecord]) -> Address:
    """Who owns a node with these children, if it is not me."""
    if member.peer.parameters.promotes == "latency":
        best = best_placed(children, member.address)
        if best is not None:
            return best
    return largest_child(member, children, member.address)


# Join.


def request_join(member: Member) -> None:
    """Ask to be taken in, through somebody who is in the tree; without such, be the tree."""
    member.contact = member.peer.contact(member)
    if member.contact is None:
        enter_tree(member)
        return
    member.join_attempts += 1
    member.asked_at = member.peer.now
    member.peer.send(member.contact, Join(member.entry(member.top), member.top))


def enter_tree(member: Member) -> None:
    if not member.in_tree:
        member.in_tree = True
        member.mark_changed()
    member.peer.entered_tree(member)


def on_join(member: Member, join: Join) -> None:
    child = join.child
    if child.address == member.address:
        if member.is_root:
            enter_tree(member)  # the request came back to me: there is no tree but mine
        return
    if join.hops >= MAX_HOPS:
        member.peer.note("ignored", child.address)
        return
    if join.level < join.at <= member.top:
        descend_join(member, join.at, join)
    elif member.parent is not None:
        member.peer.send(member.parent, replace(join, at=0, hops=join.hops + 1, slot=0))
    else:
        unite_trees(member, join)


def unite_trees(member: Member, join: Join) -> None:
    """A root meets the root of another tree: the lower one goes into the higher one."""
    waits = member.join_attempts > 0 and not member.in_tree and member.address > join.child.address
    if member.top < join.level or (member.top == join.level and waits):
        # Of two equal ones that look for each other, only one may build the new root.
        request = Join(member.entry(member.top), member.top, 0, join.hops + 1)
        member.peer.send(join.child.address, request)
        return
    if member.top == join.level:
        raise_root(member)
    descend_join(member, member.top, join)


def raise_root(member: Member) -> None:
    """A new root above the old one, with me as its only child so far."""
    member.add_level(OwnedNode(member.levels[-1].box, {}))
    update_ancestor_links(member)


def descend_join(member: Member, at: int, join: Join) -> None:
    """Guttman's ChooseLeaf, down to the level above the newcomer's.

    Who was sent here before a split may belong to the other half by now. It goes on to there, as in
    the B-link trees of Lehman and Yao; taken in here, it would stretch this node over both halves.
    """
    box = BoxBounds(*join.child.box)
    while True:
        halves = [
            detached
            for detached in member.detached_nodes
            if detached.served_at == at == detached.level
        ]
        if halves:
            place = choose([member.levels[at].box, *[half.box for half in halves]], box)
            if place:
                forward_join(member, halves[place - 1].address, at, join)
                return
        if at == join.level + 1:
            adopt_children(member, at, [join.child])
            return
        member.own_entry(at)
        children = member.levels[at].children
        addresses = list(children)
        best = addresses[choose([children[a].box for a in addresses], box)]
        at -= 1
        if best != member.address:
            forward_join(member, best, at, join)
            return


def forward_join(member: Member, to: Address, at: int, join: Join) -> None:
    member.peer.send(to, replace(join, at=at, hops=join.hops + 1, slot=0))


def adopt_children(member: Member, level: int, newcomers: list[NodeEntry]) -> None:
    """Take these in as children of my node, and split it if they are too many."""
    node, peer = member.levels[level], member.peer
    for entry in newcomers:
        if entry.address != member.address:
            box = BoxBounds(*entry.box)
            node.children[entry.address] = ChildRecord(box, entry.count, peer.now)
    if len(node.children) > peer.parameters.most:
        split_node(member, level)
    highest = member.refit(level)
    for entry in newcomers:  # before the brothers hear: it must know that it is one
        if entry.address in member.levels[level].children and entry.address != member.address:
            peer.send(entry.address, parent_state(member, level, adopted=True))
    update_brother_links(member, level, highest)


# Split and promotion.


def split_node(member: Member, level: int) -> None:
    """Two nodes from one: mine, and one for the best child of the other group."""
    node, peer = member.levels[level], member.peer
    member.own_entry(level)
    addresses = sorted(node.children)
    kind = SPLITS[peer.parameters.split]
    groups = kind([node.children[a].box for a in addresses], peer.parameters.least)
    chosen = next(g for g in groups if member.address not in [addresses[i] for i in g])
    moved = {addresses[i]: node.children.pop(addresses[i]) for i in chosen}
    owner = choose_owner(member, moved)
    if level == member.top and member.is_root:
        member.refit(level)
        raise_root(member)
    parent = member.address if level < member.top else member.parent
    brother = NodeEntry(owner, union([child.box for child in moved.values()]), len(moved))
    chain = (tuple(NodeEntry(a, c.box, c.count) for a, c in moved.items() if a != owner),)
    peer.send(owner, TakeOver(level, chain, parent, None))
    member.keep_serving(level, owner, level, BoxBounds(*brother.box))
    peer.note("split", owner, float(level))
    if level < member.top:
        member.refit(level)
        adopt_children(member, level + 1, [brother])
    elif member.parent is not None:
        peer.send(member.parent, Join(brother, level, level + 1))


def hand_over_nodes(member: Member, level: int, heir: Address, *, stays: bool) -> None:
    """Give my nodes from that level upwards to one of my children there; I become its child."""
    chain = []
    for k in range(level, len(member.levels)):
        entries = [
            NodeEntry(a, c.box, c.count)
            for a, c in member.levels[k].children.items()
            if a not in (member.address, heir)
        ]
        if k == level and stays:
            entries.append(member.entry(level - 1))
        chain.append(tuple(entries))
    member.peer.send(heir, TakeOver(level, tuple(chain), member.parent, member.address))
    member.drop_levels(level)
    member.heir, member.handed_over = heir, member.peer.now
    member.former = None
    member.set_parent(heir)


def on_take_over(member: Member, take: TakeOver) -> None:
    if take.level > member.top + 1:
        member.forward(take, take.hops)
        return
    peer, first_new = member.peer, member.top + 1
    for level, entries in enumerate(take.chain, max(take.level, 1)):
        others = [entry for entry in entries if entry.address != member.address]
        if level <= member.top:
            # I own such a node already: whoever promoted me did not know. Its children are mine.
            adopt_children(member, level, others)
        else:
            children = {
                e.address: ChildRecord(BoxBounds(*e.box), e.count, peer.now) for e in others
            }
            member.add_level(OwnedNode(member.levels[-1].box, children))
    if member.top < first_new:
        return
    member.set_parent(take.parent if take.parent != member.address else None)
    member.former, member.handed_over = take.former, NEVER
    if member.is_root:
        member.above = ()
        enter_tree(member)
    else:
        member.report_to_parent()
    for level in range(first_new, member.top + 1):
        peer.send_all(member.other_children(level), parent_state(member, level, adopted=True))
    update_ancestor_links(member)


# Merging and goodbye.


def dissolve_child(member: Member, level: int, small: Address) -> None:
    """A child has too few children of its own: it and the brother nearest to it become one node.

    The brother splits again if it has too many then, so this covers both merging and borrowing.
    """
    children = member.levels[level].children
    brothers = [address for address in children if address != small]
    boxes = [children[address].box for address in brothers]
    nearest = brothers[choose(boxes, children[small].box)]
    # My own node cannot go, because I own the one above it.
    goes, into = (nearest, small) if small == member.address else (small, nearest)
    member.keep_serving(level, goes, level - 1, children.pop(goes).box)
    member.peer.send(goes, Dissolve(level - 1, into))
    member.peer.note("merged", goes, float(level - 1))
    update_brother_links(member, level, member.refit(level))


def on_dissolve(member: Member, message: Dissolve) -> None:
    if message.level > member.top:
        member.forward(message, message.hops)
        return
    if message.level < member.top or member.top == 0 or message.into == member.address:
        member.peer.note("ignored", member.address)
        return
    children = [
        NodeEntry(address, child.box, child.count)
        for address, child in member.levels[-1].children.items()
        if address != member.address
    ]
    level = member.top
    member.drop_levels(level)
    member.heir, member.handed_over = message.into, member.peer.now
    member.set_parent(message.into)
    member.peer.send(message.into, Merge(level, (*children, member.entry(level - 1))))


def on_merge(member: Member, merge: Merge) -> None:
    if merge.level > member.top:
        member.forward(merge, merge.hops)
    elif merge.level:
        adopt_children(member, merge.level, list(merge.children))


def leave_tree(member: Member) -> None:
    """Goodbye: the lowest node that has another child goes to the best one, with all above.

    Whoever is gone may still be given nodes by those who do not know, and says goodbye again.
    """
    member.gone = True
    for level in range(1, len(member.levels)):
        if member.other_children(level):
            heir = choose_owner(member, member.levels[level].children)
            hand_over_nodes(member, level, heir, stays=False)
            break
    else:
        if member.parent is not None:
            member.peer.send(member.parent, RemoveChild(member.address, member.top + 1))
    member.set_parent(None)


# A leaf whose area changes.


def resize_leaf(member: Member, box: BoxBounds) -> None:
    """The parent hears of the new box; whether to move in the tree is decided at the next check."""
    if box == member.levels[0].box:
        return
    member.levels[0].box = box
    member.resized = True
    highest = member.refit(0)
    if member.top:
        update_brother_links(member, 1, highest)
    member.peer.note("box-updated", member.address)


def move_in_tree(member: Member) -> None:
    """A leaf that has left the box that its parent had when it came asks for a better place.

    It stays with its parent until it is adopted elsewhere, and receives from both for a while. An
    owner hands its nodes over first, and moves as a plain leaf at the next check.
    """
    box, peer = member.levels[0].box, member.peer
    resized, member.resized = member.resized, False
    if member.top == 0:
        if member.parent is None or member.adoption_box is None:
            return
        if member.displaced or (resized and not contains(member.adoption_box, box)):
            member.displaced, member.moving = False, True
            peer.note("reinserted", member.address)
            peer.send(member.parent, Join(member.entry(0), 0))
    elif resized and member.other_children(1):
        children = member.levels[1].children
        others = union([children[address].box for address in member.other_children(1)])
        if not contains(others, box):
            member.displaced = True
            hand_over_nodes(member, 1, choose_owner(member, children), stays=True)
