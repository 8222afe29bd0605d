"""The parts of a member of a cluster by themselves: what was so a moment ago, and who knows it."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.client_protocol.limits import Limits
from nearcast.matching import MATCHERS
from nearcast.model import commands
from nearcast.model.subscription import Formula, NodeId
from nearcast.node import Message, Outbox
from nearcast.protocols.voronoi.site import Site
from nearcast.protocols.voronoi.vso.messages import RecordCopies
from nearcast.protocols.voronoi.vso.parameters import Parameters
from nearcast.service.client_state import ActiveSubscription, ThrottleOptions
from nearcast.service.cluster.handover import find_overtaken, may_be_overtaken
from nearcast.service.cluster.messages import (
    SubscriptionEnded,
    SubscriptionHint,
    SubscriptionOwned,
    SubscriptionUpdate,
)
from nearcast.service.cluster.realm import ClusterRealm
from nearcast.service.cluster.recent_history import (
    KEPT,
    EarlierDeliveries,
    RecentHistory,
    SubscriptionVersion,
    VersionHistory,
    join_flushes,
)
from nearcast.service.cluster.remote_entities import SILENT, UNCHECKED, RemoteEntities
from nearcast.service.cluster.remote_subscriptions import (
    RemoteSubscriptions,
    block_of,
    first_number,
    record_of,
)
from nearcast.service.cluster.subscription_registry import (
    TELL_EVERY,
    UNANSWERED,
    UNCONFIRMED,
    SubscriptionRegistry,
)
from nearcast.service.retained_state import RetainedStates
from nearcast.service.state_expiry import StateExpiry
from nearcast.space.motion import FOREVER, SECOND, Moving, Time
from nearcast.space.shapes import DISC, disc
from support.cluster_flushes import (
    ELSEWHERE,
    ME,
    THERE,
    accepted_publications,
    homes,
    passed,
    put,
    wanted,
)
from support.examples import examples

# What was so a moment ago.


@examples(30)
@given(
    versions=st.lists(
        st.tuples(
            st.integers(0, 5), st.integers(0, 40), st.one_of(st.none(), st.integers(0, 30)),
            st.integers(0, 50),
        ),
        max_size=12,
    ),
    made=st.lists(st.tuples(st.integers(0, 80), st.integers(0, 50)), min_size=1, max_size=12),
)  # fmt: skip
def test_former_versions_hear_what_was_made_while_they_held(
    versions: list[tuple[int, int, int | None, int]], made: list[tuple[int, int]]
) -> None:
    former = VersionHistory()
    for key, since, lasts, x in versions:
        until = FOREVER if lasts is None else since + lasts
        former.add(0, key, wanted(1, float(x)), since, until)
    _, publications = accepted_publications(*((t, float(x), 0.0) for t, x in made))
    found, keys = former.match(publications)
    truth = sorted(
        (i, key)
        for i, (t, at) in enumerate(made)
        for key, since, lasts, x in versions
        if abs(at - x) <= 10 and since <= t and (lasts is None or t < since + lasts)
    )
    assert sorted(zip(found.tolist(), keys.tolist(), strict=True)) == truth


def test_former_versions_are_forgotten_in_their_time_and_their_places_used_again() -> None:
    former = VersionHistory()
    former.add(0, 1, wanted(1, 0.0), 0)
    former.add(5, 2, wanted(2, 0.0), 0, kept=SECOND)
    _, publications = accepted_publications((3, 0.0, 0.0))
    former.forget(SECOND + 5)
    assert former.match(publications)[1].tolist() == [1]
    former.forget(KEPT)
    assert len(former) == 0
    assert former.match(publications)[1].tolist() == []
    former.add(KEPT, 3, wanted(3, 100.0), 0, 10)
    assert former.match(publications)[1].tolist() == []


def test_former_versions_of_one_are_found_and_dropped_and_the_others_stay() -> None:
    former = VersionHistory()
    former.add(0, 1, wanted(11, 0.0), 0, 10)
    former.add(0, 2, wanted(12, 0.0), 0, 10)
    former.add(10, 1, wanted(11, 5.0), 10, 20)
    assert former.of(1, since=10) == [SubscriptionVersion(wanted(11, 5.0), 10, 20)]
    assert len(former.of(1, since=9)) == 2
    former.drop(1)
    assert former.of(1, since=0) == []
    _, publications = accepted_publications((3, 0.0, 0.0))
    assert former.match(publications)[1].tolist() == [2]
    former.forget(10 + KEPT)
    assert len(former) == 0


@examples(25)
@given(
    flushes=st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=6), since=st.integers(0, 70)
)
def test_what_is_recent_is_all_that_was_made_since(flushes: list[list[int]], since: int) -> None:
    kept = [
        passed(10 * n + 10, *((10 * n + t, float(t), 0.0) for t in made))
        for n, made in enumerate(flushes)
        if made
    ]
    found = join_flushes(kept, since)
    truth = [(one, i) for one in kept for i, t in enumerate(one.publications.t) if t >= since]
    if found is None:
        assert truth == []
        return
    assert [found.locate(at) for at in range(len(found.publications))] == truth
    assert found.ids.tolist() == [one.accepted[i].id for one, i in truth]
    assert [found.publications.publications[i].t for i in range(len(truth))] == [
        one.accepted[i].t for one, i in truth
    ]


@examples(25)
@given(
    walks=st.lists(st.tuples(*[st.integers(-90, 90)] * 4), min_size=1, max_size=4),
    made=st.lists(
        st.tuples(st.integers(0, 8), *[st.integers(-90, 90)] * 2, st.integers(0, 20)), min_size=1
    ),
)
def test_of_what_is_recent_only_what_no_subscription_can_touch_is_left_out(
    walks: list[tuple[int, int, int, int]], made: list[tuple[int, int, int, int]]
) -> None:
    made.sort()
    flush = passed(9 * SECOND, *((SECOND * t, float(x), float(y)) for t, x, y, _ in made))
    extent = np.array([(r, 0.0, 0.0) for *_, r in made])
    kind = np.full(len(made), DISC)
    flush.publications = replace(flush.publications, kind=kind, extent=extent)
    recent = join_flushes([flush], 2 * SECOND)
    if recent is None:
        return
    walkers = [
        replace(wanted(n, 0.0), region=Moving(disc(x, y, 10.0), (vx / 10, vy / 10, 0.0)))
        for n, (x, y, vx, vy) in enumerate(walks)
    ]
    touched = [
        i
        for i, (t, x, y, r) in enumerate(one for one in made if one[0] >= 2)
        if any(disc(x, y, r).touches(one.region.at(SECOND * t)) for one in walkers)
    ]
    near = recent.near(walkers, 2 * SECOND)
    assert {*recent.ids[touched].tolist()} <= {*near.ids.tolist()}
    kept = np.isin(recent.ids, near.ids)
    assert near.publications.t.tolist() == recent.publications.t[kept].tolist()
    assert near.indices.tolist() == recent.indices[kept].tolist()
    everywhere = replace(walkers[0], region=Formula("x > 0"))
    assert recent.near([everywhere], 2 * SECOND) is recent


# Other nodes' clients.


def test_a_site_tells_each_home_once_as_it_was_and_as_it_is() -> None:
    remote_subscriptions = RemoteSubscriptions()
    put(remote_subscriptions, 100, 1, 0.0, 100, THERE)
    put(remote_subscriptions, 100, 2, 5.0, 100, THERE)
    put(remote_subscriptions, 100, 3, 0.0, 100, ELSEWHERE)
    assert homes(remote_subscriptions, (150, 0.0, 0.0), (150, 50.0, 0.0)) == [
        (0, THERE),
        (0, ELSEWHERE),
    ]
    put(remote_subscriptions, 200, 3, 50.0, 200, ELSEWHERE)
    assert homes(remote_subscriptions, (150, 0.0, 0.0), (250, 0.0, 0.0)) == [
        (0, THERE), (0, ELSEWHERE), (1, THERE),
    ]  # fmt: skip
    remote_subscriptions.drop(300, 1)
    remote_subscriptions.drop(300, 2)
    assert homes(remote_subscriptions, (350, 0.0, 0.0)) == [(0, THERE)], "kept for a while"
    remote_subscriptions.forget(300 + KEPT)
    assert homes(remote_subscriptions, (350, 0.0, 0.0)) == []
    assert len(remote_subscriptions) == 1


def test_an_interest_that_comes_late_finds_what_it_should_have_heard_once() -> None:
    remote_subscriptions = RemoteSubscriptions()
    before = [passed(100, (100, 0.0, 0.0)), passed(200, (200, 0.0, 0.0), (200, 90.0, 0.0))]
    record = record_of(THERE, wanted(1, 0.0), 150, 0)
    remote_subscriptions.add_hint(250, record, THERE)
    assert [
        (one.t, i, home) for one, i, home in remote_subscriptions.match_missed(250, before)
    ] == [(200, 0, THERE)]
    assert list(remote_subscriptions.match_missed(260, before)) == []
    remote_subscriptions.put(270, record, THERE)
    assert list(remote_subscriptions.match_missed(280, before)) == [], "its home had said so"
    put(remote_subscriptions, 300, 2, 90.0, 190, ELSEWHERE)
    assert [
        (one.t, i, home) for one, i, home in remote_subscriptions.match_missed(300, before)
    ] == [(200, 1, ELSEWHERE)]


def test_of_two_versions_that_come_together_each_finds_what_it_should_have_heard() -> None:
    remote_subscriptions = RemoteSubscriptions()
    before = [passed(100, (100, 0.0, 0.0)), passed(200, (200, 90.0, 0.0))]
    for since, x in ((50, 0.0), (150, 90.0)):
        remote_subscriptions.add_hint(250, record_of(THERE, wanted(1, x), since, 0), THERE)
    assert [(one.t, i) for one, i, _ in remote_subscriptions.match_missed(250, before)] == [
        (100, 0),
        (200, 0),
    ]


# My own clients.


class Home:
    """Holdings beside a site that is alone, or knows of another."""

    def __init__(self) -> None:
        self.now: Time = SECOND
        out = Outbox()
        self.site = Site(ME, out, Random(1), lambda: self.now, Parameters())
        self.site.found((0.0, 0.0))
        self.sent: list[tuple[NodeId, Message]] = []
        self.announced: list[tuple[NodeId, Message]] = []  # all that was sent before
        self.remote_subscriptions = RemoteSubscriptions()
        self.registry = SubscriptionRegistry(
            ME, lambda: self.site, self.remote_subscriptions, lambda to, m: self.sent.append((to,
            m)),
            lambda node: node in (ME, THERE),
        )  # fmt: skip

    def pass_on(self, by: Time) -> list[tuple[NodeId, Message]]:
        self.now += by
        self.site.tick(self.now)
        self.settle()
        self.registry.tick(self.now)
        sent, self.sent = self.sent, []
        self.announced += sent
        return sent

    def settle(self) -> None:
        for change in self.site.drain():
            self.registry.apply_site_change(self.now, change)

    def want(self, number: int, x: float) -> ActiveSubscription:
        subscription = wanted(number, x)
        active = ActiveSubscription(
            0,
            1,
            self.now,
            commands.Subscribe(number, subscription.region),
            subscription,
            ThrottleOptions(),
        )
        self.registry.announce(self.now, {number: active}, [])
        self.settle()
        return active


def test_what_my_clients_want_is_mine_while_i_am_alone_and_ends_with_them() -> None:
    home = Home()
    home.want(11, 5.0)
    assert home.pass_on(SECOND // 10) == []
    assert home.registry.owner(11) == ME
    assert len(home.remote_subscriptions) == 0, "those are matched as clients are"
    home.registry.announce(home.now, {11: None}, [])
    home.settle()
    assert home.site.record(11) is None
    assert home.registry.owner(11) is None


def test_a_site_holds_what_another_home_says_and_tells_it_so() -> None:
    home = Home()
    record = record_of(THERE, wanted(21, 5.0), home.now, 0)
    home.registry.receive(SubscriptionUpdate((record,)), THERE)
    home.settle()
    assert home.pass_on(SECOND // 10) == [(THERE, SubscriptionOwned(((21, record.version),)))]
    assert homes(home.remote_subscriptions, (home.now, 5.0, 0.0)) == [(0, THERE)]
    home.registry.receive(SubscriptionEnded(((21, record.version - 1),)), THERE)
    assert home.site.record(21) is not None, "an end of something older"
    home.registry.receive(SubscriptionEnded(((21, record.version),)), THERE)
    home.settle()
    assert home.site.record(21) is None
    assert len(home.remote_subscriptions) == 0


def test_what_somebody_holds_for_me_without_reason_is_ended_there() -> None:
    home = Home()
    home.registry.receive(SubscriptionOwned(((33, 5),)), THERE)
    assert home.sent == [(THERE, SubscriptionEnded(((33, 5),)))]
    home.sent.clear()
    home.registry.remove_departed(home.now, 34)
    home.registry.receive(SubscriptionOwned(((34, 5),)), THERE)
    assert home.sent == [], "its new home speaks for it"


def test_an_owner_that_knows_an_older_version_is_told_again() -> None:
    home = Home()
    home.want(11, 5.0)
    home.pass_on(UNANSWERED + 1)
    home.registry.receive(SubscriptionOwned(((11, 1),)), THERE)
    ((to, message),) = home.sent
    assert to == THERE
    assert isinstance(message, SubscriptionUpdate)
    assert [record.id for record in message.records] == [11]


def test_what_nobody_confirms_any_more_is_told_anew_in_a_higher_version() -> None:
    home = Home()
    active = home.want(11, 5.0)
    home.registry.receive(SubscriptionOwned(((11, 2**60),)), THERE)
    assert home.registry.owner(11) == THERE
    home.sent.clear()
    home.site.dropped(11, 2**60)
    home.settle()
    home.pass_on(UNCONFIRMED + TELL_EVERY)
    assert active.handovers == 1
    assert home.registry.owner(11) in (ME, None)


def test_what_another_site_owns_goes_there_until_that_site_sends_it_back() -> None:
    home = Home()
    record = record_of(THERE, wanted(21, 5.0), home.now, 0)
    copied = replace(record, epoch=2, owner=THERE)
    home.site.on(RecordCopies((copied,)), THERE)
    later = replace(record, version=record.version + 1)
    home.sent.clear()
    home.registry.receive(SubscriptionUpdate((later,), hops=3), ELSEWHERE)
    assert home.sent == [(THERE, SubscriptionUpdate((later,), hops=4))]
    assert home.site.owner(21) == THERE
    home.registry.receive(SubscriptionUpdate((later,), hops=5), THERE)
    found = home.site.record(21)
    assert found is not None
    assert (found.owner, found.epoch, found.version) == (ME, 3, later.version)


def test_what_is_announced_again_is_taken_in_a_later_epoch() -> None:
    home = Home()
    home.site.set_representatives({THERE: (0.0, 0.0)})
    home.site.mesh.leave()
    home.want(11, 5.0)
    home.pass_on(UNANSWERED + 1)
    home.pass_on(UNANSWERED + 1)
    updates = [m for _, m in home.announced if isinstance(m, SubscriptionUpdate)]
    assert [[record.epoch for record in one.records] for one in updates] == [[0], [1], [2]]


def test_a_dead_nodes_clients_want_nothing_and_what_it_owned_is_told_anew() -> None:
    home = Home()
    home.registry.receive(
        SubscriptionUpdate((record_of(THERE, wanted(21, 5.0), home.now, 0),)), THERE
    )
    home.want(11, 5.0)
    home.registry.receive(SubscriptionOwned(((11, 2**60),)), THERE)
    home.settle()
    home.registry.on_node_lost(home.now, THERE)
    home.settle()
    assert home.site.record(21) is None
    assert home.registry.owner(11) is None or home.registry.owner(11) == ME
    home.registry.receive(
        SubscriptionHint((record_of(THERE, wanted(22, 5.0), home.now, 0),)), THERE
    )
    assert homes(home.remote_subscriptions, (home.now + 1, 500.0, 0.0)) == []
    home.registry.on_node_back(THERE)
    home.registry.receive(
        SubscriptionUpdate((record_of(THERE, wanted(23, 5.0), home.now, 0),)), THERE
    )
    home.settle()
    assert home.site.record(23) is not None


def test_what_was_wanted_for_a_moment_only_is_kept_to_be_told() -> None:
    realm = ClusterRealm(MATCHERS["swept"](), Limits(), None, first_number(ME))
    client = realm.join(100, "anna", messages.JSON)
    realm.subscribe(100, client, messages.SubscribeRequest(1, messages.Area(0.0, 0.0, r=10.0)))
    (active,) = client.subscriptions.values()
    realm.history.changed_subscriptions.clear()  # all have been told
    for t, x in ((200, 50.0), (300, 60.0), (400, 70.0)):
        realm.move(t, client, messages.MoveRequest(1, messages.Area(x, 0.0, r=10.0)))
    assert [(was.since, was.until) for was in realm.history.unannounced] == [(200, 300), (300, 400)]
    assert list(realm.history.changed_subscriptions.values()) == [active]
    assert active.since == 400


def test_what_is_so_late_that_it_was_forgotten_is_not_taken_for_new() -> None:
    history = RecentHistory()
    first, other = first_number(THERE), first_number(ELSEWHERE)
    assert history.is_new(first + 5)
    assert history.is_new(other)
    for turn in range(1, 4):  # by then it is not remembered
        history.forget(turn * (3 * KEPT + 1))
    assert not history.is_new(first + 5)
    assert not history.is_new(first + 4), "it may have come, too"
    assert history.is_new(first + 6)
    assert not history.is_new(other)
    assert history.is_new(other + 1)


# Clients who come from another node, and what comes late.


def test_what_a_client_missed_is_overtaken_if_it_is_overdue_and_a_later_one_was_received() -> None:
    _, made = accepted_publications((10, 0.0, 0.0), (20, 0.0, 0.0), (30, 0.0, 0.0), (40, 0.0, 0.0))
    made.node[:] = 7, 7, 8, 7
    received = np.array([False, True, False, False])
    missed = np.array([0, 2, 3])
    assert find_overtaken(made, received, missed, overdue=50).tolist() == [True, False, False]
    assert find_overtaken(made, received, missed, overdue=10).tolist() == [False, False, False]


def test_what_is_not_known_here_may_have_overtaken_what_is_of_the_same_node() -> None:
    here, there = first_number(ME), first_number(ME + 1)
    missed = np.array([here + 3, here + 9, there + 3])
    unknown = np.array([here + 5, here + 1])
    assert may_be_overtaken(missed, unknown).tolist() == [True, False, False]
    assert may_be_overtaken(missed, unknown[:0]).tolist() == [False, False, False]


class Arrived:
    """A realm with a client that has come from another node, where it had heard something."""

    def __init__(self) -> None:
        self.realm = ClusterRealm(MATCHERS["swept"](), Limits(), None, first_number(ME))
        self.realm.tick(SECOND)
        active = ActiveSubscription(
            -1,
            1,
            0,
            commands.Subscribe(11, wanted(11, 0.0).region),
            wanted(11, 0.0),
            ThrottleOptions(),
        )
        self.client = self.realm.add_transferred(
            SECOND, 7, "anna", messages.JSON, [active], [()], SECOND, ()
        )

    def hears(self, now: Time, number: int, t: Time, entity: int = 9) -> list[int]:
        """What the client is told if this comes now, made at `t`."""
        self.realm.tick(now)
        request = messages.PublishRequest(1.0, 0.0)
        self.realm.receive_remote(
            entity, "", first_number(THERE) + number, request, messages.JSON, t
        )
        heard = self.realm.flush(now)
        return [int(n) - first_number(THERE) for n in heard.numbers()] if len(heard) else []


def test_what_a_client_had_on_another_node_is_not_told_again_however_late_it_comes() -> None:
    story = Arrived()
    had = EarlierDeliveries(0, SECOND, frozenset({first_number(THERE) + 1}), 3 * SECOND)
    story.realm.earlier_deliveries[story.client.slot] = had
    assert story.hears(SECOND + 10, 1, SECOND - 10) == []
    assert story.hears(SECOND + 20, 2, SECOND - 10, entity=8) == [2]
    assert story.hears(4 * SECOND, 1, SECOND - 10) == []
    assert story.hears(4 * SECOND, 3, 4 * SECOND - 10) == [3]


def test_what_comes_too_late_is_told_only_if_its_publisher_has_not_been_heard_since() -> None:
    story = Arrived()
    assert story.hears(4 * SECOND, 5, 4 * SECOND - 5) == [5]
    assert story.hears(5 * SECOND - 10, 4, 4 * SECOND - 6) == [4], "nodes may be so slow"
    assert story.hears(6 * SECOND, 3, 4 * SECOND - 7) == []
    assert story.hears(7 * SECOND, 6, 4 * SECOND - 1) == [6], "late, and newer"
    assert story.hears(8 * SECOND, 2, 4 * SECOND, entity=8) == [2], "late, and the first"


# Entities elsewhere.


def remote_entities_of(states: RetainedStates) -> RemoteEntities:
    return RemoteEntities(states, StateExpiry(states), list)


@pytest.mark.parametrize("late", [False, True])
def test_whoever_spoke_for_an_entity_last_is_its_node(late: bool) -> None:
    remote_entities = remote_entities_of(RetainedStates())
    remote_entities.on_publication(10, 77, "", messages.JSON, first_number(THERE), 10)
    remote_entities.set_home(20, 77, "anna", messages.JSON, ELSEWHERE, 20)
    if late:  # it was said before anna went
        remote_entities.on_publication(30, 77, "", messages.JSON, first_number(THERE) + 1, 15)
    remote_entities.on_node_lost(THERE)
    assert len(remote_entities) == 1
    remote_entities.on_node_lost(ELSEWHERE)
    assert len(remote_entities) == 0
    assert block_of(THERE) != block_of(ELSEWHERE)


def test_what_was_published_last_is_known_also_when_the_node_of_its_publisher_is_lost() -> None:
    remote_entities = remote_entities_of(RetainedStates())
    remote_entities.on_publication(100, 77, "", messages.JSON, first_number(THERE), 90)
    remote_entities.on_node_lost(THERE)
    assert len(remote_entities) == 0
    assert remote_entities.has_newer(77, 80)
    assert not remote_entities.has_newer(77, 90)
    remote_entities.forget(SILENT + 200)
    assert not remote_entities.has_newer(77, 80)


def test_only_its_own_node_can_say_that_an_entity_has_left() -> None:
    remote_entities = remote_entities_of(RetainedStates())
    remote_entities.set_home(10, 77, "anna", messages.JSON, THERE, 10)
    remote_entities.on_entity_left(20, 77, ELSEWHERE)
    assert len(remote_entities) == 1
    remote_entities.on_entity_left(20, 77, THERE)
    assert len(remote_entities) == 0
    assert remote_entities.has_left(77, 20)
    assert not remote_entities.has_left(77, 21), "whoever says something later has not left"


def test_silent_entities_are_asked_for_and_go_if_their_node_does_not_know_them() -> None:
    realm = ClusterRealm(MATCHERS["swept"](), Limits(), None, first_number(ME))
    remote_entities = realm.remote_entities
    for entity, home in ((77, THERE), (78, ELSEWHERE)):
        request = messages.PublishRequest(1.0, 2.0, retain=True)
        realm.learn_state(10, home, entity, "", request, messages.JSON, first_number(home), 10)
    remote_entities.set_home(10, 79, "", messages.JSON, THERE, 10)  # retains nothing
    assert remote_entities.due_for_check(10) == {}
    later = 10 + UNCHECKED + 1
    assert remote_entities.due_for_check(later) == {
        block_of(THERE): [77],
        block_of(ELSEWHERE): [78],
    }
    assert remote_entities.due_for_check(later + UNCHECKED) == {}, "they have been asked for"
    assert not remote_entities.on_absent(78, block_of(THERE)), "it is not there, but elsewhere"
    assert remote_entities.on_absent(77, block_of(THERE))
    assert len(remote_entities) == 2


def test_of_somebody_who_is_gone_nothing_is_kept_that_comes_late() -> None:
    feeds = RetainedStates()
    remote_entities, said = remote_entities_of(feeds), messages.PublishRequest(1.0, 2.0)
    remote_entities.feed(
        remote_entities.on_publication(10, 77, "", messages.JSON, first_number(THERE), 10), said, 10
    )
    remote_entities.on_entity_left(20, 77, THERE)
    client = remote_entities.on_publication(30, 77, "", messages.JSON, first_number(THERE) + 1, 15)
    assert client.left
    assert remote_entities.feed(client, said, 15) in feeds.left.tolist()
    assert len(remote_entities) == 0
    remote_entities.forget(21 + SILENT + SECOND)
    assert not remote_entities.has_left(77, 20)


def test_a_state_that_waits_when_its_entity_comes_and_leaves_at_once_is_not_kept() -> None:
    """A client is returned to a node to which it is not connected any more."""
    realm = ClusterRealm(MATCHERS["swept"](), Limits(), None, first_number(ME))
    request = messages.PublishRequest(1.0, 0.0, retain=True)
    for number in (1, 2):
        realm.receive_remote(77, "anna", first_number(THERE) + number, request, messages.JSON, 10)
        if number == 1:
            realm.flush(20)
    client = realm.add_transferred(30, 77, "anna", messages.JSON, [], [], 30, [""])
    realm.leave(30, client)
    realm.flush(40)
    realm.tick(50)
    assert realm.nearby(60, messages.NearbyRequest(Area(), limit=10)) == []


@pytest.mark.parametrize("came", [False, True])
def test_a_state_is_made_later_than_the_withdrawal_before_it(came: bool) -> None:
    """Other nodes end what was made until then. This node's time may be ahead of its clock."""
    realm = ClusterRealm(MATCHERS["swept"](), Limits(), None, first_number(ME))
    realm.flush(100)
    if came:  # and had withdrawn its state before
        client = realm.add_transferred(90, 77, "anna", messages.JSON, [], [], departed := 110, [])
    else:
        client = realm.join(90, "anna")
        realm.publish(client, messages.PublishRequest(1.0, 0.0, retain=True), messages.JSON)
        realm.flush(91)
        realm.withdraw(92, client, messages.WithdrawRequest())
        ((_, _, departed),) = realm.history.withdrawn_states
    realm.publish(client, messages.PublishRequest(2.0, 0.0, retain=True), messages.JSON)
    realm.flush(93)
    (state,) = realm.retained_states(client)
    assert state.t > departed
