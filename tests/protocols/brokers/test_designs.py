"""Evolving engines and the earlier designs: what each says, and how stale each is."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nearcast.model.commands import Command, Move, Publish, Subscribe, Tune, Unsubscribe
from nearcast.model.freezing import freeze
from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import Filter, Formula, Subscription
from nearcast.node import Deliver
from nearcast.protocols.brokers.interests import EVERYTHING, tiles_touched
from nearcast.protocols.brokers.messages import Notify
from nearcast.protocols.brokers.parametric import same_form, values_of, with_values
from nearcast.space.boxes import BoxBounds
from nearcast.space.motion import SECOND, Moving, line
from nearcast.space.shapes import box, disc, point
from support.broker_network import B, BrokerNetwork
from support.examples import examples
from support.strategies import TIMES, subscriptions

INTERVAL = 500_000
WALK = line(box(0, 0, 3, 2), (20.0, 10.0, 0.0), 2.0)
NO_HEARTBEATS = {"interval_ms": 500.0, "threshold_ms": 500.0, "heartbeat_ms": 0.0}


def walked(
    seed: int, first: Command, **chosen: object
) -> tuple[BrokerNetwork, list[Publication], int]:
    """A walker at one end of a line of brokers, and somebody who speaks all around at the other."""
    net = BrokerNetwork((0, 2), brokers=3, topology="line", **{**NO_HEARTBEATS, **chosen})
    began = net.simulation.now
    net.obey(0, first)
    rng, published = Random(seed), []
    for number in range(150):
        net.run(rng.randrange(1, 160_000))
        place = point(rng.uniform(-4, 24), rng.uniform(-3, 13))
        publish = Publish(number, place, attributes={"weight": rng.randrange(12)})
        published.append(publish.stamped(2, net.simulation.now))
        net.obey(2, publish)
    return net, published, began


WALKER = Subscribe(7, WALK)
GROWER = Subscribe(7, EVERYTHING, Filter("weight <= t, weight >= t - 3"))
BOTH = Subscribe(7, Formula("x >= t - 4, x < 3 + 2 * t"), Filter("weight <= 3 * t"))


@pytest.mark.parametrize("first", [WALKER, GROWER, BOTH], ids=["area", "filter", "formula"])
@pytest.mark.parametrize(
    "chosen",
    [
        {"evolving": "resubscribe"},
        {"evolving": "periodic"},
        {"interest": "parametric"},
        {"evolving": "periodic", "stamp": "arrival"},
    ],
    ids=["resubscribe", "periodic", "parametric", "arrival"],
)
def test_stale_designs_deliver_as_of_the_latest_interval_and_hide_nothing(
    first: Subscribe, chosen: dict[str, object]
) -> None:
    net, published, began = walked(1, first, **chosen)
    wanted = first.stamped(0, began)
    delivered = [publication for publication, _ in net.delivered()]
    assert delivered == [
        p.id for p in published if wants(wanted, p, p.t - (p.t - began) % INTERVAL)
    ]
    exact = [p.id for p in published if wants(wanted, p, p.t)]
    assert delivered != exact, "with nothing to miss, nothing was tested"


def test_a_cache_is_as_stale_as_its_threshold_at_each_broker() -> None:
    net, published, began = walked(2, WALKER, evolving="cached")
    wanted = WALKER.stamped(0, began)
    made: dict[int, int] = {}  # when each broker last looked
    expected = []
    for p in published:
        for broker in (2, 1, 0):
            if p.t > made.get(broker, -INTERVAL - 1) + INTERVAL:
                made[broker] = p.t
            if not wants(wanted, p, made[broker]):
                break
        else:
            expected.append(p.id)
    assert [publication for publication, _ in net.delivered()] == expected
    assert expected != [p.id for p in published if wants(wanted, p, p.t)]


@pytest.mark.parametrize("evolving", ["scan", "lazy", "swept"])
def test_exact_engines_are_exact_on_the_same_walk(evolving: str) -> None:
    for first in (WALKER, GROWER, BOTH):
        net, published, began = walked(3, first, evolving=evolving)
        wanted = first.stamped(0, began)
        delivered = [publication for publication, _ in net.delivered()]
        assert delivered == [p.id for p in published if wants(wanted, p, p.t)]
        assert len(delivered) > 10


# The messages that it costs.


def walk_for(seconds: int, **chosen: object) -> dict[str, int]:
    net = BrokerNetwork((0, 2), brokers=3, topology="line", **{**NO_HEARTBEATS, **chosen})
    net.obey(0, Subscribe(7, Moving(box(0, 0, 3, 2))))
    before = net.simulation.now
    net.obey(0, Move(7, line(box(0, 0, 3, 2), (2.0 * seconds, 0.0, 0.0), 2.0)))
    net.run((seconds + 5) * SECOND)
    return dict(net.kinds(before))


def test_an_evolving_interest_costs_the_share_of_the_interval_in_the_move() -> None:
    """Claims 001.14 and 001.15: one renewal per move instead of one per interval, D / I = 31."""
    once = sum(walk_for(31, evolving="swept").values())
    again = sum(walk_for(31, evolving="resubscribe", interval_ms=1000.0).values())
    assert once == 3 * 2
    assert again == 3 * 2 * 31  # the last where it has arrived
    assert 0.95 <= 1 - once / again <= 0.98


def test_parametric_sends_new_numbers_alone_along_the_way_of_the_interest() -> None:
    assert walk_for(10, interest="parametric") == {"brokers.Adjust": 3 * 20}
    numbers, whole = (
        BrokerNetwork((0, 2), brokers=3, **NO_HEARTBEATS, interest="parametric"),
        BrokerNetwork((0,), **NO_HEARTBEATS),
    )
    for net in (numbers, whole):
        net.obey(0, Subscribe(7, WALK, Filter('kind == "apple"'), "a long channel's name"))
    numbers.run(SECOND)
    sizes = {row["kind"]: row["bytes"] for net in (whole, numbers) for row in net.rows("messages")}
    assert sizes["brokers.Adjust"] < sizes["brokers.Interest"]


def test_parametric_numbers_of_a_formula_that_has_no_value_now_take_the_interest_back() -> None:
    net = BrokerNetwork((0, 2), brokers=3, topology="line", **NO_HEARTBEATS, interest="parametric")
    net.obey(0, Subscribe(7, Formula("x >= 10 / (t - 1)")))
    assert (0, 7) in net.broker(2).routes.entries
    net.run(SECOND - 1)
    assert net.broker(2).routes.entries == {}, "at t = 1 it wants nothing"
    net.run(SECOND)
    assert (0, 7) in net.broker(2).routes.entries


def test_resubscription_ends_with_the_motion_or_the_subscription() -> None:
    net = BrokerNetwork((0, 2), brokers=3, topology="line", **NO_HEARTBEATS, evolving="resubscribe")
    net.obey(0, Subscribe(7, line(disc(0, 0, 1), (4.0, 0.0, 0.0), 2.0)))
    net.obey(0, Subscribe(8, line(disc(0, 0, 1), (400.0, 0.0, 0.0), 2.0)))
    net.run(10 * SECOND)
    net.obey(0, Unsubscribe(8))
    before = net.simulation.now
    net.run(10 * SECOND)
    assert net.kinds(before) == {}
    (entry,) = net.broker(2).routes.entries.values()
    assert entry.subscription.region == Moving(disc(4, 0, 1))


def test_a_tuned_interest_is_sent_anew_with_its_clock_going_on() -> None:
    net = BrokerNetwork((0, 2), brokers=3, topology="line", **NO_HEARTBEATS, stamp="arrival")
    net.obey(0, Subscribe(7, EVERYTHING, "weight <= limit + t", variables={"limit": 1.0}))
    net.run(3 * SECOND)
    net.obey(0, Tune(7, {"limit": 5.0}))
    net.obey(0, Tune(7, {"unheard": 5.0}))
    for number, weight in enumerate((7.9, 8.1)):
        net.obey(2, Publish(number, point(0, 0), attributes={"weight": weight}))
    assert net.delivered() == [(0, 7)]
    net.obey(0, Tune(8, {"limit": 5.0}))
    assert (0, 8) in net.notes("ignored")


# Topics.


def test_tiles_are_all_those_that_the_area_touches() -> None:
    net = BrokerNetwork(
        (0, 2), brokers=3, topology="line", **NO_HEARTBEATS, interest="tile", tile=10.0
    )
    net.obey(0, Subscribe(7, Moving(box(5, 5, 6, 2))))
    centres = [
        (e.subscription.region.shape.x, e.subscription.region.shape.y)
        for e in net.broker(2).routes.entries.values()
    ]
    assert centres == [(-5.0, 5.0), (5.0, 5.0), (15.0, 5.0)]
    net.obey(2, Publish(1, point(19, 9)))
    net.obey(2, Publish(2, point(11, 7)))
    net.obey(2, Publish(3, point(11, 17)))
    notified = [
        row["publication"] for row in net.rows("messages") if row["kind"] == "brokers.Notify"
    ]
    assert notified == [1, 2], "the topic brings both; the third is on another"
    assert net.delivered() == [(2, 7)], "the client filters"


def test_an_area_of_too_many_tiles_subscribes_to_its_whole_channel() -> None:
    net = BrokerNetwork((0, 1), brokers=2, **NO_HEARTBEATS, interest="tile", tile=0.1)
    net.obey(0, Subscribe(7, Moving(disc(0, 0, 90))))
    net.obey(0, Subscribe(8, Formula("x > 3")))
    assert len(net.broker(1).routes.entries) == 2
    net.obey(1, Publish(1, point(80, 0)))
    net.obey(1, Publish(2, point(0, 80), "chat"))
    assert sorted(net.delivered()) == [(1, 7), (1, 8)]


@pytest.mark.parametrize("tile", [1.0, 7.0, 1000.0])
def test_tiles_miss_only_what_was_entered_since_the_last_interval(tile: float) -> None:
    net, published, began = walked(4, WALKER, interest="tile", tile=tile)
    wanted = WALKER.stamped(0, began)
    delivered = {publication for publication, _ in net.delivered()}
    exact = {p.id for p in published if wants(wanted, p, p.t)}
    stale = {p.id for p in published if wants(wanted, p, p.t - (p.t - began) % INTERVAL)}
    assert exact & stale <= delivered <= exact


def test_a_topic_per_object_finds_others_subscribes_to_them_and_lets_them_go() -> None:
    net = BrokerNetwork(
        (0, 1, 2), brokers=3, topology="line", **NO_HEARTBEATS, interest="object", tile=5.0
    )
    net.obey(0, Subscribe(7, Moving(disc(0, 0, 10)), channel="chat"))
    net.obey(2, Publish(1, point(3, 0), "chat", payload=b"hello"), then=SECOND)
    assert net.delivered() == [], "discovered by its first publication, received from the second on"
    net.obey(2, Publish(2, point(3, 0), "chat"))
    net.obey(2, Publish(3, point(12, 0), "chat"))  # known, but not within the area
    net.obey(1, Publish(4, point(500, 0), "chat"))
    net.obey(2, Publish(5, point(3, 0)))
    assert net.delivered() == [(2, 7)]
    channels = [e.subscription.channel for e in net.broker(2).routes.entries.values()]
    assert channels == ["@/chat", "@2/chat"]
    net.run(3 * SECOND)
    channels = [e.subscription.channel for e in net.broker(2).routes.entries.values()]
    assert channels == ["@/chat"]


def test_a_topic_per_object_delivers_the_publication_as_it_was_made() -> None:
    net = BrokerNetwork((0, 2), brokers=3, topology="line", **NO_HEARTBEATS, interest="object")
    net.obey(0, Subscribe(7, EVERYTHING, channel="chat"))
    publish = Publish(1, point(3, 0), "chat", {"weight": 3}, b"hello")
    net.obey(2, publish)
    client, now = net.client(0), net.simulation.now
    name = next(n for n, (part, _, _) in client.sent.items() if part.channel == "@2/chat")
    made = publish.stamped(2, now)
    on_its_way = Notify(replace(made, channel="@2/chat"), (name,), 3)
    assert client.receive(now, B[0], on_its_way) == [Deliver(made, (7,), 3)]


# Whose clock.


def errors(**chosen: object) -> int:
    """Of a fast walker through places where somebody speaks, with 20 ms per message."""
    net = BrokerNetwork(
        (0, 2), brokers=3, topology="line", delay=20_000, heartbeat_ms=0.0, **chosen
    )
    net.obey(0, Subscribe(7, line(disc(0, 0, 2), (400.0, 0.0, 0.0), 20.0)), then=SECOND)
    rng = Random(1)
    for number in range(300):
        x = 20 * (net.simulation.now - 2 * SECOND) / SECOND + rng.uniform(-4, 4)
        net.obey(2, Publish(number, point(x, 0)), then=SECOND // 20)
    net.run(SECOND)
    return len(net.should() ^ set(net.delivered()))


def test_a_submission_time_that_is_sent_is_exact_and_one_taken_on_arrival_is_late() -> None:
    assert errors() == 0
    assert errors(skew_ms=500.0) == 0, "no broker's clock is asked"
    late = errors(stamp="arrival")
    assert late > 10
    assert errors(stamp="arrival", skew_ms=500.0) > 2 * late
    # Where both moments are the broker's own, its clock may be wrong, but ways still differ.
    own = errors(stamp="arrival", moment="arrival")
    assert 0 < own <= late
    assert errors(stamp="arrival", moment="arrival", skew_ms=500.0) == own
    assert errors(moment="arrival", skew_ms=500.0) > 2 * late


# Numbers of what stands still.


@examples(100)
@given(wanted=subscriptions(), t=TIMES)
def test_a_frozen_interest_is_made_again_of_its_values(wanted: Subscription, t: int) -> None:
    still = freeze(wanted, t)
    if still is not None:
        assert with_values(still, values_of(still)) == still
        assert same_form(still, still)


def test_new_numbers_must_fit_the_form() -> None:
    wanted = Subscription(1, 1, Moving(disc(0, 0, 1)), Filter('kind == "a", weight > 3.0'))
    moved = with_values(wanted, (5.0, 6.0, 0.0, 2.0, 0.0, 0.0, 4.0))
    assert moved.region == Moving(disc(5, 6, 2))
    assert moved.filter == Filter('kind == "a", weight > 4.0')
    for wrong in ((), (5.0,) * 6, (5.0,) * 8, (0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 4.0)):
        with pytest.raises(ValueError):
            with_values(wanted, wrong)
    assert not same_form(wanted, replace(wanted, channel="chat"))
    assert not same_form(wanted, replace(wanted, filter=None))
    assert not same_form(wanted, replace(wanted, region=Moving(box(0, 0, 1, 1))))


@examples(100)
@given(
    x=st.floats(-100, 100),
    y=st.floats(-100, 100),
    r=st.floats(0, 20),
    side=st.sampled_from([0.1, 0.3, 1.0, 7.0]),
)
def test_no_point_of_a_box_lies_outside_its_tiles(
    x: float, y: float, r: float, side: float
) -> None:
    touched = tiles_touched(BoxBounds((x - r, y - r, 0.0), (x + r, y + r, 0.0)), side, 10**6)
    assert touched is not None
    for corner in ((x - r, y - r), (x + r, y + r), (x, y)):
        assert any(
            i * side - 1e-9 <= corner[0] <= (i + 1) * side + 1e-9
            and j * side - 1e-9 <= corner[1] <= (j + 1) * side + 1e-9
            for i, j, _ in touched
        )
