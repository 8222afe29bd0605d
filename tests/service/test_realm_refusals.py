"""What a realm refuses, in which words, and that a refusal changes nothing."""

from math import inf, nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.client_protocol.limits import Limits
from nearcast.errors import Refused
from nearcast.space.motion import SECOND
from nearcast.trace.schema import TABLES
from support.examples import examples
from support.realm_histories import FLUSH, HISTORIES, TICK, RealmHarness, Step

HERE = Area(x=0.0, y=0.0, r=5.0)
LIMITS = Limits(subscriptions=3, channels=2, extent=100, legs=3, formula=60, payload=10, name=8)
BAD = [
    (messages.SubscribeRequest(-1, HERE), "a subscription's number is from 0 to 2**53 - 1"),
    (messages.SubscribeRequest(2**53, HERE), "a subscription's number is from 0 to 2**53 - 1"),
    (messages.SubscribeRequest(0, Area(x=1.0)), "an area needs x and y"),
    (messages.SubscribeRequest(0, Area(x=nan, y=0.0)), "a centre must be within"),
    (messages.SubscribeRequest(0, Area(x=0.0, y=0.0, r=-1.0)), "extents must be 0 or more"),
    (messages.SubscribeRequest(0, Area(x=0.0, y=0.0, r=101.0)),
     "reaches at most 100 from its centre"),
    (messages.SubscribeRequest(0, Area(x=0.0, y=0.0, rx=inf, ry=101.0)),
     "at most 100 from its centre"),
    (messages.SubscribeRequest(0, Area(x=0.0, y=0.0, to=[[1.0, 1.0]] * 5, speed=1.0)),
     "and at most 3"),
    (messages.SubscribeRequest(0, Area(x=0.0, y=0.0, to=[], speed=1.0)),
     "goes to at least one place"),
    (messages.SubscribeRequest(0, Area(x=0.0, y=0.0, to=[[1.0]], speed=1.0)),
     "two or three numbers"),
    (messages.SubscribeRequest(0, Area(x=0.0, y=0.0, to=[[9.0071992547e9, 0.0], [0.0, 0.0]],
                                    speed=1.0)),
     "a region cannot begin at 90071992647"),
    (messages.SubscribeRequest(0, Area(formula="x <")), "expected a value, found the end"),
    (messages.SubscribeRequest(0, Area(formula="x < wide")), "unknown name 'wide'"),
    (messages.SubscribeRequest(0, Area(formula="x < 1", r=2.0)),
     "an area with a formula has no other"),
    (messages.SubscribeRequest(0, Area(formula="x < 1" + " " * 60)), "at most 60 characters"),
    (messages.SubscribeRequest(0, HERE, "kind < 1" + " " * 60), "at most 60 characters"),
    (messages.SubscribeRequest(0, HERE, "x < 1"), "a filter cannot speak of x, y or z"),
    (messages.SubscribeRequest(0, HERE, "a < b", variables={"b": nan}),
     "variable 'b' must be finite"),
    (messages.SubscribeRequest(0, HERE, channel="too long a name"),
     "a channel has at most 8 characters"),
    (messages.SubscribeRequest(0, HERE, channel="\ud800"), "a channel must be text"),
    (messages.SubscribeRequest(0, HERE, watch=True, linger=nan), "from 0 to 3600"),
    (messages.SubscribeRequest(0, HERE, watch=True, linger=-1.0), "from 0 to 3600"),
    (messages.SubscribeRequest(0, HERE, rates=[(-1.0, 5.0)]), "a distance of 0 or more, not -1.0"),
    (messages.SubscribeRequest(0, HERE, rates=[(1.0, -5.0)]),
     "at least 0.01 messages a second, not -5.0"),
    (messages.SubscribeRequest(0, HERE, rates=[(1.0, 5.0)] * 5), "at most 4 rates"),
    (messages.SubscribeRequest(0, HERE, closest=0), "at least one, not 0"),
    (messages.SubscribeRequest(0, HERE, budget=0.0), "above 0 bytes a second"),
    (messages.SubscribeRequest(0, closest=3), "need an area with a centre"),
    (messages.SubscribeRequest(0, Area(formula="x < 1"), rates=[(1.0, 5.0)]),
     "an area with a centre"),
    (messages.MoveRequest(9, HERE), "there is no subscription 9"),
    (messages.MoveRequest(0, Area(formula="x < other")), "unknown name 'other'"),
    (messages.MoveRequest(0, Area(x=0.0, y=0.0, speed=1.0)), "a speed needs a path"),
    (messages.MoveRequest(1, Area()), "need an area with a centre"),
    (messages.TuneRequest(9, {"wide": 1.0}), "there is no subscription 9"),
    (messages.TuneRequest(0, {"other": 1.0}), "subscription 0 has no variable 'other'"),
    (messages.TuneRequest(0, {"wide": 0.0}), "has no value"),
    (messages.TuneRequest(0, {}), "to tune is to name a variable"),
    (messages.UnsubscribeRequest(9), "there is no subscription 9"),
    (messages.PublishRequest(nan, 0.0), "a centre must be within"),
    (messages.PublishRequest(0.0, 1e200), "a centre must be within"),
    (messages.PublishRequest(0.0, 0.0, r=101.0), "reaches at most 100 from its centre"),
    (messages.PublishRequest(0.0, 0.0, r=1.0, rx=1.0), "not both"),
    (messages.PublishRequest(0.0, 0.0, rx=1.0), "a box needs both rx and ry"),
    (messages.PublishRequest(0.0, 0.0, Raw(b"12345678901")), "a payload has at most 10 bytes"),
    (messages.PublishRequest(0.0, 0.0, attributes={"x": 1}), "'x' cannot be an attribute"),
    (messages.PublishRequest(0.0, 0.0, attributes={"a": nan}), "attribute 'a' must be finite"),
    (messages.PublishRequest(0.0, 0.0, channel="too long a name"),
     "a channel has at most 8 characters"),
    (messages.NearbyRequest(Area(x=0.0)), "an area needs x and y"),
    (messages.NearbyRequest(HERE, limit=-1), "from 0 to 1000 entities are listed"),
    (messages.NearbyRequest(HERE, limit=1001), "from 0 to 1000 entities are listed"),
]  # fmt: skip


