"""What evolves, until when, and what it is at one moment."""

import pytest
from hypothesis import given

from nearcast.model.freezing import freeze
from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import Filter, Formula, Subscription, evolves, stops_evolving_at
from nearcast.space.motion import SECOND, Moving, Path, line, path
from nearcast.space.shapes import box, disc
from support.examples import examples
from support.strategies import TIMES, publications, subscriptions

WALK = line(box(0, 0, 3, 2), (20.0, 10.0, 0.0), 2.0)
WAIT = Moving(disc(1, 0, 1), since=5 * SECOND)


@examples(100)
@given(wanted=subscriptions(), said=publications(), t=TIMES)
def test_what_is_frozen_wants_at_all_times_what_was_wanted_at_that_moment(
    wanted: Subscription, said: Publication, t: int
) -> None:
    still = freeze(wanted, t)
    for later in (0, t, 10**9):
        assert (still is not None and wants(still, said, later)) == wants(wanted, said, t)
    if still is not None:
        assert not evolves(still)


def test_all_that_are_frozen_alike_are_equal() -> None:
    early, late = (
        Subscription(1, 1, WALK.stamped(since), Filter("price < 3 + t", since))
        for since in (0, 9 * SECOND)
    )
    assert freeze(early, 2 * SECOND) == freeze(late, 11 * SECOND)


def test_a_text_keeps_its_constants() -> None:
    wanted = Subscription(
        1, 1, Formula("x < t"), Filter("kind == 'a \"b\"', ripe == true, price < t")
    )
    assert freeze(wanted, SECOND) == Subscription(
        1, 1, Formula("x < 1.0"), Filter("kind == 'a \"b\"', ripe == true, price < 1.0")
    )


def test_what_has_no_value_wants_nothing() -> None:
    assert freeze(Subscription(1, 1, Formula("x < 1 / (t - 1)")), SECOND) is None
    filtered = Subscription(1, 1, WALK, Filter("price < 1 / (t - 1)"))
    assert freeze(filtered, SECOND) is None


@pytest.mark.parametrize(
    ("region", "moment", "answer"),
    [
        (WALK, 0, True),
        (WALK, WALK.until, False),
        (Moving(disc(0, 0, 1)), 0, False),
        (Moving(disc(0, 0, 1), (1.0, 0.0, 0.0)), 10**12, True),
        (path(disc(0, 0, 1), [(1.0, 0.0, 0.0), (1.0, 1.0, 0.0)], 1.0), SECOND, True),
        (path(disc(0, 0, 1), [(1.0, 0.0, 0.0), (1.0, 1.0, 0.0)], 1.0), 2 * SECOND, False),
        (Path((line(disc(0, 0, 1), (1.0, 0.0, 0.0), 1.0), WAIT)), 0, True),
        (Path((line(disc(0, 0, 1), (1.0, 0.0, 0.0), 1.0), WAIT)), WAIT.since, False),
        (Formula("x > 3"), 0, False),
        (Formula("x > t"), 10**12, True),
    ],
)
def test_a_subscription_evolves_until_its_motion_ends(
    region: object, moment: int, answer: bool
) -> None:
    assert (stops_evolving_at(Subscription(1, 1, region)) > moment) == answer
