"""Who comes and goes."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.space.motion import SECOND, Time
from nearcast.workloads.churn import MOST, ChurnAction, Parameters, population
from nearcast.workloads.workload import NUMBERS, STAYS, first_id
from support.examples import examples

RUN = 20.0

everything = st.fixed_dictionaries(
    {
        "join_rate": st.sampled_from((0.0, 0.5, 3.0, 100.0)),
        "churn_rate": st.sampled_from((0.0, 0.3, 7.0)),
        "churn_from": st.floats(0, 5),
        "churn_until": st.one_of(st.just(0.0), st.floats(5, 30)),
        "churn_by": st.sampled_from(("leave", "crash")),
        "flash_at": st.floats(0, RUN, exclude_max=True),
        "flash_nodes": st.integers(0, 10),
        "flash_s": st.sampled_from((0.0, 0.5, 2.0)),
        "flash_every": st.sampled_from((0.0, 2.0, 7.0)),
        "crash_at": st.floats(0, RUN, exclude_max=True),
        "crash_share": st.floats(0, 1),
    }
)


def acts(
    entities: int = 10, seconds: float = RUN, seed: int = 1, **chosen: Any
) -> list[tuple[Time, int, ChurnAction]]:
    return list(population(Parameters(**chosen), entities, seconds, seed))


@examples(200)
@given(chosen=everything, entities=st.integers(1, 12), seed=st.integers(0, 9))
def test_everyone_joins_once_goes_at_most_once_and_somebody_is_always_there(
    chosen: dict[str, Any], entities: int, seed: int
) -> None:
    found = acts(entities, seed=seed, **chosen)
    present: set[int] = set()
    joined: list[int] = []
    for _, entity, act in found:
        if act is ChurnAction.JOIN:
            joined.append(entity)
            present.add(entity)
        else:
            present.remove(entity)  # fails if he is not here
        assert present
    times = [t for t, _, _ in found]
    assert times == sorted(times)
    assert times[0] == 0
    assert times[-1] < RUN * SECOND
    first = [entity for entity in joined if entity < entities]
    fresh = [entity for entity in joined if entity >= entities]
    assert first == list(range(len(first)))
    assert fresh == list(range(entities, entities + len(fresh)))


@examples(50)
@given(chosen=everything, entities=st.integers(1, 12), seed=st.integers(0, 9))
def test_equal_seeds_give_equal_populations(
    chosen: dict[str, Any], entities: int, seed: int
) -> None:
    assert acts(entities, seed=seed, **chosen) == acts(entities, seed=seed, **chosen)


def test_other_seeds_give_other_victims_and_moments() -> None:
    assert acts(churn_rate=2.0, seed=1) != acts(churn_rate=2.0, seed=2)


def test_all_join_at_once_by_default() -> None:
    assert acts(3) == [(0, 0, ChurnAction.JOIN), (0, 1, ChurnAction.JOIN), (0, 2, ChurnAction.JOIN)]


def test_a_join_rate_spaces_the_arrivals_until_the_run_ends() -> None:
    found = acts(100, join_rate=4.0)
    assert found == [(number * SECOND // 4, number, ChurnAction.JOIN) for number in range(80)]


@pytest.mark.parametrize(
    ("by", "act"), [("leave", ChurnAction.LEAVE), ("crash", ChurnAction.CRASH)]
)
def test_churn_exchanges_one_for_one_at_its_rate_and_between_its_times(
    by: str, act: ChurnAction
) -> None:
    found = acts(10, churn_rate=2.0, churn_from=5.0, churn_until=15.0, churn_by=by)
    changes = found[10:]
    joins, goings = changes[::2], changes[1::2]
    assert [a for _, _, a in joins] == [ChurnAction.JOIN] * 20
    assert [a for _, _, a in goings] == [act] * 20
    assert [t for t, _, _ in joins] == [t for t, _, _ in goings]
    assert [(t - 5 * SECOND) * 2 // SECOND for t, _, _ in joins] == list(range(20))
    assert len({t * 2 % SECOND for t, _, _ in joins}) > 15


def test_churn_takes_anybody() -> None:
    gone = [entity for _, entity, act in acts(5, 400.0, churn_rate=5.0) if act is ChurnAction.LEAVE]
    assert len(gone) == 2000
    assert {0, 1, 2, 3, 4} <= set(gone)
    stays = Counter(entity for entity in gone if entity >= 5)
    assert max(stays.values()) == 1


def test_a_flash_crowd_joins_at_its_moment_with_fresh_numbers() -> None:
    found = acts(2, flash_at=7.5, flash_nodes=3)
    assert found[2:] == [(15 * SECOND // 2, number, ChurnAction.JOIN) for number in (2, 3, 4)]


def test_members_of_a_flash_crowd_may_crash_too() -> None:
    found = acts(2, flash_at=7.5, flash_nodes=30, crash_at=8.0, crash_share=1.0)
    assert len([act for _, _, act in found if act is ChurnAction.CRASH]) == 31


def test_crowds_come_and_leave_again_and_again() -> None:
    found = acts(2, flash_at=1.0, flash_nodes=2, flash_s=3.0, flash_every=8.0)
    join, leave = ChurnAction.JOIN, ChurnAction.LEAVE
    times = [1, 4, 9, 12, 17]
    assert found[2:] == [
        (times[k] * SECOND, number, leave if k % 2 else join)
        for k, numbers in enumerate([(2, 3), (2, 3), (4, 5), (4, 5), (6, 7)])
        for number in numbers
    ]


def test_a_share_of_those_present_crashes_at_its_moment() -> None:
    found = acts(40, crash_at=3.0, crash_share=0.25)[40:]
    assert {(t, act) for t, _, act in found} == {(3 * SECOND, ChurnAction.CRASH)}
    victims = [entity for _, entity, _ in found]
    assert len(victims) == len(set(victims)) == 10
    assert sorted(victims) != list(range(10))
    other = [entity for _, entity, _ in acts(40, seed=2, crash_at=3.0, crash_share=0.25)[40:]]
    assert sorted(victims) != sorted(other)


def test_one_survives_even_if_all_should_crash() -> None:
    assert len(acts(40, crash_at=3.0, crash_share=1.0)) == 79
    assert acts(1, crash_at=3.0, crash_share=1.0) == [(0, 0, ChurnAction.JOIN)]


def test_victims_of_churn_do_not_depend_on_a_later_crowd() -> None:
    quiet = acts(10, churn_rate=2.0, churn_until=8.0)
    crowded = acts(10, churn_rate=2.0, churn_until=8.0, flash_at=9.0, flash_nodes=5)
    assert crowded[: len(quiet)] == quiet


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"join_rate": -1.0}, "join_rate must be between"),
        ({"churn_rate": float("nan")}, "churn_rate must be between"),
        ({"churn_from": 5.0, "churn_until": 4.0}, "churn_until .* is before churn_from"),
        ({"churn_by": "magic"}, "churn_by must be one of leave, crash, not 'magic'"),
        ({"flash_nodes": -1}, "flash_nodes must be between"),
        ({"flash_s": 3.0, "flash_every": 2.0}, "flash_every .* must be at least flash_s"),
        ({"crash_share": 1.5}, "crash_share must be between"),
        ({"flash_at": 20.0, "flash_nodes": 1}, "flash_at .* is not within the run"),
        ({"crash_at": 30.0, "crash_share": 0.1}, "crash_at .* is not within the run"),
        ({"churn_from": 20.0, "churn_rate": 1.0}, "churn_from .* is not within the run"),
        ({"servers_until": 20.0}, "servers_until .* is not within the run"),
        ({"servers_until": -1.0}, "servers_until must be between"),
        ({"churn_rate": 1e5, "flash_nodes": 500_000}, "more than 2,097,152 entities"),
    ],
)
def test_invalid_parameters_are_refused(chosen: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        population(Parameters(**chosen), 10, RUN, 1)


def test_a_run_needs_somebody() -> None:
    with pytest.raises(ValueError, match="entities must be between"):
        population(Parameters(), 0, RUN, 1)


def test_the_last_possible_entity_has_identifiers_below_two_to_the_53() -> None:
    assert first_id(MOST - 1, STAYS - 1) + NUMBERS == 2**53
