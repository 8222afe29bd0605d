"""Many crashes are noticed soon, newcomers are served soon, and publications are delivered.

Moments are those of the simulated clock; each bound is what the parameters promise.
"""

from itertools import pairwise
from random import Random
from typing import Any

import pytest

from nearcast.model.commands import Publish
from nearcast.node import Outbox, Send
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.protocols.voronoi.site import Site
from nearcast.protocols.voronoi.vso.messages import Candidate, MatcherList, MatcherPresent, Promote
from nearcast.protocols.voronoi.vso.parameters import Parameters
from nearcast.sim.network import ConstantDelay, FaultyNetwork
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import disc, point
from support.vso_worlds import LATENCY, VsoWorld, consistency, join_many, run

GATEWAY = FIRST_SERVER
NORTH, SOUTH = FIRST_SERVER, FIRST_SERVER + 1  # of two matchers; y grows from north to south
FOREVER_MS = 1e7


class GatewayHarness:
    """A gateway alone with its candidates, and what it says to them."""

    def __init__(self, **settings: Any) -> None:
        self.now, self.out = 0, Outbox()
        self.site = Site(1, self.out, Random(1), lambda: self.now, Parameters(**settings))
        self.site.found((0.0, 0.0))

    def offer(self, at: float, *nodes: int) -> None:
        self.now = round(at * SECOND)
        for node in nodes:
            self.site.on(Candidate(node), node)

    def called(self, at: float) -> list[int]:
        """Who has been called since the last time, after a tick at this moment."""
        self.now = round(at * SECOND)
        self.site.tick(self.now)
        sent = [effect for effect in self.out.drain() if isinstance(effect, Send)]
        return [one.to for one in sent if isinstance(one.message, Promote)]


@pytest.mark.parametrize(("fresh_ms", "called"), [(4000.0, 6), (FOREVER_MS, 5)])
def test_of_recent_candidates_the_one_that_waited_longest_is_promoted(
    fresh_ms: float, called: int
) -> None:
    harness = GatewayHarness(fresh_ms=fresh_ms)
    harness.offer(1.0, 5, 6)
    harness.offer(9.0, 6, 7)
    harness.site.gateway.insert((10.0, 0.0), 2.0)
    assert harness.called(10.0) == [called]


def test_the_most_capable_candidates_are_promoted_first() -> None:
    harness = GatewayHarness(fresh_ms=FOREVER_MS)
    harness.now = SECOND
    for node, capacity in ((5, 20.0), (6, 40.0), (7, 20.0), (8, 40.0)):
        harness.site.on(Candidate(node, capacity), node)
    called = []
    for _ in range(4):
        harness.site.gateway.insert((10.0, 0.0), 2.0)
        called += harness.called(1.0)
    assert called == [6, 8, 5, 7]


def test_the_successor_of_a_gateway_knows_how_capable_candidates_are() -> None:
    harness = GatewayHarness(fresh_ms=FOREVER_MS)
    offers = (Candidate(5, 20.0), Candidate(6, 40.0))
    harness.site.on(MatcherList(2, 9, ((9, (0.0, 0.0)), (1, (5.0, 5.0))), offers), 9)
    assert not harness.site.gateway.is_mine
    harness.called(20.0)  # the gateway has been silent for long
    assert harness.site.gateway.is_mine
    harness.site.gateway.insert((10.0, 0.0), 2.0)
    assert harness.called(20.0) == [6]


def test_without_recent_candidates_the_latest_one_is_promoted() -> None:
    harness = GatewayHarness()
    harness.offer(1.0, 5)
    harness.offer(2.0, 6)
    harness.now = 10 * SECOND
    harness.site.gateway.insert((10.0, 0.0), 2.0)
    assert harness.called(10.0) == [6]


