"""The periodic checks that make the tree heal from any state.

A parent sends to its children, and a child to its parent, once per period. A child that is denied
or receives nothing becomes a root and asks to join again, with all that is below it; a parent that
receives nothing forgets the child. A parent's node is one level above the child's, and both must
agree on that, so circles cannot last. Roots keep asking for other trees, so one remains. The rest
is local: own entries, numbers of children, boxes, and the best child as owner.
"""

from msgspec.structs import replace

from nearcast.protocols.drtree.links import (
    parent_state,
    update_ancestor_links,
    update_brother_links,
    update_children,
)
from nearcast.protocols.drtree.member import Member
from nearcast.protocols.drtree.messages import (
    ChildState,
    Join,
    NotMyChild,
    ParentState,
    RemoveChild,
)
from nearcast.protocols.drtree.placement import better_placed, mean_round_trip, measure_round_trips
from nearcast.protocols.drtree.tree import (
    dissolve_child,
    enter_tree,
    hand_over_nodes,
    largest_child,
    move_in_tree,
    ownership_rank,
    request_join,
    split_node,
)
from nearcast.space.boxes import BoxBounds, union
from nearcast.space.motion import Time


def check_member(member: Member) -> None:
    """All checks of one period, in order, and the reports to parent and children."""
    peer = member.peer
    placed = member.confirmed if member.parent is not None else member.in_tree
    member.settled = placed and not member.changed
    member.changed = False
    if member.detached_nodes:
        member.detached_nodes = [
            detached for detached in member.detached_nodes if detached.until > peer.now
        ]
    forget_before = peer.now - peer.parameters.misses * peer.period
    check_own_nodes(member)
    check_children(member, forget_before)
    check_parent(member, forget_before)
    check_structure(member)
    if peer.parameters.promotes == "latency":
        check_owner_by_latency(member)
    else:
        check_owner_by_coverage(member)
    move_in_tree(member)
    if member.parent is not None:
        member.report_to_parent()
    for level in range(1, member.top + 1):
        update_children(member, level)


def check_own_nodes(member: Member) -> None:
    """I am a child in each of my nodes, and boxes are what their children make them."""
    for level in range(1, member.top + 1):
        node, below = member.levels[level], member.levels[level - 1]
        own = member.own_entry(level)
        own.box, own.count = below.box, len(below.children)
        box = union([child.box for child in node.children.values()])
        if box != node.box:
            node.box = box
            member.mark_changed()


def check_children(member: Member, forget_before: Time) -> None:
    for level in range(1, member.top + 1):
        children = member.levels[level].children
        silent = [
            a for a in member.other_children(level) if children[a].last_received < forget_before
        ]
        for address in silent:
            del children[address]
            member.peer.note("lost", address)
        if silent:
            update_brother_links(member, level, member.refit(level))


def check_parent(member: Member, forget_before: Time) -> None:
    """A member whose parent denies it or is silent becomes a root; a root looks for other trees."""
    peer = member.peer
    if member.parent is not None:
        if member.denied or member.last_received < forget_before or member.parent == member.address:
            peer.note("orphaned", member.parent)
            member.set_parent(None)
            member.above, member.former = (), None
            member.in_tree, member.join_attempts = False, 0
            update_ancestor_links(member)
            request_join(member)
        return
    if member.above:
        member.above = ()
        update_ancestor_links(member)
    if member.in_tree:
        # There may be another tree; whoever it is that I ask, the request finds its root.
        contact = peer.contact(member)
        if contact is not None:
            peer.send(contact, Join(member.entry(member.top), member.top))
    elif peer.now - member.asked_at >= peer.period << min(max(member.join_attempts - 1, 0), 3):
        if member.contact is not None:
            peer.suspect(member.contact)
        if member.join_attempts >= peer.parameters.misses:
            enter_tree(member)  # nobody answers: begin a tree; others will find it, or it them
        request_join(member)


def check_structure(member: Member) -> None:
    """Nodes have between `least` and `most` children, and a root has two."""
    least, most = member.peer.parameters.least, member.peer.parameters.most
    while member.top and member.is_root and len(member.levels[-1].children) == 1:
        member.drop_levels(member.top)
        update_ancestor_links(member)
    for level in range(1, member.top + 1):
        while len(member.levels[level].children) > most:
            split_node(member, level)
            update_brother_links(member, level, member.refit(level))
    for level in range(2, member.top + 1):
        children = member.levels[level].children
        small = [address for address in sorted(children) if children[address].count < least]
        if small and len(children) > 1:
            dissolve_child(member, level, small[0])


