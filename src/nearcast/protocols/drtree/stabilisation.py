"""The periodic checks that make the tree heal from any state.

A father tells its children, and a child its father, once per period. A child that is denied or
hears nothing becomes a root and asks to be taken in again, with all that is below it; a father
that hears nothing forgets the child. A father's node is one level above the child's, and both must
agree on that, so circles cannot last. Roots keep asking for other trees, so one remains. The rest
is local: own entries, numbers of children, boxes, and the best child as owner.
"""

from msgspec.structs import replace

from nearcast.protocols.drtree.boxes import enclosing_box
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
from nearcast.space.motion import Time
from nearcast.space.rtree import BoxBounds


def check_member(member: Member) -> None:
    host = member.host
    placed = member.confirmed if member.parent is not None else member.seated
    member.settled = placed and not member.changed
    member.changed = False
    member.offshoots = [shoot for shoot in member.offshoots if shoot.until > host.now]
    forget_before = host.now - host.parameters.misses * host.period
    check_own_nodes(member)
    check_children(member, forget_before)
    check_parent(member, forget_before)
    check_structure(member)
    if host.parameters.promotes == "latency":
        check_owner_by_latency(member)
    else:
        check_owner_by_coverage(member)
    move_in_tree(member)
    if member.parent is not None:
        member.tell_father()
    for level in range(1, member.top + 1):
        update_children(member, level)


def check_own_nodes(member: Member) -> None:
    """I am a child in each of my nodes, and boxes are what their children make them."""
    for level in range(1, member.top + 1):
        node, below = member.levels[level], member.levels[level - 1]
        own = member.own(level)
        own.box, own.count = below.box, len(below.children)
        box = enclosing_box([child.box for child in node.children.values()])
        if box != node.box:
            node.box = box
            member.mark()


def check_children(member: Member, forget_before: Time) -> None:
    for level in range(1, member.top + 1):
        children = member.levels[level].children
        silent = [a for a in member.others(level) if children[a].heard < forget_before]
        for address in silent:
            del children[address]
            member.host.note("lost", address)
        if silent:
            update_brother_links(member, level, member.fit(level))


def check_parent(member: Member, forget_before: Time) -> None:
    host = member.host
    if member.parent is not None:
        if member.doubted or member.heard < forget_before or member.parent == member.address:
            host.note("orphaned", member.parent)
            member.set_parent(None)
            member.above, member.former = (), None
            member.seated, member.tries = False, 0
            update_ancestor_links(member)
            request_join(member)
        return
    if member.above:
        member.above = ()
        update_ancestor_links(member)
    if member.seated:
        # There may be another tree; whoever it is that I ask, the request finds its root.
        contact = host.contact(member)
        if contact is not None:
            host.send(contact, Join(member.entry(member.top), member.top))
    elif host.now - member.sought >= host.period << min(max(member.tries - 1, 0), 3):
        if member.contact is not None:
            host.suspect(member.contact)
        if member.tries >= host.parameters.misses:
            enter_tree(member)  # nobody answers: begin a tree; others will find it, or it them
        request_join(member)


def check_structure(member: Member) -> None:
    """Nodes have between `least` and `most` children, and a root has two."""
    least, most = member.host.parameters.least, member.host.parameters.most
    while member.top and member.is_root and len(member.levels[-1].children) == 1:
        member.sink(member.top)
        update_ancestor_links(member)
    for level in range(1, member.top + 1):
        while len(member.levels[level].children) > most:
            split_node(member, level)
            update_brother_links(member, level, member.fit(level))
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
        if ownership_rank(member, heir, children[heir]) < ownership_rank(
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
    member.apart = mean_round_trip(member, member.brothers)


# What father and child say to each other.


def on_parent_state(member: Member, yours: ParentState) -> None:
    host, listed = member.host, yours.passed if yours.passed is not None else member.address
    if yours.level > member.top + 1:
        member.pass_on(replace(yours, passed=listed), yours.hops)
        return
    known = yours.by == member.parent
    # A stranger who calls me its child is believed if it adopts me, or nobody else has confirmed
    # me: then the node has changed hands twice, and words have overtaken each other.
    believed = known or yours.adopted or member.parent is None or not member.confirmed
    if yours.level <= member.top or yours.by == member.address or not believed:
        # Who has just moved is reached by the old father until all know the new way.
        if not member.lately(member.moved):
            host.send(yours.by, RemoveChild(listed, yours.level))
        return
    was_root, doubted = member.is_root, member.doubted
    member.set_parent(yours.by)
    learn_links(member, yours)
    if yours.passed is not None:
        member.former, member.doubted = listed, doubted  # it lists another in my place
    elif not yours.adopted or member.moving:
        member.confirmed, member.former = True, None
    if yours.adopted:
        member.moved = host.now if member.moving else member.moved
        member.moving, member.home = False, member.parent_box
    if was_root:
        enter_tree(member)
        update_ancestor_links(member)
    if not known or yours.passed is not None:
        member.tell_father()


def learn_links(member: Member, yours: ParentState) -> None:
    member.parent_box = BoxBounds(*yours.box)
    brothers = {e.address: BoxBounds(*e.box) for e in yours.brothers if e.address != member.address}
    if brothers != member.brothers or yours.is_root != member.parent_is_root:
        member.brothers, member.parent_is_root = brothers, yours.is_root
        member.mark()
    if yours.above != member.above:
        member.above = yours.above
        member.mark()
        update_ancestor_links(member)


def on_child_state(member: Member, mine: ChildState) -> None:
    child, level, host = mine.child, mine.level + 1, member.host
    if child.address == member.address:
        return
    if level > member.top and member.pass_on(mine, mine.hops):
        return
    children = member.levels[level].children if level <= member.top else {}
    known = children.get(child.address)
    if known is None and mine.former in children and mine.former != member.address:
        known = children[child.address] = children.pop(mine.former)
        member.mark()
        host.send(child.address, parent_state(member, level, adopted=True))
    elif known is not None and mine.hops:
        host.send(child.address, parent_state(member, level, adopted=True))
    if known is None:
        host.send(child.address, NotMyChild(member.address, level))
        return
    known.heard, known.apart = host.now, mine.apart
    if known.count != child.count:
        known.count = child.count
        member.mark()
    if known.box != child.box:
        known.box, known.changed = BoxBounds(*child.box), host.now
        update_brother_links(member, level, member.fit(level))


def on_not_my_child(member: Member, denial: NotMyChild) -> None:
    if denial.by == member.parent and denial.level == member.top + 1:
        member.doubted = True  # unless another father calls me before the next check


def on_remove_child(member: Member, gone: RemoveChild) -> None:
    if gone.level > member.top:
        member.pass_on(gone, gone.hops)
        return
    if gone.by == member.address:
        return
    if member.levels[gone.level].children.pop(gone.by, None) is not None:
        update_brother_links(member, gone.level, member.fit(gone.level))