def test_a_promoted_candidate_that_does_not_come_is_replaced() -> None:
    harness = GatewayHarness()
    harness.offer(1.0, 5, 6, 7)
    harness.site.gateway.insert((10.0, 0.0), 2.0)
    assert harness.called(1.0) == [5]
    assert harness.called(2.9) == []
    assert harness.called(3.0) == [6]
    harness.site.on(MatcherPresent((10.0, 0.0)), 6)
    assert harness.called(6.0) == []
    harness.site.gateway.insert((10.0, 0.0), 2.0)
    assert harness.called(6.0) == [7], "5 is not known as a candidate any more"


@pytest.mark.parametrize("least", [1, 3])
def test_there_are_at_least_so_many_matchers_though_nobody_is_overloaded(least: int) -> None:
    world = VsoWorld(least=least, fault_free=False)
    join_many(world, 8)
    world.pass_seconds(10)
    assert len(world.sites) == least
    world.assert_settles(5)


def test_the_successor_becomes_gateway_as_soon_as_neighbours_notice_the_crash() -> None:
    world = VsoWorld(partitioning="static", matchers=4, fault_free=False)
    join_many(world, 10)
    world.pass_seconds(5)
    first, second, third, _ = world.sites[GATEWAY].gateway.matchers
    assert first == GATEWAY
    world.simulation.crash(first)
    world.simulation.crash(second)  # who would have followed it
    world.pass_seconds(2.5)  # three to four beats of 0.3 s, a turn of 0.6 s, and a message's way
    assert world.overlay.directory.gateway == third
    assert {site.gateway.gateway for site in world.sites.values()} == {third}


def test_a_crashed_successor_is_skipped_when_a_gateway_is_replaced() -> None:
    world = VsoWorld(partitioning="static", matchers=4, fault_free=False)
    join_many(world, 40)
    world.pass_seconds(5)
    *first, last = world.sites[GATEWAY].gateway.matchers
    assert set(first) <= set(world.sites[last].mesh.known)
    for site in first:
        world.simulation.crash(site)
    world.pass_seconds(1.6)  # as long as it takes to see it; two turns would be 1.2 s more
    assert world.overlay.directory.gateway == last


def test_a_dead_matchers_clients_are_served_by_others_within_five_beats() -> None:
    world = VsoWorld(partitioning="static", matchers=9)
    join_many(world, 40)
    world.pass_seconds(4)
    dead = FIRST_SERVER + 4
    orphans = [s for m in world.members.values() for s, o in m.client.owner.items() if o == dead]
    world.simulation.crash(dead)
    world.pass_seconds(1.5)
    owners = {s: o for m in world.members.values() for s, o in m.client.owner.items()}
    assert len(orphans) > 2
    assert dead not in {owners[orphan] for orphan in orphans}


def test_a_newcomer_whose_first_interest_is_lost_repeats_it_before_its_heartbeat() -> None:
    network = FaultyNetwork(ConstantDelay(LATENCY))
    world = VsoWorld(network)
    network.group[5] = 1
    member = world.join(5, Moving(disc(100, 100, 50.0)))
    world.pass_seconds(0.4)
    network.group.clear()
    assert not member.client.owner
    world.pass_seconds(0.4)
    assert member.client.owner == {5000: GATEWAY}


def test_a_newcomer_without_an_answer_retries_ever_more_rarely() -> None:
    network = FaultyNetwork(ConstantDelay(LATENCY))
    world = VsoWorld(network)
    network.group[5] = 1
    world.join(5, Moving(disc(100, 100, 50.0)))
    world.pass_seconds(13.9)
    requests = [t for t, kind in sent_by(world, 5) if kind == "vso.Interest"]
    gaps = [(b - a) / SECOND for a, b in pairwise(requests)]
    assert gaps == [0.5, 1.0, *[2.0] * 6]


def sent_by(world: VsoWorld, node: int) -> list[tuple[int, str]]:
    world.simulation.recorder.flush()
    rows = world.memory.table("messages").to_pylist()
    return [(row["t"], row["kind"]) for row in rows if row["node"] == node]


