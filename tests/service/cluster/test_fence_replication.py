"""Sets of fences are the same on all nodes in the end, whatever is lost or changes at once."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.client_protocol.geometry_json import PLANE, Area
from nearcast.client_protocol.limits import Limits
from nearcast.client_protocol.messages import JSON, PublishRequest, SubscribeRequest
from nearcast.errors import Refused
from nearcast.matching import MATCHERS
from nearcast.model.commands import Subscribe
from nearcast.service.cluster.fence_replication import (
    FRAME_BYTES,
    LONGEST_FEATURE,
    REMEMBERED,
    ReplicatedFences,
    check_features,
    frames_of,
)
from nearcast.service.cluster.messages import CODEC, FenceBuckets, FenceRecord, FenceRecords
from nearcast.service.cluster.realm import ClusterRealm
from nearcast.service.fences.sets import PreparedFences, prepare_fences
from nearcast.sim.cluster.server_host import ServerHost
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import EVERYWHERE
from nearcast.wire import LONGEST
from support.cluster_scripts import ClusterScript
from support.examples import examples, seeds

NAMES, IDS = ["a", "b"], [1, 2, "x"]
STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),  # at which node
        st.sampled_from(["put", "patch", "remove", "end", "lose", "skew"]),
        st.sampled_from(NAMES),
        st.lists(st.sampled_from(IDS), unique=True, min_size=1),
    ),
    max_size=20,
)


class Replica:
    """A node with its sets as it would show them."""

    def __init__(self, number: int) -> None:
        self.fences = ReplicatedFences(number)
        self.sets: dict[tuple[str, Any], bytes] = {}

    def change(
        self, now: int, name: str, texts: dict[Any, bytes], removed: Any, whole: bool
    ) -> Any:
        if whole:
            self.sets = {key: text for key, text in self.sets.items() if key[0] != name}
        for which in removed:
            self.sets.pop((name, which), None)
        self.sets |= {(name, which): text for which, text in texts.items()}
        return self.fences.change(now, name, texts, removed, whole)

    def merge(self, records: Sequence[FenceRecord]) -> None:
        for name, change in self.fences.merge(records).items():
            for which in change.removed:
                if which not in change.texts:
                    self.sets.pop((name, which), None)
            self.sets |= {(name, which): text for which, text in change.texts.items()}


@given(STEPS, st.randoms(use_true_random=False))
@examples(200)
def test_replicas_agree_on_the_last_change_of_each_feature(steps: Any, random: Any) -> None:
    replicas = [Replica(number) for number in range(3)]
    expected: dict[tuple[str, Any], bytes] = {}
    now, losing = 0, False
    for k, (at, what, name, ids) in enumerate(steps):
        now += 10
        if what in ("lose", "skew"):
            losing = what == "lose" and not losing
            continue
        text = f"{k}".encode()
        texts = dict.fromkeys(ids, text) if what in ("put", "patch") else {}
        removed = ids if what == "remove" else []
        records = replicas[at].change(now, name, texts, removed, what in ("put", "end"))
        expected = {
            key: old
            for key, old in expected.items()
            if key[0] != name or (what in ("patch", "remove") and key[1] not in removed)
        } | {(name, which): text for which in texts}
        for other in replicas:
            if other is not replicas[at] and not losing:
                other.merge(random.sample(records, len(records)))
    for _ in range(2):  # what one has learned from another, a third one learns from it
        for one in replicas:
            for other in replicas:
                one.merge(other.fences.records_that_differ(one.fences.buckets))
    assert len({one.fences.digest for one in replicas}) == 1
    assert replicas[0].sets == replicas[1].sets == replicas[2].sets
    assert not any(one.fences.records_that_differ(replicas[0].fences.buckets) for one in replicas)
    assert replicas[0].sets == expected


def test_what_was_removed_long_ago_is_forgotten() -> None:
    replica = Replica(1)
    empty = replica.fences.digest
    replica.change(10, "a", {1: b"one"}, [], False)
    replica.change(20, "a", {}, [1], False)
    replica.fences.forget(20 + REMEMBERED)
    assert replica.fences.digest != empty
    replica.fences.forget(21 + REMEMBERED)
    assert replica.fences.digest == empty


def test_large_sets_are_sent_in_frames_that_fit() -> None:
    short = [FenceRecord("depots", number, 1, 1, b"x" * 300) for number in range(2_000)]
    long = [FenceRecord("depots", "n" * 9, 1, 1, b"x" * LONGEST_FEATURE)]
    frames = frames_of([*short, *long, FenceRecord("depots", None, 1, 1)])
    sizes = [len(CODEC.encode(frame)) for frame in frames]
    assert max(sizes) < LONGEST
    assert all(size < 100_000 for size in sizes[:-2]) and len(frames) > 5
    assert sum(len(frame.records) for frame in frames) == 2_002
    with pytest.raises(Refused, match="at most 400000 bytes"):
        check_features([b"x" * (LONGEST_FEATURE + 1)])


def prepared(*places: tuple[Any, float, float], limits: Limits = Limits()) -> PreparedFences:  # noqa: B008
    features = [
        {"type": "Feature", "id": which, "properties": {"radius": 5},
         "geometry": {"type": "Point", "coordinates": [x, y]}}
        for which, x, y in places
    ]  # fmt: skip
    texts = [json.dumps(one).encode() for one in features]
    return prepare_fences(texts, limits, PLANE, False)


def test_features_of_other_nodes_are_entered_and_left() -> None:
    realm = ClusterRealm(MATCHERS["swept"](), Limits(), None, 1)
    watcher, truck = realm.join(0, "watcher"), realm.join(0, "truck")
    realm.change_fences(1, "depots", prepared(("one", 0, 0)))
    request = SubscribeRequest(1, events=["enter", "leave"], fences="depots")
    realm.subscribe(2, watcher, request)
    realm.publish(truck, PublishRequest(50.0, 0.0, retain=True), JSON)
    realm.flush(SECOND)
    other = ReplicatedFences(2)
    texts = dict(zip(["two"], prepared(("two", 50, 0)).texts, strict=True))
    realm.merge_fences(other.change(2 * SECOND, "depots", texts, [], False))
    told = [(one.event, one.fence, one.reason) for _, one in realm.fence_notices()]
    assert told == [("enter", "two", "")]
    realm.merge_fences(other.change(3 * SECOND, "depots", {}, [], True))
    told = [(one.event, one.fence, one.reason) for _, one in realm.fence_notices()]
    assert told == [("leave", "two", "removed")]
    assert realm.fence_set("depots") is None
    nonsense = {"two": texts["two"], "three": b"[]", "four": b"{"}
    realm.merge_fences(other.change(4 * SECOND, "depots", nonsense, [], False))
    found = realm.fence_set("depots")
    assert found is not None and list(found.numbers) == ["two"]


class SetScript(ClusterScript):
    """Servers whose sets change, with faults."""

    def change(self, server: ServerHost, *places: Any, name: str = "depots", **how: Any) -> None:
        server.realm.change_fences(server.now, name, prepared(*places), **how)

    def sets(self, server: ServerHost, name: str = "depots") -> Any:
        found = server.realm.fence_set(name)
        return None if found is None else {found.ids[n]: found.texts[n] for n in found.texts}

    def same(self) -> bool:
        digests = {one.realm.replicated_fences.digest for one in self.servers}
        some = [[self.sets(one, name) for name in ("depots", "gates")] for one in self.servers]
        return len(digests) == 1 and all(one == some[0] for one in some)


@seeds([1], [2, 3])
def test_sets_are_the_same_on_all_servers_after_faults(seed: int) -> None:
    script = SetScript(seed, servers=4, standbys=1)
    one, two, three, _ = script.servers
    script.change(one, *[(k, float(k), 0.0) for k in range(300)], replace_all=True)
    script.run(3.0)
    assert script.same() and len(script.sets(three)) == 300
    # A link loses all records; both sides of a partition change the set; a server starts anew.
    script.world.inject.lose(lambda _, __, message: isinstance(message, FenceRecords))
    script.change(two, ("lost", 1.0, 1.0), remove=[7])
    script.run(0.5)
    script.world.inject.lose(None)
    script.world.inject.partition({one.machine: 1}, 6 * SECOND)
    script.run(2.0)
    script.change(one, ("inner", 2.0, 2.0), (8, 0.0, 0.0))
    script.run(0.1)
    script.change(two, ("outer", 3.0, 3.0), (8, 9.0, 9.0), remove=[9])
    script.change(three, ("gate", 3.0, 3.0), name="gates", replace_all=True)
    script.world.inject.crash(three, SECOND)
    script.run(10.0)
    script.world.wait("sets differ", lambda: len(script.servers) == 4 and script.same())
    known = script.sets(script.servers[-1])
    assert {"lost", "inner", "outer"} <= known.keys() and not {7, 9} & known.keys()
    assert known[8] == prepared((8, 9.0, 9.0)).texts[0]
    script.change(script.servers[-1], ("last", 0.0, 0.0), replace_all=True)
    script.world.wait("sets differ", script.same)
    assert list(script.sets(two)) == ["last"]


def test_a_set_of_many_frames_arrives_bit_by_bit_and_no_node_is_lost() -> None:
    script, sent = SetScript(1), list[int]()
    script.world.watchers.append(
        lambda _, __, one: isinstance(one, FenceRecords) and sent.append(len(CODEC.encode(one)))
    )
    one, *others = script.servers
    known = [list(node.service.cluster.nodes) for node in script.servers]
    script.change(one, *[(k, float(k), 0.0) for k in range(4_000)], replace_all=True)
    script.run(0.1)
    assert 0 < len(script.sets(others[0])) < 4_000, "a part has arrived"
    script.world.wait("sets differ", script.same)
    assert all(len(script.sets(other)) == 4_000 for other in others)
    assert len(sent) > 10 and max(sent) < 2 * FRAME_BYTES
    assert [list(node.service.cluster.nodes) for node in script.servers] == known


def test_while_nothing_is_lost_nobody_asks() -> None:
    script, asked = SetScript(1), []
    script.world.watchers.append(
        lambda _, __, one: isinstance(one, FenceBuckets) and asked.append(1)
    )
    for k in range(10):
        script.change(script.servers[k % 3], (k, 0.0, 0.0))
        script.run(0.3)
    script.run(2.0)
    assert script.same() and not asked


def test_a_client_keeps_its_subscription_to_a_set_when_it_is_handed_over() -> None:
    script = SetScript(1)
    old, new = script.servers[:2]
    script.change(old, ("depot", 0.0, 0.0), replace_all=True)
    script.run(1.0)
    walker = script.client(old, *old.service.cluster.site.place)
    request = SubscribeRequest(0, Area(), events=["enter"], fences="depots")
    _, state, effects = walker.host.core.subscribe(script.world.now, request, Moving(EVERYWHERE))
    walker.host._wanted[2], walker.host._numbers[2] = Subscribe(2, Moving(EVERYWHERE)), state.number
    walker.host._apply(effects)
    script.run(1.0)
    walker.walk(*new.service.cluster.site.place)
    script.world.wait("it is not handed over", lambda: walker.server is new)
    script.run(1.0)
    driver = script.client(old, 0.0, 0.0)
    script.world.wait("nobody entered", lambda: driver.host.entity in state.inside)
    script.check()
