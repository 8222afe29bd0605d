"""Shops that publish offers, and people who hear of those near them."""

from itertools import islice, pairwise, takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.commands import Move, Publish, Subscribe
from nearcast.model.evolution import Evolution
from nearcast.model.subscription import Filter
from nearcast.scenario import Scenario
from nearcast.sim.checkers import DeliveredOnce, NotBeforePublished
from nearcast.sim.world import SimulatedWorld
from nearcast.space.motion import SECOND, Moving, Time
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from nearcast.workloads import WORKLOADS
from nearcast.workloads.notifications import District, Parameters, Person, Shop, make
from nearcast.workloads.workload import NUMBERS, first_id
from support.brute_force import delivered, expected
from support.examples import examples


def district(seed: int = 1, **chosen: object) -> District:
    made = make(Parameters(**chosen), 50, 60.0, seed)
    assert isinstance(made, District)
    return made


@examples(40)
@given(
    shops=st.floats(0, 1),
    rate=st.floats(0.1, 50),
    pause=st.floats(0, 10),
    speed=st.floats(0.1, 1000),
    life=st.tuples(st.integers(0, 30), st.integers(0, 3), st.integers(0, 3 * SECOND)),
)
def test_a_script_satisfies_the_contract_of_every_workload(
    life: tuple[int, int, Time], **chosen: object
) -> None:
    one = district(**chosen)
    commands = list(islice(one.life(*life).commands(), 60))
    assert list(islice(one.life(*life).commands(), 60)) == commands
    moments = [t for t, _ in commands]
    assert moments == sorted(set(moments)) and moments[0] >= life[2]
    first = first_id(life[0], life[1])
    names = [
        command.publication if isinstance(command, Publish) else command.subscription
        for _, command in commands
    ]
    assert all(first <= name < first + NUMBERS for name in names)
    if isinstance(one.life(*life), Shop):
        assert names == list(range(first, first + len(names)))
    else:
        assert set(names) == {first}


def test_the_area_of_a_person_is_where_the_person_is() -> None:
    one = district(shops=0.0)
    person = one.life(3, 0, 5 * SECOND)
    commands = takewhile(lambda scheduled: scheduled[0] < 300 * SECOND, person.commands())
    drives = [
        (t, command.region) for t, command in commands if isinstance(command, Subscribe | Move)
    ]
    assert len(drives) > 3
    for (t, region), (until, _) in pairwise(drives):
        assert isinstance(region, Moving)
        for moment in (t, (t + until) // 2, until - 1):
            here = region.stamped(t).at(moment)
            assert person.position(moment) == pytest.approx((here.x, here.y, here.z))
            assert 0 <= here.x <= 1000 and 0 <= here.y <= 1000


def test_offers_and_wishes_are_about_categories_and_prices() -> None:
    one = district(categories=2, cheap=1.5, evolve="periodic:0.5, lazy")
    lives = [one.life(entity, 0, 0) for entity in range(50)]
    assert 5 < sum(isinstance(life, Shop) for life in lives) < 25
    for life in lives:
        commands = [command for _, command in islice(life.commands(), 20)]
        if isinstance(life, Person):
            begun = commands[0]
            assert isinstance(begun, Subscribe) and isinstance(begun.filter, Filter)
            assert begun.filter.text in [f'category == "C{k}" or price < 1.5' for k in (0, 1)]
            ways = (Evolution("periodic", SECOND // 2), Evolution("lazy"))
            assert begun.evolution == ways[life.entity % 2]
        for command in commands:
            if isinstance(command, Publish):
                price = command.attributes["price"]
                assert isinstance(price, float) and 0 <= price <= 10
                assert command.attributes["category"] in ("C0", "C1")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"evolve": "weekly"}, "not 'weekly'"),
        ({"evolve": "lazy,,"}, "not ''"),
        ({"shops": 2}, "shops"),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: dict[str, object], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        WORKLOADS["notifications"].parameters(**wrong)


def test_people_who_choose_exact_ways_hear_exactly_what_is_near_them() -> None:
    """In one network with people whose areas are two seconds old."""
    memory = MemoryTrace()
    scenario = Scenario(
        protocol="brokers", workload="notifications", nodes=40, seconds=6.0,
        settings={
            "evolve": "periodic:2,lazy,swept", "latency_ms": 0.0, "speed": 200.0, "rate": 3.0,
            "radius": 200.0, "brokers": 3,
        },
    )  # fmt: skip
    world = SimulatedWorld(
        scenario, lambda _: Recorder(memory), (DeliveredOnce(), NotBeforePublished())
    )
    world.run()
    world.recorder.close()
    received = set(delivered(memory.table("deliveries")))
    should = expected(memory.table("interests"), memory.table("publications"))
    stale = {
        row["subscription"] for row in memory.table("interests").to_pylist() if row["node"] % 3 == 0
    }
    exact = {pair for pair in should if pair[1] not in stale}
    assert len(exact) > 50
    assert {pair for pair in received if pair[1] not in stale} == exact
    assert received != should, "versions of two seconds ago are not exact"