@pytest.mark.parametrize(("doubt_ms", "given_up"), [(700.0, True), (FOREVER_MS, False)])
def test_a_publisher_that_receives_nothing_gives_its_owner_up_though_sites_notice_nothing(
    doubt_ms: float, given_up: bool
) -> None:
    world = VsoWorld(
        partitioning="static", matchers=2, site_beat_ms=FOREVER_MS, silence_ms=FOREVER_MS,
        doubt_ms=doubt_ms, fault_free=False,
    )  # fmt: skip
    world.join(5, Moving(disc(380, 700, 50.0)))
    world.pass_seconds(3)
    client = world.members[5].client
    assert client.owner == {5000: SOUTH}
    world.simulation.crash(SOUTH)
    for number in range(7):
        world.obey(5, Publish(number, point(380, 700)))
        world.pass_seconds(0.5)
    assert (SOUTH not in client.owner.values()) == given_up


def test_a_client_that_receives_something_checks_its_owner_with_heartbeats_only() -> None:
    requests = []
    for doubt_ms in (700.0, FOREVER_MS):
        world = VsoWorld(doubt_ms=doubt_ms)
        for node in (5, 6):
            world.join(node, Moving(disc(100, 100, 50.0)))
        world.pass_seconds(3)
        # Until now both were silent, so the first publication leads to a check of the owner.
        began = world.simulation.now
        for number in range(20):
            world.obey(5 + number % 2, Publish(number, point(100, 100)))
            world.pass_seconds(0.25)
        kinds = [kind for node in (5, 6) for t, kind in sent_by(world, node) if t > began]
        requests.append(kinds.count("vso.Alive"))
    assert requests[0] == requests[1] > 0


@pytest.mark.parametrize(("recall_ms", "known"), [(1000.0, [5]), (0.0, [])])
def test_a_newcomer_knows_at_once_who_is_there_and_receives_nothing_older(
    recall_ms: float, known: list[int]
) -> None:
    world = VsoWorld(recall_ms=recall_ms)
    for node, x in ((5, 100), (6, 400)):
        world.join(node, Moving(disc(x, 100, 50.0)))
    world.pass_seconds(3)
    world.obey(5, Publish(1, point(100, 100)))
    world.obey(6, Publish(2, point(400, 100)))  # out of its sight
    world.pass_seconds(0.3)
    newcomer = world.join(7, Moving(disc(120, 100, 50.0)))
    world.pass_seconds(0.2)
    assert [other for other, _ in newcomer.known(world.simulation.now)] == known
    world.pass_seconds(2)
    world.assert_delivered_exactly(at_least=-1)


def test_what_is_published_to_a_dead_matcher_is_delivered_by_its_successor() -> None:
    world = VsoWorld(partitioning="static", matchers=2, fault_free=False)
    for node in (5, 6):
        world.join(node, Moving(disc(380, 700, 50.0)))
    world.join(7, Moving(disc(380, 400, 50.0)))
    world.pass_seconds(3)
    assert world.members[5].client.owner == {5000: SOUTH}
    world.simulation.crash(SOUTH)
    for number in range(3):
        world.pass_seconds(0.2)
        world.obey(5, Publish(number, point(380, 690)))
    world.pass_seconds(3)
    assert world.members[5].client.owner == {5000: NORTH}
    world.assert_delivered_exactly(at_least=2)


def test_the_world_goes_on_without_any_server() -> None:
    world, memory = run(
        nodes=24, seconds=20.0, rate=2.0, buffer=32.0, motion="steps", join_rate=12.0,
        servers_until=8.0, least=3,
    )  # fmt: skip
    world.recorder.close()
    assert all(node < FIRST_SERVER for node in world.simulation.nodes)
    assert consistency(memory, 192.0, world.begins + 12 * SECOND) > 0.97
