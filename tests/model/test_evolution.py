"""A subscriber's choice of how brokers follow its subscription."""

from math import inf

import msgspec
import pytest

from nearcast.model.commands import Move, Subscribe, Tune
from nearcast.model.evolution import Evolution, chosen_evolution, parse_evolution
from nearcast.model.interests import ActiveInterests
from nearcast.model.subscription import Subscription
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import disc

HERE = Moving(disc(0, 0, 1))


@pytest.mark.parametrize(
    ("said", "means"),
    [
        (("", None, None), None),
        (("periodic", 0.5, None), Evolution("periodic", SECOND // 2)),
        (("periodic", None, None), Evolution("periodic")),
        (("cached", None, 0), Evolution("cached", 0)),
        (("lazy", None, None), Evolution("lazy")),
        (("swept", None, None), Evolution("swept")),
    ],
)
def test_an_application_says_it_in_seconds(said: tuple, means: Evolution | None) -> None:
    assert chosen_evolution(*said) == means


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (("lazy", 0.5, None), 'interval is of a subscription with evolve="periodic"'),
        (("periodic", None, 0.5), 'threshold is of a subscription with evolve="cached"'),
        (("", 0.5, None), 'interval is of a subscription with evolve="periodic"'),
        (("periodic", 0.001, None), "interval is from 0.01 to 10000 seconds, not 0.001"),
        (("periodic", inf, None), "interval is from 0.01 to 10000 seconds, not inf"),
        (("cached", None, -3.0), "threshold is from 0 to 10000 seconds, not -3"),
    ],
)
def test_what_makes_no_sense_is_refused(said: tuple, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        chosen_evolution(*said)


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("lazy", Evolution("lazy")),
        (" periodic:0.5", Evolution("periodic", SECOND // 2)),
        ("cached:2e-1", Evolution("cached", SECOND // 5)),
        ("cached", Evolution("cached")),
    ],
)
def test_a_choice_is_also_a_text(text: str, means: Evolution) -> None:
    assert parse_evolution(text) == means


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "in one of these ways, not '': periodic, lazy, cached, swept"),
        ("Lazy", "not 'Lazy'"),
        ("lazy:1", "a lazy subscription is exact"),
        ("periodic:", "'' is no number of seconds"),
        ("periodic:nan", "interval is from 0.01 to 10000 seconds, not nan"),
    ],
)
def test_a_text_that_is_no_choice_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_evolution(text)


def test_exact_ways_have_no_interval_on_any_wire() -> None:
    for text in (
        b'["lazy", 5]',
        b'["swept", 5]',
        b'["periodic", 5]',
        b'["weekly"]',
        b'["cached", -1]',
    ):
        with pytest.raises(msgspec.ValidationError):
            msgspec.json.decode(text, type=Evolution)
    assert msgspec.json.decode(b'["periodic", 500000]', type=Evolution) == Evolution(
        "periodic", SECOND // 2
    )


def test_a_choice_stays_whatever_happens_to_the_subscription() -> None:
    choice = Evolution("cached", SECOND)
    interests = ActiveInterests()
    text, filter_ = "x <= a + t", "weight > a"
    interests.apply(Subscribe(7, text, filter_, "", False, {"a": 1.0}, choice), 1, 5)
    for command in (Tune(7, {"a": 2.0}), Move(7, HERE)):
        interests.apply(command, 1, 9)
        assert interests.current[7].evolution == choice
    subscription = interests.current[7]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(subscription), type=Subscription) == (
        subscription
    )
