"""The parts of a member of a cluster by themselves: what was so a moment ago, and who knows it."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcast.live import words
from nearcast.live.admission import Limits
from nearcast.live.cluster.abroad import Abroad, block_of, first_number, record_of
from nearcast.live.cluster.holdings import TELL_EVERY, UNANSWERED, UNCONFIRMED, Holdings
from nearcast.live.cluster.lately import KEPT, Former, Passed, Was, recent
from nearcast.live.cluster.messages import (
    BEFORE,
    CLIENTS,
    TOWARDS,
    Ended,
    Held,
    Hint,
    Hold,
    Said,
    code_of,
    way_of,
)
from nearcast.live.cluster.post import Post
from nearcast.live.cluster.realm import ClusterRealm
from nearcast.live.cluster.strangers import SILENT, Strangers
from nearcast.live.seats import Accepted, Seat, Standing, Wish
from nearcast.live.voices import SAID, Voices, batch, pack
from nearcast.matching import MATCHERS
from nearcast.matching.matcher import Batch
from nearcast.model import commands
from nearcast.model.subscription import NodeId, Subscription
from nearcast.node import Message, Outbox
from nearcast.protocols.voronoi.site import Site
from nearcast.protocols.voronoi.vso_messages import Record
from nearcast.protocols.voronoi.vso_parameters import Parameters
from nearcast.space.motion import FOREVER, SECOND, Moving, Time
from nearcast.space.shapes import disc

ME, THERE, ELSEWHERE = 1, 2, 3  # nodes


def said(*made: tuple[Time, float, float]) -> tuple[list[Accepted], Batch]:
    """Publications of points, each with its moment."""
    seat = Seat(0, 9, "", words.JSON)
    accepted = [
        Accepted(seat, first_number(ME) + 1000 * t + i, 0, words.Publish(x, y), words.JSON, t)
        for i, (t, x, y) in enumerate(made)
    ]
    rows = b"".join(pack(9, 0, 0, 0, 0, x, y, 0.0, 0.0, 0.0, 0.0) for _, x, y in made)
    publications = batch(0, np.frombuffer(rows, SAID), accepted, None)
    publications.t[:] = [t for t, _, _ in made]
    return accepted, publications


def passed(t: Time, *made: tuple[Time, float, float]) -> Passed:
    accepted, publications = said(*made)
    none = np.zeros(0, np.int64)
    ids = np.array([one.id for one in accepted], np.int64)
    return Passed(t, accepted, ids, publications, none, none, none, [9] * len(accepted))


def wanted(number: int, x: float, r: float = 10.0) -> Subscription:
    return Subscription(number, 7, Moving(disc(x, 0, r)))


# What was so a moment ago.


@settings(max_examples=30, deadline=None)
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
    former = Former()
    for key, since, lasts, x in versions:
        until = FOREVER if lasts is None else since + lasts
        former.add(0, key, wanted(1, float(x)), since, until)
    _, publications = said(*((t, float(x), 0.0) for t, x in made))
    found, keys = former.match(publications)
    truth = sorted(
        (i, key)
        for i, (t, at) in enumerate(made)
        for key, since, lasts, x in versions
        if abs(at - x) <= 10 and since <= t and (lasts is None or t < since + lasts)
    )
    assert sorted(zip(found.tolist(), keys.tolist(), strict=True)) == truth


def test_former_versions_are_forgotten_in_their_time_and_their_places_used_again() -> None:
    former = Former()
    former.add(0, 1, wanted(1, 0.0), 0)
    former.add(5, 2, wanted(2, 0.0), 0, kept=SECOND)
    _, publications = said((3, 0.0, 0.0))
    former.forget(SECOND + 5)
    assert former.match(publications)[1].tolist() == [1]
    former.forget(KEPT)
    assert len(former) == 0
    assert former.match(publications)[1].tolist() == []
    former.add(KEPT, 3, wanted(3, 100.0), 0, 10)
    assert former.match(publications)[1].tolist() == []


def test_former_versions_of_one_are_found_and_dropped_and_the_others_stay() -> None:
    former = Former()
    former.add(0, 1, wanted(11, 0.0), 0, 10)
    former.add(0, 2, wanted(12, 0.0), 0, 10)
    former.add(10, 1, wanted(11, 5.0), 10, 20)
    assert former.of(1, since=10) == [Was(wanted(11, 5.0), 10, 20)]
    assert len(former.of(1, since=9)) == 2
    former.drop(1)
    assert former.of(1, since=0) == []
    _, publications = said((3, 0.0, 0.0))
    assert former.match(publications)[1].tolist() == [2]
    former.forget(10 + KEPT)
    assert len(former) == 0


@settings(max_examples=25, deadline=None)
@given(
    flushes=st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=6), since=st.integers(0, 70)
)
def test_what_is_recent_is_all_that_was_made_since(flushes: list[list[int]], since: int) -> None:
    kept = [
        passed(10 * n + 10, *((10 * n + t, float(t), 0.0) for t in made))
        for n, made in enumerate(flushes)
        if made
    ]
    found = recent(kept, since)
    truth = [(one, i) for one in kept for i, t in enumerate(one.publications.t) if t >= since]
    if found is None:
        assert truth == []
        return
    assert [found.place(at) for at in range(len(found.publications))] == truth
    assert found.ids.tolist() == [one.accepted[i].id for one, i in truth]
    assert [found.publications.publications[i].t for i in range(len(truth))] == [
        one.accepted[i].t for one, i in truth
    ]


# Other nodes' clients.


def put(abroad: Abroad, now: Time, number: int, x: float, since: Time, home: NodeId) -> Record:
    record = record_of(home, wanted(number, x), since, 0)
    abroad.put(now, record, home)
    return record


def homes(abroad: Abroad, *made: tuple[Time, float, float]) -> list[tuple[int, NodeId]]:
    _, publications = said(*made)
    found, whose = abroad.homes(publications, np.arange(len(made)))
    return list(zip(found.tolist(), whose.tolist(), strict=True))


def test_a_site_tells_each_home_once_as_it_was_and_as_it_is() -> None:
    abroad = Abroad()
    put(abroad, 100, 1, 0.0, 100, THERE)
    put(abroad, 100, 2, 5.0, 100, THERE)
    put(abroad, 100, 3, 0.0, 100, ELSEWHERE)
    assert homes(abroad, (150, 0.0, 0.0), (150, 50.0, 0.0)) == [(0, THERE), (0, ELSEWHERE)]
    put(abroad, 200, 3, 50.0, 200, ELSEWHERE)
    assert homes(abroad, (150, 0.0, 0.0), (250, 0.0, 0.0)) == [
        (0, THERE), (0, ELSEWHERE), (1, THERE),
    ]  # fmt: skip
    abroad.drop(300, 1)
    abroad.drop(300, 2)
    assert homes(abroad, (350, 0.0, 0.0)) == [(0, THERE)], "until others certainly have it"
    abroad.forget(300 + KEPT)
    assert homes(abroad, (350, 0.0, 0.0)) == []
    assert len(abroad) == 1


def test_an_interest_that_comes_late_finds_what_it_should_have_heard_once() -> None:
    abroad = Abroad()
    before = [passed(100, (100, 0.0, 0.0)), passed(200, (200, 0.0, 0.0), (200, 90.0, 0.0))]
    record = record_of(THERE, wanted(1, 0.0), 150, 0)
    abroad.hint(250, record, THERE)
    assert [(one.t, i, home) for one, i, home in abroad.late(250, before)] == [(200, 0, THERE)]
    assert list(abroad.late(260, before)) == []
    abroad.put(270, record, THERE)
    assert list(abroad.late(280, before)) == [], "its home had said so"
    put(abroad, 300, 2, 90.0, 190, ELSEWHERE)
    assert [(one.t, i, home) for one, i, home in abroad.late(300, before)] == [(200, 1, ELSEWHERE)]


def test_of_two_versions_that_come_together_each_finds_what_it_should_have_heard() -> None:
    abroad = Abroad()
    before = [passed(100, (100, 0.0, 0.0)), passed(200, (200, 90.0, 0.0))]
    for since, x in ((50, 0.0), (150, 90.0)):
        abroad.hint(250, record_of(THERE, wanted(1, x), since, 0), THERE)
    assert [(one.t, i) for one, i, _ in abroad.late(250, before)] == [(100, 0), (200, 0)]


# My own clients.


class Home:
    """Holdings beside a site that is alone, or knows of another."""

    def __init__(self) -> None:
        self.now: Time = SECOND
        out = Outbox()
        self.site = Site(ME, out, Random(1), lambda: self.now, Parameters())
        self.site.found((0.0, 0.0))
        self.sent: list[tuple[NodeId, Message]] = []
        self.abroad = Abroad()
        self.holdings = Holdings(
            ME, lambda: self.site, self.abroad, lambda to, m: self.sent.append((to, m)),
            lambda node: node in (ME, THERE),
        )  # fmt: skip

    def pass_on(self, by: Time) -> list[tuple[NodeId, Message]]:
        self.now += by
        self.site.tick(self.now)
        self.settle()
        self.holdings.tick(self.now)
        sent, self.sent = self.sent, []
        return sent

    def settle(self) -> None:
        for change in self.site.drain():
            self.holdings.settle(self.now, change)

    def want(self, number: int, x: float) -> Standing:
        subscription = wanted(number, x)
        standing = Standing(
            0, 1, self.now, commands.Subscribe(number, subscription.region), subscription, Wish()
        )
        self.holdings.tell(self.now, {number: standing}, [])
        self.settle()
        return standing


def test_what_my_clients_want_is_mine_while_i_am_alone_and_ends_with_them() -> None:
    home = Home()
    home.want(11, 5.0)
    assert home.pass_on(SECOND // 10) == []
    assert home.holdings.owner(11) == ME
    assert len(home.abroad) == 0, "those are matched as clients are"
    home.holdings.tell(home.now, {11: None}, [])
    home.settle()
    assert home.site.record(11) is None
    assert home.holdings.owner(11) is None


def test_a_site_holds_what_another_home_says_and_tells_it_so() -> None:
    home = Home()
    record = record_of(THERE, wanted(21, 5.0), home.now, 0)
    home.holdings.on(Hold((record,)), THERE)
    home.settle()
    assert home.pass_on(SECOND // 10) == [(THERE, Held(((21, record.version),)))]
    assert homes(home.abroad, (home.now, 5.0, 0.0)) == [(0, THERE)]
    home.holdings.on(Ended(((21, record.version - 1),)), THERE)
    assert home.site.record(21) is not None, "an end of something older"
    home.holdings.on(Ended(((21, record.version),)), THERE)
    home.settle()
    assert home.site.record(21) is None
    assert len(home.abroad) == 0


def test_what_somebody_holds_for_me_without_reason_is_ended_there() -> None:
    home = Home()
    home.holdings.on(Held(((33, 5),)), THERE)
    assert home.sent == [(THERE, Ended(((33, 5),)))]
    home.sent.clear()
    home.holdings.depart(home.now, 34)
    home.holdings.on(Held(((34, 5),)), THERE)
    assert home.sent == [], "its new home speaks for it"


def test_an_owner_that_knows_an_older_version_is_told_again() -> None:
    home = Home()
    home.want(11, 5.0)
    home.pass_on(UNANSWERED + 1)
    home.holdings.on(Held(((11, 1),)), THERE)
    ((to, message),) = home.sent
    assert to == THERE
    assert isinstance(message, Hold)
    assert [record.id for record in message.records] == [11]


def test_what_nobody_confirms_any_more_is_told_anew_in_a_higher_version() -> None:
    home = Home()
    standing = home.want(11, 5.0)
    home.holdings.on(Held(((11, 2**60),)), THERE)
    assert home.holdings.owner(11) == THERE
    home.sent.clear()
    home.site.dropped(11, 2**60)
    home.settle()
    home.pass_on(UNCONFIRMED + TELL_EVERY)
    assert standing.homes == 1
    assert home.holdings.owner(11) in (ME, None)


def test_a_dead_nodes_clients_want_nothing_and_what_it_owned_is_told_anew() -> None:
    home = Home()
    home.holdings.on(Hold((record_of(THERE, wanted(21, 5.0), home.now, 0),)), THERE)
    home.want(11, 5.0)
    home.holdings.on(Held(((11, 2**60),)), THERE)
    home.settle()
    home.holdings.lost(home.now, THERE)
    home.settle()
    assert home.site.record(21) is None
    assert home.holdings.owner(11) is None or home.holdings.owner(11) == ME
    home.holdings.on(Hint((record_of(THERE, wanted(22, 5.0), home.now, 0),)), THERE)
    assert homes(home.abroad, (home.now + 1, 500.0, 0.0)) == []
    home.holdings.back(THERE)
    home.holdings.on(Hold((record_of(THERE, wanted(23, 5.0), home.now, 0),)), THERE)
    home.settle()
    assert home.site.record(23) is not None


def test_what_was_wanted_for_a_moment_only_is_kept_to_be_told() -> None:
    realm = ClusterRealm(MATCHERS["swept"](), Limits(), None, first_number(ME))
    seat = realm.join(100, "anna", words.JSON)
    realm.subscribe(100, seat, words.Subscribe(1, words.Area(0.0, 0.0, r=10.0)))
    (standing,) = seat.subscriptions.values()
    realm.lately.news.clear()  # all have been told
    for t, x in ((200, 50.0), (300, 60.0), (400, 70.0)):
        realm.move(t, seat, words.Move(1, words.Area(x, 0.0, r=10.0)))
    assert [(was.since, was.until) for was in realm.lately.skipped] == [(200, 300), (300, 400)]
    assert list(realm.lately.news.values()) == [standing]
    assert standing.since == 400


# Publications.


class Office:
    """The post of a node whose site is not in the mesh yet: its contact speaks for it."""

    def __init__(self) -> None:
        self.sent: list[tuple[NodeId, Message]] = []
        site = Site(ME, Outbox(), Random(1), lambda: 0, Parameters())
        site.join((0.0, 0.0), THERE, THERE)
        self.realm = ClusterRealm(MATCHERS["swept"](), Limits(), None, first_number(ME))
        self.abroad = Abroad()
        self.post = Post(
            self.realm, lambda: site, self.abroad, lambda *said: self.sent.append(said),
            lambda _: None, lambda: (THERE, ELSEWHERE),
        )  # fmt: skip

    def flush(self, flushed: Passed, own: int) -> list[tuple[NodeId, Message]]:
        self.realm.lately.passed.append(flushed)
        self.post.flushed(flushed, own)
        return self.taken()

    def taken(self) -> list[tuple[NodeId, Message]]:
        sent, self.sent = self.sent, []
        return sent


def test_what_is_said_at_a_node_whose_site_is_in_no_mesh_goes_to_who_speaks_for_it() -> None:
    ((to, what),) = Office().flush(passed(5, (5, 1.0, 2.0)), own=1)
    assert to == THERE
    assert isinstance(what, Said)
    assert [(one.x, one.y) for one in what.said] == [(1.0, 2.0)]


@pytest.mark.parametrize("way", [TOWARDS, BEFORE])
def test_what_comes_back_to_where_it_was_made_is_looked_after_there_once(way: int) -> None:
    office = Office()
    record = record_of(ELSEWHERE, wanted(21, 0.0), 1, 0)
    office.abroad.put(1, record, ELSEWHERE)
    ((to, said),) = office.flush(passed(5, (5, 1.0, 2.0)), own=1)
    assert to == THERE, "it is not for us to know who else wants it"
    assert isinstance(said, Said)
    office.post.on(Said(bytes((code_of(way, 2),)), said.said), THERE)
    sent = office.taken()
    assert (ELSEWHERE, Said(bytes((CLIENTS,)), said.said)) in sent
    assert any(to == THERE for to, _ in sent) == (way == TOWARDS)
    office.post.on(Said(bytes((code_of(way, 4),)), said.said), THERE)
    assert office.taken() == []


def test_what_comes_back_of_several_flushes_is_found_in_each_of_them() -> None:
    office = Office()
    office.abroad.put(1, record_of(ELSEWHERE, wanted(21, 0.0), 1, 0), ELSEWHERE)
    both = []
    for flushed in (passed(5, (5, 1.0, 2.0)), passed(6, (6, 3.0, 2.0), (6, 500.0, 2.0))):
        ((_, said),) = office.flush(flushed, own=len(flushed.ids))
        assert isinstance(said, Said)
        both += said.said
    office.post.on(Said(bytes((code_of(TOWARDS, 2),)) * 3, tuple(both)), THERE)
    heard = {x for to, _, xs in told(office.taken()) if to == ELSEWHERE for x in xs}
    assert {1.0, 3.0} <= heard


def told(sent: list[tuple[NodeId, Message]]) -> list[tuple[NodeId, int, list[float]]]:
    """To whom, in which way (of a message whose publications all go the same), and which."""
    found = []
    for to, what in sent:
        assert isinstance(what, Said)
        ways = list(map(way_of, what.ways))
        found += [(to, way, [one.x for one, w in zip(what.said, ways, strict=True) if w == way])
                  for way in dict.fromkeys(ways)]  # fmt: skip
    return found


def test_what_goes_another_way_than_what_was_said_before_is_not_overtaken_by_it() -> None:
    office = Office()
    office.abroad.moved(1, ELSEWHERE, Was(wanted(21, 50.0), 1, FOREVER))  # this client went there
    assert told(office.flush(passed(5, (5, 1.0, 0.0)), own=1)) == [(THERE, TOWARDS, [1.0])]
    assert told(office.flush(passed(6, (6, 50.0, 0.0)), own=1)) == [
        (THERE, TOWARDS, [50.0]), (ELSEWHERE, CLIENTS, [1.0, 50.0]),
    ]  # fmt: skip
    assert told(office.flush(passed(7, (7, 51.0, 0.0)), own=1)) == [
        (THERE, TOWARDS, [51.0]), (ELSEWHERE, CLIENTS, [51.0]),
    ], "what went before has gone there, too"  # fmt: skip
    assert told(office.flush(passed(8, (8, 500.0, 0.0)), own=1)) == [(THERE, TOWARDS, [500.0])]
    assert told(office.flush(passed(9, (9, 52.0, 0.0)), own=1)) == [
        (THERE, TOWARDS, [52.0]), (ELSEWHERE, CLIENTS, [500.0, 52.0]),
    ]  # fmt: skip


def test_of_two_words_at_one_moment_the_second_does_not_go_without_the_first() -> None:
    office = Office()
    office.abroad.moved(1, ELSEWHERE, Was(wanted(21, 50.0), 1, FOREVER))
    assert told(office.flush(passed(5, (5, 1.0, 0.0), (5, 50.0, 0.0)), own=2)) == [
        (THERE, TOWARDS, [1.0, 50.0]), (ELSEWHERE, CLIENTS, [1.0, 50.0]),
    ]  # fmt: skip


def test_an_interest_that_is_known_late_hears_what_was_said_before_what_it_wants() -> None:
    office = Office()
    office.flush(passed(5, (5, 1.0, 0.0)), own=1)
    office.flush(passed(6, (6, 50.0, 0.0)), own=1)
    office.realm.lately.act(int(n) for one in office.realm.lately.passed for n in one.ids)
    office.abroad.put(7, record_of(ELSEWHERE, wanted(21, 50.0), 6, 0), ELSEWHERE)
    office.post.catch_up(7, office.realm.lately.passed)
    assert told(office.taken()) == [(ELSEWHERE, CLIENTS, [1.0, 50.0])]


def test_who_goes_to_speak_elsewhere_is_preceded_by_what_it_said_lately() -> None:
    office = Office()
    office.flush(passed(5, (5, 1.0, 0.0)), own=1)
    office.flush(passed(3 * SECOND, (3 * SECOND, 2.0, 0.0)), own=1)
    office.post.hand_over(9, ELSEWHERE)
    assert told(office.taken()) == [(ELSEWHERE, BEFORE, [2.0])]
    office.post.hand_over(9, ELSEWHERE)
    assert office.taken() == []


def test_who_has_gone_is_told_by_its_site_once_that_knows_where_it_is() -> None:
    abroad = Abroad()
    gone = wanted(21, 50.0)
    abroad.moved(5, ELSEWHERE, Was(gone, 1, FOREVER))
    _, publications = said((10, 50.0, 0.0), (30, 50.0, 0.0))
    here, there = np.ones(2, np.bool_), np.zeros(2, np.bool_)
    assert abroad.gone(publications, here)[0].tolist() == [0, 1]
    put(abroad, 20, 21, 50.0, 20, ELSEWHERE)
    assert abroad.gone(publications, here)[0].tolist() == [0], "as it was before it changed"
    assert abroad.gone(publications, there)[0].tolist() == [0, 1], "other sites may not know yet"
    assert abroad.homes(publications, np.arange(2))[0].tolist() == [0, 1]


def test_who_has_come_here_is_not_told_of_on_its_former_node() -> None:
    abroad = Abroad()
    put(abroad, 20, 21, 50.0, 20, ELSEWHERE)
    abroad.drop(30, 21, arrived=True)
    assert homes(abroad, (40, 50.0, 0.0)) == []


# Entities elsewhere.


@pytest.mark.parametrize("late", [False, True])
def test_whoever_spoke_for_an_entity_last_is_its_node(late: bool) -> None:
    strangers = Strangers(Voices())
    strangers.speaks(10, 77, "", words.JSON, first_number(THERE), 10)
    strangers.settles(20, 77, "anna", words.JSON, ELSEWHERE, 20)
    if late:  # it was said before anna went
        strangers.speaks(30, 77, "", words.JSON, first_number(THERE) + 1, 15)
    strangers.lost(THERE)
    assert len(strangers) == 1
    strangers.lost(ELSEWHERE)
    assert len(strangers) == 0
    assert block_of(THERE) != block_of(ELSEWHERE)


def test_of_somebody_who_is_gone_nothing_is_kept_that_comes_late() -> None:
    voices = Voices()
    strangers = Strangers(voices)
    strangers.voice(strangers.speaks(10, 77, "", words.JSON, first_number(THERE), 10), "")
    strangers.gone(20, 77)
    seat = strangers.speaks(30, 77, "", words.JSON, first_number(THERE) + 1, 15)
    assert seat.left
    assert strangers.voice(seat, "") in voices.left.tolist()
    assert len(strangers) == 0
    strangers.forget(21 + SILENT + SECOND)
    assert not strangers.is_gone(77)
