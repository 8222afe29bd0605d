"""Faults strike as often as they say, spare the servers, pass over again, and follow the seed."""

from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from math import sqrt
from random import Random
from typing import Any

import pytest

from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.scenario import Scenario, Setting
from nearcast.sim.faults import FaultInjector, FaultParameters
from nearcast.sim.network import ConstantDelay, FaultyNetwork
from nearcast.sim.world import SimulatedWorld
from nearcast.space.motion import SECOND
from nearcast.trace.reader import digest
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from nearcast.workloads import churn
from nearcast.workloads.workload import first_id


class FaultyWorld:
    """A world in which nothing happens but faults, which it writes down."""

    def __init__(self, entities: int, parameters: FaultParameters, seed: int = 1) -> None:
        self.now = 0
        self.notes: list[tuple[int, str, int | None]] = []
        self.strikes: list[int] = []  # how many were present at each
        self.network = FaultyNetwork(ConstantDelay(1))
        self._present = dict.fromkeys(range(entities))
        self._plans: list[tuple[int, int, Callable[[], None]]] = []
        self._ages = count()
        FaultInjector(parameters, Random(seed), self, self.network).begin()

    def run(self, seconds: int) -> "FaultyWorld":
        while self._plans and self._plans[0][0] <= seconds * SECOND:
            self.now, _, act = heappop(self._plans)
            if self.now % SECOND == 0:
                self.strikes.append(len(self._present))
            act()
        return self

    def plan(self, after: int, act: Callable[[], None]) -> None:
        assert after > 0
        heappush(self._plans, (self.now + after, next(self._ages), act))

    def present(self) -> list[int]:
        return list(self._present)

    def crash(self, entity: int) -> None:
        del self._present[entity]
        self.notes.append((self.now, "crash", entity))

    def join(self, entity: int) -> None:
        self._present[entity] = None
        self.notes.append((self.now, "join", entity))

    def note(self, fact: str, about: int | None) -> None:
        assert fact != "healed" or not self.network.group
        self.notes.append((self.now, fact, about))

    def times(self, fact: str) -> list[int]:
        return [t for t, what, _ in self.notes if what == fact]


def likely(hits: int, many: int, probability: float) -> bool:
    """Within five standard deviations of a binomial's mean; exact for 0 and 1."""
    return abs(hits - many * probability) <= 5 * sqrt(many * probability * (1 - probability))


# How often.


@pytest.mark.parametrize("crash", [0.0, 0.02, 0.3, 1.0])
def test_each_entity_crashes_with_the_given_probability_in_each_second(crash: float) -> None:
    world = FaultyWorld(400, FaultParameters(crash=crash, restart_s=0)).run(20)
    assert len(world.strikes) == 20
    assert likely(len(world.times("crash")), sum(world.strikes), crash)
    assert world.times("join") == []
    assert all(t % SECOND == 0 for t in world.times("crash"))


def test_the_crashed_return_after_the_mean_that_was_set() -> None:
    world = FaultyWorld(300, FaultParameters(crash=0.1, restart_s=3)).run(200)
    down: dict[int | None, int] = {}
    waits = []
    for t, what, entity in world.notes:
        if what == "crash":
            assert entity not in down
            down[entity] = t
        else:
            waits.append(t - down.pop(entity))
    assert len(waits) > 3_000
    mean = sum(waits) / len(waits) / SECOND
    # An exponential's deviation is its mean; those still down at the end are the longest waits.
    assert abs(mean - 3) < 0.25
    assert min(waits) < 0.01 * SECOND
    assert len(down) < 150