def check_owner_by_coverage(member: Member) -> None:
    """The child of largest coverage owns the node, and with it all that I own above."""
    for level in range(member.top, 0, -1):
        children, mine = member.levels[level].children, member.address
        heir = largest_child(member, children)
        if heir != mine and ownership_rank(member, heir, children[heir]) > ownership_rank(
            member, mine, children[mine]
        ):
            hand_over_nodes(member, level, heir, stays=True)
            return


def check_owner_by_latency(member: Member) -> None:
    """The best placed child owns the node, and with it all that I own above.

    From below, since who owns a node decides where it stands among those of the next level.
    """
    measure_round_trips(member)
    for level in range(1, member.top + 1):
        heir = better_placed(member, level)
        if heir is not None:
            hand_over_nodes(member, level, heir, stays=True)
            break
    member.brother_latency = mean_round_trip(member, member.brothers)


# Messages between parent and child.


def on_parent_state(member: Member, yours: ParentState) -> None:
    peer, listed = member.peer, yours.passed if yours.passed is not None else member.address
    if yours.level > member.top + 1:
        member.forward(replace(yours, passed=listed), yours.hops)
        return
    known = yours.by == member.parent
    # An unknown member that calls me its child is believed if it adopts me, or if nobody else has
    # confirmed me: then the node has changed owners twice, and messages have arrived out of order.
    believed = known or yours.adopted or member.parent is None or not member.confirmed
    if yours.level <= member.top or yours.by == member.address or not believed:
        # Who has just moved is reached by the old parent until all know the new way.
        if not member.is_recent(member.moved_at):
            peer.send(yours.by, RemoveChild(listed, yours.level))
        return
    was_root, denied = member.is_root, member.denied
    member.set_parent(yours.by)
    learn_links(member, yours)
    if yours.passed is not None:
        member.former, member.denied = listed, denied  # it lists another in my place
    elif not yours.adopted or member.moving:
        member.confirmed, member.former = True, None
    if yours.adopted:
        member.moved_at = peer.now if member.moving else member.moved_at
        member.moving, member.adoption_box = False, member.parent_box
    if was_root:
        enter_tree(member)
        update_ancestor_links(member)
    if not known or yours.passed is not None:
        member.report_to_parent()


def learn_links(member: Member, yours: ParentState) -> None:
    member.parent_box = BoxBounds(*yours.box)
    brothers = {e.address: BoxBounds(*e.box) for e in yours.brothers if e.address != member.address}
    if brothers != member.brothers or yours.is_root != member.parent_is_root:
        member.brothers, member.parent_is_root = brothers, yours.is_root
        member.mark_changed()
    if yours.above != member.above:
        member.above = yours.above
        member.mark_changed()
        update_ancestor_links(member)


def on_child_state(member: Member, mine: ChildState) -> None:
    child, level, peer = mine.child, mine.level + 1, member.peer
    if child.address == member.address:
        return
    if level > member.top and member.forward(mine, mine.hops):
        return
    children = member.levels[level].children if level <= member.top else {}
    known = children.get(child.address)
    if known is None and mine.former in children and mine.former != member.address:
        known = children[child.address] = children.pop(mine.former)
        member.mark_changed()
        peer.send(child.address, parent_state(member, level, adopted=True))
    elif known is not None and mine.hops:
        peer.send(child.address, parent_state(member, level, adopted=True))
    if known is None:
        peer.send(child.address, NotMyChild(member.address, level))
        return
    known.last_received, known.brother_latency = peer.now, mine.brother_latency
    if known.count != child.count:
        known.count = child.count
        member.mark_changed()
    if known.box != child.box:
        known.box, known.changed = BoxBounds(*child.box), peer.now
        update_brother_links(member, level, member.refit(level))


def on_not_my_child(member: Member, denial: NotMyChild) -> None:
    if denial.by == member.parent and denial.level == member.top + 1:
        member.denied = True  # unless another parent calls me before the next check


def on_remove_child(member: Member, gone: RemoveChild) -> None:
    if gone.level > member.top:
        member.forward(gone, gone.hops)
        return
    if gone.by == member.address:
        return
    if member.levels[gone.level].children.pop(gone.by, None) is not None:
        update_brother_links(member, gone.level, member.refit(gone.level))
