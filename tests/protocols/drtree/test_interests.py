"""What a peer wants: several areas, grouped or not, and predicates whose variables change."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.commands import Move, Publish, Subscribe, Tune, Unsubscribe
from nearcast.model.subscription import Filter, Formula
from nearcast.node import Note
from nearcast.protocols.drtree.interests import group_touching
from nearcast.protocols.drtree.messages import SLOTS
from nearcast.protocols.drtree.parameters import AREAS, Parameters
from nearcast.protocols.drtree.strategies import STRATEGIES
from nearcast.space.boxes import BoxBounds, overlaps
from nearcast.space.motion import Moving, line
from nearcast.space.shapes import EVERYWHERE, box, disc, point
from support.drtree_worlds import DRTreeWorld, assert_delivered_exactly
from support.examples import examples

EVERYTHING = Moving(EVERYWHERE)
SIDES = st.tuples(st.integers(0, 20), st.integers(0, 6)).map(lambda s: (s[0], s[0] + s[1]))
BOXES = st.tuples(SIDES, SIDES).map(
    lambda s: BoxBounds((float(s[0][0]), float(s[1][0])), (float(s[0][1]), float(s[1][1])))
)


@examples(100)
@given(st.dictionaries(st.tuples(st.integers(0, 99), st.integers(0, 3)), BOXES, max_size=12))
def test_two_areas_are_in_one_group_if_a_chain_of_touching_ones_leads_to_the_other(
    areas: dict[tuple[int, int], BoxBounds],
) -> None:
    reached = {a: {b for b in areas if overlaps(areas[a], areas[b])} for a in areas}
    for via in areas:
        for one in areas:
            if via in reached[one]:
                reached[one] |= reached[via]
    groups = group_touching(areas)
    assert sorted(name for group in groups for name in group) == sorted(areas)
    for group in groups:
        assert all(reached[name] == set(group) for name in group)


def slots(world: DRTreeWorld, node: int) -> list[int]:
    living = [a for a, member in world.members().items() if not member.gone]
    return sorted(address % SLOTS for address in living if address // SLOTS == node)


def split(**parameters: object) -> DRTreeWorld:
    world = DRTreeWorld(Parameters(areas="split", check_ms=1000.0, **parameters))
    for node in range(10, 20):
        world.join(node, box(10.0 * node, 0, 4, 4))
    return world


def test_areas_that_touch_have_one_member_and_disjoint_ones_a_member_each() -> None:
    world = split()
    world.join(1, box(0, 0, 5, 5), box(8, 0, 3, 3), box(50, 0, 5, 5))
    world.pass_periods(6)
    world.settle()
    assert slots(world, 1) == [0, 1]
    boxes = [world.members()[SLOTS + slot].levels[0].box for slot in (0, 1)]
    assert [(round(b.low[0]), round(b.high[0])) for b in boxes] == [(-5, 11), (45, 55)]


def test_an_area_that_comes_between_two_makes_them_one_and_its_end_parts_them() -> None:
    world = split()
    world.join(1, box(0, 0, 5, 5), box(20, 0, 5, 5))
    world.pass_periods(6)
    world.settle()
    assert slots(world, 1) == [0, 1]
    world.simulation.obey(1, Subscribe(99, Moving(box(10, 0, 5, 5))))
    world.pass_periods(12)
    world.settle()
    assert len(slots(world, 1)) == 1
    world.simulation.obey(1, Unsubscribe(99))
    world.pass_periods(12)
    world.settle()
    assert len(slots(world, 1)) == 2


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_while_areas_part_and_meet_again_nothing_is_missed_or_delivered_twice(
    strategy: str,
) -> None:
    """Jumps aside, whose new places nobody can know at once: areas stay where they are wanted."""
    rng = Random(11)
    world = split(strategy=strategy)
    wide = [(x, 0.0) for x in range(0, 100, 12)]
    world.join(1, *[box(x, y, 4, 4) for x, y in wide])
    world.pass_periods(8)
    world.settle()
    for number in range(240):
        if number % 16 == 0:  # a bridge between two of them comes or goes
            left = 6.0 + 12 * (number // 32)
            bridge = Subscribe(5000 + number // 32, Moving(box(left, 0, 4, 4)))
            world.simulation.obey(1, Unsubscribe(5000 + number // 32) if number % 32 else bridge)
            world.pass_periods(0.5)
        x = rng.choice(wide)[0] + rng.uniform(-1, 1)
        world.simulation.obey(10 + number % 10, Publish(number, point(x, 0)))
        world.pass_periods(0.05)
    world.pass_periods(2)
    world.simulation.recorder.close()
    assert_delivered_exactly(world.memory, at_least=200)


@pytest.mark.parametrize("areas", AREAS)
def test_moving_areas_of_one_peer_receive_wherever_they_meet(areas: str) -> None:
    world = DRTreeWorld(Parameters(areas=areas, check_ms=1000.0))
    for node in range(10, 22):
        world.join(node, box(10.0 * node, 0, 4, 4))
    world.join(1)
    for number in range(4):  # two from the left, two from the right
        walk = line(disc(300.0 * (number % 2), 5.0 * number, 8), (150, 0, 0), 10)
        world.simulation.obey(1, Subscribe(100 + number, walk))
    world.pass_periods(8)
    for number in range(300):
        world.simulation.obey(10 + number % 12, Publish(number, point(60 + 0.6 * number, 0)))
        world.pass_periods(0.1)
    world.simulation.recorder.close()
    assert_delivered_exactly(world.memory, at_least=50)


# Ranges.


def prices(areas: str) -> tuple[DRTreeWorld, int]:
    """Peers that want the cheap and the dear, and publications of every price between."""
    world = DRTreeWorld(Parameters(areas=areas, dimensions="x,price", check_ms=1000.0))
    for node in range(20):
        world.join(node)
        low, high = 10 + node, 90 - node
        text = f"price <= {low} or price >= {high}, price >= {low - 3}, price <= {high + 3}"
        world.simulation.obey(node, Subscribe(node, EVERYTHING, Filter(text)))
    world.pass_periods(10)
    world.settle()
    for number in range(300):
        price = {"price": 5.0 + number % 90}
        world.simulation.obey(number % 20, Publish(number, point(0, 0), attributes=price))
        world.pass_periods(0.05)
    world.pass_periods(2)
    world.simulation.recorder.close()
    rows = world.memory.table("messages").select(["publication", "to"]).to_pylist()
    reached = {(row["publication"], row["to"]) for row in rows if row["publication"] is not None}
    return world, len(reached)


def test_disjoint_ranges_are_rectangles_of_their_own_which_reach_fewer_in_vain() -> None:
    whole, reached = prices("merged")
    assert slots(whole, 3) == [0]
    apart, fewer = prices("split")
    assert slots(apart, 3) == [0, 1]
    boxes = [apart.members()[3 * SLOTS + slot].levels[0].box for slot in (0, 1)]
    sides = sorted((round(b.low[1]), round(b.high[1])) for b in boxes)
    assert sides == [(10, 13), (87, 90)]
    for world in (whole, apart):
        assert_delivered_exactly(world.memory, at_least=200)
    assert fewer < 0.7 * reached


def test_a_filter_may_gain_and_lose_ranges() -> None:
    world = DRTreeWorld(Parameters(areas="split", dimensions="x,price", check_ms=1000.0))
    for node in range(8):
        world.join(node)
        world.simulation.obey(node, Subscribe(node, EVERYTHING, Filter(f"price == {node}")))
    number = 0
    for text, members in [
        ("price < 3 or price > 9", 2),
        ("price < 3 or price > 9 or price == 6", 3),
        ("price > 9", 1),
        ("price < 3 or kind == 'gift'", 1),  # a gift may have any price
        ("price < 3 or price > 9 + 0 * t", 2),
    ]:
        world.simulation.obey(0, Subscribe(0, EVERYTHING, Filter(text)))
        world.pass_periods(12)
        world.settle()
        assert len(slots(world, 0)) == members, text
        for price in (2, 5, 6, 10, None):
            number += 1
            attributes = {"kind": "gift"} if price is None else {"price": price}
            world.simulation.obey(4, Publish(number, point(0, 0), attributes=attributes))
            world.pass_periods(0.1)
    world.pass_periods(2)
    world.simulation.recorder.close()
    assert_delivered_exactly(world.memory, at_least=10)


# Variables.


@pytest.mark.parametrize("areas", AREAS)
@pytest.mark.parametrize("dimensions", ["x,y", "x,weight"])
def test_what_is_delivered_after_tunes_is_what_is_wanted(areas: str, dimensions: str) -> None:
    world = DRTreeWorld(Parameters(areas=areas, dimensions=dimensions, check_ms=1000.0))
    for node in range(12):
        world.join(node)
        numbers = {"view": 3.0 + node, "most": 4.0}
        wide = Subscribe(node, "x <= view + 5, x >= 0", "weight < most", variables=numbers)
        world.simulation.obey(node, wide)
    world.pass_periods(6)
    world.settle()
    for round_ in range(4):
        for node in range(0, 12, 2):
            variable = "most" if round_ == 2 else "view"
            world.simulation.obey(node, Tune(node, {variable: 2.0 + 5 * round_}))
        world.pass_periods(1)
        for number in range(60):
            shape = point(number % 30, 0)
            publish = Publish(100 * round_ + number, shape, attributes={"weight": number % 7})
            world.simulation.obey(number % 12, publish)
        world.pass_periods(1)
    world.simulation.recorder.close()
    assert_delivered_exactly(world.memory, at_least=300)
    rows = world.memory.table("interests").to_pylist()
    assert len(rows) == 12 + 4 * 6


def test_a_tune_of_what_has_no_variables_is_ignored_and_one_without_a_value_refused() -> None:
    world = DRTreeWorld(Parameters(check_ms=1000.0))
    peer = world.join(1, box(0, 0, 1, 1))
    now = world.simulation.now

    def notes(command: Tune) -> list[Note]:
        return [effect for effect in peer.obey(now, command) if isinstance(effect, Note)]

    assert notes(Tune(7, {"view": 1.0})) == [Note("ignored", 7)]
    assert notes(Tune(1000, {"view": 1.0})) == [Note("ignored", 1000)]
    peer.obey(now, Subscribe(7, "x <= 1 / view", variables={"view": 2.0}))
    wanted = peer.active.current[7]
    assert notes(Tune(7, {"view": 0.0})) == [Note("refused", 7)]
    assert peer.active.current[7] == wanted
    assert peer.interests.present()[7, 0] == 0
    peer.obey(now, Move(7, Moving(disc(0, 0, 1))))
    peer.obey(now, Unsubscribe(7))
    assert notes(Tune(7, {"view": 1.0})) == [Note("ignored", 7)]


def orbits(world: DRTreeWorld, count: int = 40) -> None:
    """Peers whose areas go round on circles, and whose price rises: formulas and filters of t."""
    rng = Random(3)
    for node in range(count):
        world.join(node)
        x, y, phase = rng.uniform(0, 500), rng.uniform(0, 500), rng.uniform(0, 6)
        text = (
            f"x >= {x} - 30 + 40 * cos({phase} + t / 4), x <= {x} + 30 + 40 * cos({phase} + t / 4),"
            f" y >= {y} - 30 + 40 * sin({phase} + t / 4), y <= {y} + 30 + 40 * sin({phase} + t / 4)"
        )
        wanted = Subscribe(node, Formula(text), Filter("price < 2 + t / 10"), echo=True)
        world.simulation.obey(node, wanted)


@pytest.mark.parametrize("dimensions", ["x,y", "x,y,price"])
def test_what_evolves_is_bounded_and_nothing_is_missed(dimensions: str) -> None:
    world = DRTreeWorld(Parameters(dimensions=dimensions, check_ms=1000.0))
    orbits(world)
    world.pass_periods(10)
    rng = Random(4)
    for number in range(1500):
        place = point(rng.uniform(-50, 550), rng.uniform(-50, 550))
        price = {"price": rng.uniform(0, 6)}
        world.simulation.obey(number % 40, Publish(number, place, attributes=price))
        world.pass_periods(0.02)
    world.pass_periods(2)
    world.simulation.recorder.close()
    assert_delivered_exactly(world.memory)
    messages = world.memory.table("messages").select(["publication", "to"]).drop_null()
    reached = set(zip(*messages.to_pydict().values(), strict=True))
    assert len(reached) < 1500 * 40 / 4, "unbounded boxes reach nearly everybody"
