"""Fewer updates from afar: the subscriber gets no more than it asked for, and nobody sends more."""

from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import pytest

from nearcast.errors import NotOfferedError, WireError
from nearcast.model.commands import Publish, Subscribe, Unsubscribe
from nearcast.model.rates import NEVER_AGAIN, parse_rates
from nearcast.protocols import PROTOCOLS
from nearcast.protocols.offers import OverlayOffer
from nearcast.protocols.update_rates import VALID, UpdateRates
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import disc, point
from support.brute_force import expected
from support.peer_worlds import PeerWorld, run

SETTINGS: dict[str, dict[str, Any]] = {
    "client-server": {"matcher": "scan"},
    "bubblestorm": {"lambda": 3.0, "gossip_s": 1.0},
    "psense": {"limit": 1_000_000},
    "von": {},
}
OVERLAYS = [name for name, kind in PROTOCOLS.items() if OverlayOffer.RATES in kind.offers]
PEERS = [name for name in OVERLAYS if name != "client-server"]  # without a server that withholds
SUBSCRIBER, NEAR, MEDIUM, FAR, OUTER = 1, 2, 3, 4, 5
PLACES = {SUBSCRIBER: 0.0, NEAR: 10.0, MEDIUM: 50.0, FAR: 80.0, OUTER: 95.0}
RATES = ((70.0, 1.0), (40.0, 5.0), (90.0, 0.0))  # in any order
PUBLISHED_S, EVERY = 12, SECOND // 10  # ten a second


