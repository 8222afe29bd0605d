"""The tree heals: after crashes, and from any state that a member could be in.

How long it takes is counted in periods of the checks. After 30 % have crashed: three silent periods
until it is noticed, then orphans find new fathers, small nodes are merged level by level, and the
largest children become owners. From garbage: the same.
"""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.commands import Leave, Publish
from nearcast.protocols.drtree.member import ChildRecord, Member, OwnedNode
from nearcast.protocols.drtree.messages import SLOTS
from nearcast.protocols.drtree.parameters import PROMOTES
from nearcast.protocols.drtree.strategies import STRATEGIES
from nearcast.space.boxes import BoxBounds
from nearcast.space.shapes import point
from support.drtree_worlds import DRTreeWorld, assert_delivered_exactly, settled_tree
from support.examples import examples, seeds

PERIODS_AFTER_CRASHES = 25
PERIODS_FROM_GARBAGE = 40


def assert_nothing_is_missed(world: DRTreeWorld, at_least: int = 5) -> None:
    nodes = list(world.simulation.nodes)
    for number in range(200):
        shape = point(37.0 * number % 500, 61.0 * number % 500)
        world.simulation.obey(nodes[number % len(nodes)], Publish(number, shape))
    world.pass_periods(2)
    world.simulation.recorder.close()
    assert_delivered_exactly(world.memory, at_least)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_after_a_third_has_crashed_the_tree_is_whole_again_and_nothing_is_missed(
    strategy: str,
) -> None:
    world = settled_tree(120, strategy=strategy, check_ms=1000.0)
    for node in Random(7).sample(range(120), 36):
        world.simulation.crash(node)
    assert world.settle(PERIODS_AFTER_CRASHES) >= 3, "nobody can know before"
    assert_nothing_is_missed(world)


@seeds(range(2), range(2, 4))
def test_after_a_leave_the_tree_is_legal(seed: int) -> None:
    rng = Random(seed)
    world = settled_tree(60, seed=seed, check_ms=1000.0)
    for node in rng.sample(range(60), 45):
        world.simulation.obey(node, Leave())
        world.pass_periods(rng.choice([0.0, 0.02, 0.5]))
    world.settle(PERIODS_AFTER_CRASHES)
    assert len(world.members()) == 15
    assert_nothing_is_missed(world)


def test_the_last_one_is_the_tree_and_a_new_one_finds_it() -> None:
    world = settled_tree(12, check_ms=1000.0)
    for node in range(11):
        world.simulation.obey(node, Leave())
    world.settle(PERIODS_AFTER_CRASHES)
    (last,) = world.members().values()
    assert last.top == 0 and last.is_root
    world.join(100, *[point(1, 1)])
    world.pass_periods(1)
    world.settle(PERIODS_AFTER_CRASHES)
    assert len(world.members()) == 2


def test_when_all_contacts_are_dead_newcomers_begin_a_tree_of_their_own() -> None:
    world = settled_tree(5, check_ms=1000.0)
    for node in range(5):
        world.simulation.crash(node)
    for node in range(10, 20):
        world.join(node, point(node, node))
    world.pass_periods(10)
    world.settle(PERIODS_FROM_GARBAGE)
    assert len(world.members()) == 10


# Garbage.

SIDES = st.tuples(st.integers(0, 500), st.integers(0, 500)).map(sorted)
BOXES = st.tuples(SIDES, SIDES).map(
    lambda sides: BoxBounds(
        (float(sides[0][0]), float(sides[1][0])), (float(sides[0][1]), float(sides[1][1]))
    )
)


@st.composite
def corrupted(draw: st.DrawFn, member: Member, addresses: list[int]) -> None:
    """Change anything that a member knows, but for what it wants and who it is."""
    whom = st.sampled_from([*addresses, 999 * SLOTS])
    children = st.dictionaries(whom, st.tuples(BOXES, st.integers(0, 9)), max_size=12)
    now = member.peer.now
    what = draw(st.integers(0, 8))
    if what == 0:
        member.parent = draw(st.none() | whom)
    elif what == 1:
        kids = {a: ChildRecord(b, count, now) for a, (b, count) in draw(children).items()}
        member.levels.append(OwnedNode(draw(BOXES), kids))
    elif what == 2 and member.top:
        del member.levels[draw(st.integers(1, member.top)) :]
    elif what == 3 and member.top:
        member.levels[draw(st.integers(1, member.top))].box = draw(BOXES)
    elif what == 4 and member.top:
        kids = member.levels[draw(st.integers(1, member.top))].children
        for address in draw(st.lists(st.sampled_from(list(kids) or addresses))):
            kids.pop(address, None)
    elif what == 5 and member.top:
        kids = member.levels[draw(st.integers(1, member.top))].children
        kids.update({a: ChildRecord(b, count, now) for a, (b, count) in draw(children).items()})
    elif what == 6:
        member.confirmed, member.denied = draw(st.booleans()), draw(st.booleans())
        member.in_tree, member.moving = draw(st.booleans()), draw(st.booleans())
        member.former, member.join_attempts = draw(st.none() | whom), draw(st.integers(0, 5))
        member.displaced, member.adoption_box = draw(st.booleans()), draw(st.none() | BOXES)
    elif what == 7:
        steps = st.lists(st.tuples(whom, st.integers(0, 9)), max_size=4)
        member.above = tuple(draw(steps))
        member.brothers = draw(st.dictionaries(whom, BOXES, max_size=4))
        member.parent_is_root, member.reported_box = draw(st.booleans()), draw(BOXES)
    elif what == 8:
        trips = st.tuples(st.integers(0, 16), st.integers(0, 10**6))
        member.round_trips = draw(st.dictionaries(whom, trips, max_size=8))
        for level in range(1, member.top + 1):
            for child in member.levels[level].children.values():
                child.brother_latency = draw(st.none() | st.integers(0, 10**6))


@examples(40)
@given(data=st.data())
def test_from_any_state_the_tree_becomes_legal_again(data: st.DataObject) -> None:
    count = data.draw(st.sampled_from([2, 3, 9, 20, 30]))
    strategy = data.draw(st.sampled_from(list(STRATEGIES)))
    promotes = data.draw(st.sampled_from(PROMOTES))
    world = settled_tree(count, strategy=strategy, promotes=promotes, check_ms=1000.0)
    members = world.members()
    victims = data.draw(st.lists(st.sampled_from(list(members)), min_size=1, max_size=2 * count))
    for address in victims:
        data.draw(corrupted(members[address], list(members)))
    world.settle(PERIODS_FROM_GARBAGE)
    assert_nothing_is_missed(world, at_least=-1)
    assert world.faults() == []


def test_two_trees_that_meet_become_one() -> None:
    world = settled_tree(40, check_ms=1000.0)
    members = world.members()
    halves: dict[bool, list[int]] = {True: [], False: []}
    for address in members:
        halves[address < 20 * SLOTS].append(address)
    for half in halves.values():
        for address in half:
            member = members[address]
            member.drop_levels(1)
            member.set_parent(half[0] if address != half[0] else None)
    world.settle(PERIODS_FROM_GARBAGE)