def prepared() -> RealmHarness:
    """One client with two subscriptions, one of which can be tuned to have no value."""
    harness = RealmHarness(limits=LIMITS)
    harness.ask(0, messages.SubscribeRequest(0, HERE, "a < 1 / wide", variables={"wide": 1.0}))
    harness.ask(0, messages.SubscribeRequest(1, HERE, closest=3))
    return harness


@pytest.mark.parametrize(("request_", "why"), BAD)
def test_each_is_refused_in_a_clear_line(request_: Any, why: str) -> None:
    harness = prepared()
    with pytest.raises(Refused) as refused:
        harness.ask(0, request_)
    assert why in str(refused.value)
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 320


def test_a_client_has_so_many_subscriptions_and_may_replace_the_last() -> None:
    harness = prepared()
    harness.ask(0, messages.SubscribeRequest(2, HERE))
    with pytest.raises(Refused, match="a client has at most 3 subscriptions"):
        harness.ask(0, messages.SubscribeRequest(3, HERE))
    harness.ask(0, messages.SubscribeRequest(2, HERE, echo=True))
    harness.ask(0, messages.UnsubscribeRequest(0))
    harness.ask(0, messages.SubscribeRequest(3, HERE))


def test_a_client_publishes_on_so_many_channels() -> None:
    harness = prepared()
    for channel in ("", "chat"):
        harness.ask(0, messages.PublishRequest(0.0, 0.0, channel=channel))
    with pytest.raises(Refused, match="a client publishes on at most 2 channels"):
        harness.ask(0, messages.PublishRequest(0.0, 0.0, channel="third"))
    harness.ask(0, messages.PublishRequest(0.0, 0.0, channel="chat"))


def test_a_name_has_so_many_characters() -> None:
    realm = prepared().realm
    with pytest.raises(Refused, match="a name has at most 8 characters"):
        realm.join(0, "too long a name")


def test_limits_are_reached_before_they_are_passed() -> None:
    harness = prepared()
    harness.ask(0, messages.SubscribeRequest(2, Area(x=0.0, y=0.0, r=100.0), channel="12345678"))
    harness.ask(0, messages.PublishRequest(0.0, 0.0, Raw(b"1234567890"), channel="12345678"))
    harness.ask(0, messages.MoveRequest(2, Area(x=0.0, y=0.0, to=[[1.0, 1.0]] * 3, speed=1.0)))
    harness.ask(0, messages.MoveRequest(2, Area(x=0.0, y=0.0, rx=inf, ry=100.0)))


def outcome(harness: RealmHarness, history: list[Step], bad: dict[int, Any]) -> list[Any]:
    """All that the realm says and records, with refused requests before some of the steps."""
    said: list[Any] = []
    for i, (later, client, step) in enumerate([*history, (SECOND, 0, FLUSH), (SECOND, 0, TICK)]):
        harness.now += later
        if step == TICK:
            said.append([(state.slot, word) for state, word in harness.realm.tick(harness.now)])
        elif step == FLUSH:
            heard = harness.realm.flush(harness.now)
            said.append((heard.t, heard.client.tolist(), heard.publication.tolist()))
            said.append(harness.realm.numbers[heard.subscription].tolist())
            harness.realm.record_deliveries(heard.t, heard)
        else:
            harness.client_state(client)
            if i in bad:
                with pytest.raises(Refused):
                    harness.ask(client, bad[i])
            try:
                answer = harness.ask(client, step)
                said.append((harness.realm.now, answer if isinstance(answer, int) else None))
            except Refused as why:
                said.append(str(why))
    return [*said, *(harness.table(name).to_pylist() for name in TABLES)]


# What is refused whatever was asked for before.
ALWAYS_BAD = [
    request
    for request, _ in BAD
    if not isinstance(request, messages.MoveRequest | messages.TuneRequest)
    and not isinstance(request, messages.NearbyRequest)
]


@given(HISTORIES, st.dictionaries(st.integers(0, 29), st.sampled_from(ALWAYS_BAD), max_size=6))
@examples(50)
def test_what_is_refused_changes_nothing(history: list[Step], bad: dict[int, Any]) -> None:
    limits = Limits(extent=100, legs=4, formula=60, payload=10, name=8)
    plain = outcome(RealmHarness(limits=limits), history, {})
    assert outcome(RealmHarness(limits=limits), history, bad) == plain
