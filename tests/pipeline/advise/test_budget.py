"""How much fits into the time that is left, by a clock that the test owns."""

import pytest

from nearcast.pipeline.advise.budget import (
    FIRST_MEASURE_S,
    REPORT_S,
    Budget,
    Estimated,
    choose_runs,
    estimate_s,
)


class Clock:
    """A clock that stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_time_for_measuring_is_kept_back() -> None:
    clock = Clock()
    budget = Budget(300.0, clock)
    assert budget.left_s == 300
    assert budget.for_runs_s == 300 - FIRST_MEASURE_S - REPORT_S
    clock.now += 100
    budget.measured_in(15.0)
    assert budget.left_s == 200
    assert budget.for_runs_s == 200 - 15 - REPORT_S
    budget.measured_in(150.0)
    assert budget.for_runs_s == 200 - 0.4 * 200 - REPORT_S
    assert budget.ends_at(0.5) == clock.now + 0.5 * budget.for_runs_s
    clock.now += 500
    assert (budget.left_s, budget.for_runs_s, budget.ends_at(1.0)) == (0, 0, clock.now)


def test_with_one_run_the_cost_grows_by_the_square_and_two_tell_the_power() -> None:
    assert estimate_s({}, 10) is None
    assert estimate_s({100: 8.0}, 100) == 8
    assert estimate_s({100: 8.0}, 200) == 32
    assert estimate_s({100: 8.0}, 50) == 2
    assert estimate_s({100: 8.0, 200: 24.0}, 400) == pytest.approx(72)
    assert estimate_s({100: 8.0, 200: 8.0}, 400) == 16  # never less than proportional
    assert estimate_s({100: 0.2, 200: 100.0}, 800) == pytest.approx(3200)  # nor beyond power 2.5


def test_what_every_run_takes_does_not_grow() -> None:
    assert estimate_s({100: 8.0}, 200, least_s=6.0) == 6 + 2 * 4
    assert estimate_s({7: 6.0}, 70, least_s=6.0) == pytest.approx(6 + 1.5 * 100)


def estimated(*costs: float | None) -> list[Estimated]:
    return [Estimated((f"run {place}", 1.0), cost) for place, cost in enumerate(costs)]


def test_the_cheapest_are_chosen_first_and_unknown_ones_are_tried_last() -> None:
    chosen, others = choose_runs(estimated(50.0, None, 10.0, 90.0, 40.0), slots=1, seconds=100.0)
    assert [each.seconds for each in chosen] == [10, 40, 50, None]
    assert [each.seconds for each in others] == [90]


def test_several_cores_have_room_for_more_but_not_for_a_longer_run() -> None:
    chosen, others = choose_runs(estimated(60.0, 70.0, 60.0, 101.0), slots=2, seconds=100.0)
    assert [each.seconds for each in chosen] == [60, 60, 70]
    assert [each.seconds for each in others] == [101]


def test_without_time_nothing_is_chosen() -> None:
    assert choose_runs(estimated(None, 0.0), slots=8, seconds=0.0)[0] == []