class RatedWorld(PeerWorld):
    """Five peers on a line; the first one wants less of those that are far."""

    def __init__(self, overlay: str) -> None:
        super().__init__(overlay, **SETTINGS[overlay])
        self.number = 0
        for server in self.overlay.servers():
            self.simulation.start(server)
        for node, x in PLACES.items():
            self.join(node)
            self.obey(node, Subscribe(node * 1000, Moving(disc(x, 0, 100))))
            self.pass_seconds(1)
        self.pass_seconds(8)

    def ask(self, *rates: tuple[float, float]) -> None:
        area = Moving(disc(0, 0, 100))
        self.obey(SUBSCRIBER, Subscribe(SUBSCRIBER * 1000, area, rates=rates))

    def publish(self, seconds: float) -> int:
        """Everybody at its own place; returns when that began."""
        begun = self.simulation.now
        for _ in range(round(seconds * SECOND) // EVERY):
            for node, x in PLACES.items():
                if node != SUBSCRIBER:
                    self.number += 1
                    self.obey(node, Publish(self.number, point(x, 0)))
            self.pass_seconds(EVERY / SECOND)
        return begun


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_subscriber_gets_what_its_rates_allow_and_no_more_is_sent(overlay: str) -> None:
    world = RatedWorld(overlay)
    world.ask(*RATES)
    world.publish(PUBLISHED_S)
    world.ask()  # from now on everything
    again = world.publish(2)
    world.pass_seconds(1)
    trace = world.trace()
    made = {row["publication"]: row for row in trace.table("publications").to_pylist()}
    came: dict[int, list[int]] = defaultdict(list)
    rest: Counter[int] = Counter()
    delivered = set()
    for row in trace.table("deliveries").to_pylist():
        delivered.add((row["publication"], row["subscription"]))
        if row["node"] == SUBSCRIBER:
            one = made[row["publication"]]
            if one["t"] < again:
                came[one["node"]].append(one["t"])
            else:
                rest[one["node"]] += 1
    assert [len(came[node]) for node in (NEAR, MEDIUM, FAR, OUTER)] == [120, 60, 12, 0]
    for node, apart in ((MEDIUM, SECOND // 5), (FAR, SECOND)):
        times = sorted(came[node])
        assert min(b - a for a, b in pairwise(times)) >= apart
    assert all(rest[node] >= 19 for node in (NEAR, MEDIUM, FAR, OUTER)), rest
    # What was not delivered was withheld, and says so; nobody else misses anything.
    notes = [row for row in trace.table("notes").to_pylist() if row["fact"] == "withheld"]
    withheld = {(row["about"], int(row["value"]) * 1000) for row in notes}
    due = expected(trace.table("interests"), trace.table("publications"))
    assert due - delivered == withheld & due - delivered
    assert {subscription for _, subscription in withheld} == {SUBSCRIBER * 1000}
    # Publishers withhold most of it themselves: in VALID one goes in vain, and what is under way.
    in_vain = sum(row["node"] == SUBSCRIBER for row in notes)
    assert in_vain <= 6 * (1 + PUBLISHED_S * SECOND // VALID)
    told = sum(row["kind"] == UpdateRates.kind for row in trace.table("messages").to_pylist())
    assert 3 <= told <= in_vain + 3 or (overlay not in PEERS and told == in_vain == 0)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_second_subscription_of_the_same_channel_gets_everything(overlay: str) -> None:
    world = RatedWorld(overlay)
    world.ask((40.0, 1.0))
    world.publish(1)
    world.obey(SUBSCRIBER, Subscribe(7, Moving(disc(0, 0, 100))))
    world.pass_seconds(0.2)  # until publishers know
    begun = world.publish(2)
    world.obey(SUBSCRIBER, Unsubscribe(7))
    world.pass_seconds(1)
    trace = world.trace()
    made = {row["publication"]: row["t"] for row in trace.table("publications").to_pylist()}
    rows = trace.table("deliveries").to_pylist()
    some = Counter(row["subscription"] for row in rows if made[row["publication"]] >= begun)
    assert some[7] == 4 * 20
    assert some[SUBSCRIBER * 1000] <= 20 + 3 * 3  # and the other no more than it asked for


def test_a_game_of_fewer_updates_is_played_where_overlays_offer_it() -> None:
    settings = {"radius": 400.0, "speed": 80.0, "rates": "133:2, 267:1"}
    trace = run("bubblestorm", "planetpi4", 8, 4.0, **settings)
    facts = Counter(row["fact"] for row in trace.table("notes").to_pylist())
    assert facts["withheld"] > trace.table("deliveries").num_rows / 2
    with pytest.raises(NotOfferedError, match=r"drtree does not offer fewer messages from afar"):
        run("drtree", "planetpi4", 2, 1.0, rates="133:2")
    with pytest.raises(ValueError, match="'133' is no rate: write DISTANCE:MESSAGES"):
        run("bubblestorm", "planetpi4", 2, 1.0, rates="133")
    assert parse_rates("") == ()


def test_an_area_that_moves_has_rates_at_every_distance() -> None:
    world = RatedWorld("bubblestorm")
    area = Moving(disc(-1.1, 0.3, 100), velocity=(0.7, 0.1, 0.0))
    world.obey(SUBSCRIBER, Subscribe(SUBSCRIBER * 1000, area, rates=((0.0, 1.0),)))
    world.publish(3)
    trace = world.trace()
    came = sum(row["node"] == SUBSCRIBER for row in trace.table("deliveries").to_pylist())
    assert came == 4 * 3
    notes = [row for row in trace.table("notes").to_pylist() if row["fact"] == "withheld"]
    assert sum(row["node"] != SUBSCRIBER for row in notes) > 4 * 20, "by publishers"


@pytest.mark.parametrize("overlay", PEERS)
def test_rates_of_strangers_are_not_followed_and_impossible_ones_not_read(overlay: str) -> None:
    world = RatedWorld(overlay)
    peer = world.simulation.nodes[NEAR]
    wish = UpdateRates((("", ((0.0, NEVER_AGAIN),)),))
    assert peer.receive(world.simulation.now, 99, wish) == []
    world.publish(1)
    notes = [row for row in world.trace().table("notes").to_pylist() if row["fact"] == "withheld"]
    assert notes == []
    codec = PROTOCOLS[overlay].codec
    assert codec.decode(codec.encode(wish)) == wish
    for channels in (
        (("", ((-1.0, 5),)),), (("", ((1.0, -5),)),), (("", ((float("nan"), 5),)),),
        (("", ((1.0, 5),) * 9),), (("", ()),) * 99,
    ):  # fmt: skip
        with pytest.raises(WireError):
            codec.decode(codec.encode(UpdateRates(channels)))