def test_the_world_parts_as_often_as_set_and_never_while_parted() -> None:
    world = FaultyWorld(50, FaultParameters(partition=0.2, partition_s=0.25)).run(2_000)
    parted, healed = world.times("partitioned"), world.times("healed")
    # A cut outlasts its second with probability exp(-4); that one strike less is within bounds.
    assert likely(len(parted), 2_000, 0.2)
    assert all(cut < heal for cut, heal in zip(parted, healed, strict=False))
    assert all(heal <= cut for heal, cut in zip(healed, parted[1:], strict=False))
    mean = sum(heal - cut for cut, heal in zip(parted, healed, strict=False)) / len(healed)
    assert abs(mean / SECOND - 0.25) < 5 * 0.25 / sqrt(len(healed))


def test_a_parted_world_falls_into_halves_and_is_whole_when_healed() -> None:
    world = FaultyWorld(1_000, FaultParameters(partition=1.0, partition_s=5))
    world.run(1)
    cut = world.network.group
    assert likely(len(cut), 1_000, 0.5)
    assert set(cut.values()) == {1}
    assert world.notes == [(SECOND, "partitioned", len(cut))]
    first = dict(cut)
    while not world.times("healed"):
        world.run(world.now // SECOND + 1)
        assert world.network.group == first or world.times("healed"), "halves stay as they are"
    world.run(120)
    halves = [about for _, what, about in world.notes if what == "partitioned"]
    assert len(halves) > 3
    assert all(likely(half or 0, 1_000, 0.5) for half in halves)
    assert len(set(halves)) > 1, "each time the halves are drawn anew"


def test_an_empty_partition_is_not_noted_and_does_not_heal() -> None:
    world = FaultyWorld(2, FaultParameters(partition=1.0, partition_s=5)).run(2_000)
    parted = [about for _, what, about in world.notes if what == "partitioned"]
    assert set(parted) == {1, 2}
    # Whatever is noted alternates: no heal is left over from a cut that was none.
    facts = [what for _, what, _ in world.notes]
    assert facts[::2] == ["partitioned"] * len(parted)
    assert set(facts[1::2]) == {"healed"}
    mean = sum(world.times("healed")) - sum(world.times("partitioned")[: len(facts) // 2])
    assert abs(mean / (len(facts) // 2) / SECOND - 5) < 5 * 5 / sqrt(len(parted))


@pytest.mark.parametrize("slow", [0.0, 0.1, 0.5, 1.0])
def test_the_given_share_is_slow_from_the_beginning(slow: float) -> None:
    world = FaultyWorld(2_000, FaultParameters(slow=slow, slow_ms=300)).run(1)
    assert likely(len(world.network.slow), 2_000, slow)
    assert set(world.network.slow.values()) <= {300_000}
    assert [entity for _, what, entity in world.notes if what == "slowed"] == list(
        world.network.slow
    )


def test_equal_seeds_bring_equal_faults_and_others_do_not() -> None:
    faults = FaultParameters(crash=0.05, partition=0.1, slow=0.2)
    notes = [FaultyWorld(100, faults, seed).run(50).notes for seed in (1, 1, 2)]
    assert notes[0] == notes[1] != notes[2]


@pytest.mark.parametrize(
    "wrong", ["crash", "partition", "slow", "restart_s", "partition_s", "slow_ms"]
)
def test_settings_out_of_range_are_refused_by_name(wrong: str) -> None:
    make: Callable[..., FaultParameters] = FaultParameters
    for value in (-0.1, float("nan"), 1e10):
        with pytest.raises(ValueError, match=wrong):
            make(**{wrong: value})


def test_faults_that_cannot_happen_need_no_network_of_their_own() -> None:
    assert not FaultParameters().any
    assert all(
        p.any
        for p in (FaultParameters(crash=0.1), FaultParameters(partition=1), FaultParameters(slow=1))
    )


# In a world.


def ran(
    seconds: float = 8.0, seed: int = 1, **settings: Setting
) -> tuple[SimulatedWorld, MemoryTrace]:
    sink = MemoryTrace()
    undisturbed: dict[str, Setting] = {"matcher": "scan", "hotspots": "burning", "rate": 4.0}
    scenario = Scenario(
        protocol="client-server", workload="hotspots", nodes=40, seconds=seconds, seed=seed,
        settings={**undisturbed, **settings},
    )  # fmt: skip
    world = SimulatedWorld(scenario, lambda _: Recorder(sink))
    world.run()
    world.recorder.close()
    return world, sink


def rows(sink: MemoryTrace, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = sink.table(table).to_pylist()
    return found


def notes(sink: MemoryTrace, fact: str) -> list[tuple[int, int]]:
    return [(r["t"], r["node"]) for r in rows(sink, "notes") if r["fact"] == fact]


def test_a_restart_begins_a_new_stay_with_identifiers_of_its_own() -> None:
    world, sink = ran(crash=0.1, restart_s=0.5)
    crashes, joins = notes(sink, "crashed"), notes(sink, "joined")
    assert len(crashes) > 10
    assert len(joins) == 40 + len([1 for t, _ in joins if t > 0]) > 50
    stays: Counter[int] = Counter()
    stay_of: dict[int, tuple[int, int]] = {}  # subscription: entity and moment of joining
    for t, entity in joins:
        stay_of[first_id(entity, stays[entity])] = (entity, t)
        stays[entity] += 1
    begun = {r["subscription"]: r for r in rows(sink, "interests") if not r["ended"]}
    assert begun.keys() <= stay_of.keys()
    for subscription, row in begun.items():
        entity, joined = stay_of[subscription]
        assert row["node"] == entity
        # Publications of the moment of joining may have been made already: it listens after them.
        assert row["t"] == (joined + 1 if joined else 0)
    ended = {r["subscription"]: (r["t"], r["node"]) for r in rows(sink, "interests") if r["ended"]}
    assert sorted(ended.values()) == sorted(crashes)
    published = [r["publication"] for r in rows(sink, "publications")]
    assert len(set(published)) == len(published)
    assert not set(published) & begun.keys()
    assert all(entity < FIRST_SERVER for _, entity in crashes)
    assert world.simulation.latest_arrival <= world.simulation.now, "all has arrived"


def test_a_crashed_entity_sends_and_receives_nothing() -> None:
    _, sink = ran(crash=0.1, restart_s=2.0)
    down: dict[int, list[tuple[int, int]]] = {}
    for t, entity in notes(sink, "crashed"):
        back = [at for at, who in notes(sink, "joined") if who == entity and at > t]
        down.setdefault(entity, []).append((t, min(back, default=10**12)))
    assert down
    for table in ("publications", "deliveries", "messages", "positions"):
        for row in rows(sink, table):
            for crashed, returned in down.get(row["node"], ()):
                # A strike and a publication may fall on the same microsecond.
                assert not crashed < row["t"] < returned, table


def test_when_all_crash_every_second_the_server_is_still_there() -> None:
    world, sink = ran(crash=1.0, restart_s=0)
    assert notes(sink, "crashed") == [(SECOND, entity) for entity in range(40)]
    assert list(world.simulation.nodes) == [FIRST_SERVER]
    assert max(r["t"] for r in rows(sink, "publications")) <= SECOND


def test_while_the_world_is_parted_the_half_without_the_server_is_cut_off() -> None:
    _, sink = ran(partition=1.0, partition_s=1.0)
    parted, healed = notes(sink, "partitioned"), notes(sink, "healed")
    assert len(parted) > 1
    spells = [
        (t, min((h for h, _ in healed if h > t), default=10**12)) for t, _ in parted
    ]  # the last may outlast the run
    fates: dict[tuple[int, int], set[bool]] = {}
    for row in rows(sink, "messages"):
        entity = min(row["node"], row["to"])
        spell = [k for k, (cut, heal) in enumerate(spells) if cut <= row["t"] < heal]
        if not spell:
            assert not row["lost"]
        elif row["t"] > spells[spell[0]][0]:  # at that very moment, age decides
            fates.setdefault((spell[0], entity), set()).add(row["lost"])
    assert all(len(fate) == 1 for fate in fates.values()), "one is cut off both ways or not at all"
    cut_off = sum(True in fate for fate in fates.values())
    assert likely(cut_off, len(fates), 0.5)


def test_every_message_of_a_slow_entity_is_late_both_ways() -> None:
    _, sink = ran(slow=0.3, slow_ms=200.0, seconds=3.0)
    slowed = {r["about"] for r in rows(sink, "notes") if r["fact"] == "slowed"}
    assert 3 < len(slowed) < 25
    for row in rows(sink, "messages"):
        late = 200_000 * ((row["node"] in slowed) + (row["to"] in slowed))
        assert row["arrived"] - row["t"] == 50_000 + late


def test_entities_that_join_or_return_are_slow_by_a_new_draw() -> None:
    _, sink = ran(slow=0.5, slow_ms=200.0, churn_rate=10.0, crash=0.1, restart_s=0.5)
    joins, slowed = (
        notes(sink, "joined"),
        [(r["t"], r["about"]) for r in rows(sink, "notes") if r["fact"] == "slowed"],
    )
    assert set(slowed) <= set(joins)
    assert len(joins) > 100
    assert likely(len(slowed), len(joins), 0.5)
    returned = {entity for t, entity in joins if t and entity < 40}
    fates = {e: [(t, e) in slowed for t, who in joins if who == e] for e in returned}
    assert any(len(set(fate)) == 2 for fate in fates.values())

    def late(t: int, node: int) -> bool:
        """Was the stay that the node had begun by then one of the slow ones?"""
        begun = [moment for moment, who in joins if who == node and moment < t]
        return bool(begun) and (begun[-1], node) in slowed

    for row in rows(sink, "messages"):
        t, ends = row["t"], (row["node"], row["to"])
        if not any((t, end) in joins for end in ends):  # at that very moment, age decides
            assert row["arrived"] - t == 50_000 + 200_000 * sum(late(t, end) for end in ends)


def test_an_entity_returns_so_often_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearcast.sim.world.STAYS", 3)
    world, sink = ran(crash=1.0, restart_s=0.01)
    assert Counter(entity for _, entity in notes(sink, "joined")) == dict.fromkeys(range(40), 3)
    assert list(world.simulation.nodes) == [FIRST_SERVER]


@pytest.mark.parametrize("churn_by", ["leave", "crash"])
def test_whoever_has_left_while_down_never_returns(churn_by: str) -> None:
    """Churn lets each entity go once; all that join more often were brought back by faults."""
    faults: dict[str, Setting] = {"crash": 0.3, "restart_s": 1.0, "churn_rate": 10.0}
    world, sink = ran(seed=3, churn_by=churn_by, **faults)
    population = churn.population(churn.Parameters(churn_rate=10.0, churn_by=churn_by), 40, 8.0, 3)
    gone = {entity: t for t, entity, act in population if act is not churn.ChurnAction.JOIN}
    joins, present = notes(sink, "joined"), world.present()
    assert len(gone) > 60
    assert len(joins) > len({entity for _, entity in joins})
    assert [(t, entity) for t, entity in joins if t > gone.get(entity, t)] == []
    assert not gone.keys() & set(present)


def test_equal_seeds_leave_equal_traces_of_faulty_worlds() -> None:
    faults: dict[str, Setting] = {"crash": 0.1, "partition": 0.2, "slow": 0.2, "loss": 0.1}
    digests = [digest(ran(3.0, seed, **faults)[1]) for seed in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]


def test_faults_do_not_change_what_entities_do_while_they_run() -> None:
    undisturbed, slow = ran(3.0)[1], ran(3.0, slow=0.5, partition=0.3)[1]
    assert rows(undisturbed, "publications") == rows(slow, "publications")
    assert rows(undisturbed, "interests") == rows(slow, "interests")
    assert rows(undisturbed, "deliveries") != rows(slow, "deliveries")
