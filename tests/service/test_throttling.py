"""Less than everything: against a model that decides message by message."""

from dataclasses import dataclass, field
from math import ceil, inf, sqrt
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.errors import Refused
from nearcast.model.subscription import Formula, Subscription
from nearcast.service.client_state import FlushDeliveries
from nearcast.service.throttling import MESSAGE_OVERHEAD
from nearcast.space.motion import SECOND
from nearcast.space.shapes import EVERYWHERE
from support.examples import examples
from support.realm_histories import (
    CHANNELS,
    FLUSH,
    NUMBERS,
    TICK,
    Model,
    RealmHarness,
    Step,
    areas_of_interest,
    histories,
    publishes,
)

Key = tuple[int, int]  # client, and its number of the subscription
Voice = tuple[int, str]  # entity and channel


@dataclass
class SubscriptionBudget:
    """What one subscription asked for, and what it has heard of whom."""

    asked: messages.SubscribeRequest
    filled: int
    told: int
    left: float = inf
    last: dict[Voice, int] = field(default_factory=dict)
    near: set[Voice] = field(default_factory=set)
    withheld: list[int] = field(default_factory=lambda: [0, 0, 0])


@dataclass
class ThrottlingModel(Model):
    harness: RealmHarness = field(default_factory=RealmHarness)
    budget_states: dict[Key, SubscriptionBudget] = field(default_factory=dict)
    places: dict[Voice, tuple[float, float, float]] = field(default_factory=dict)
    numbers: dict[Voice, int] = field(default_factory=dict)  # for those equally far away
    gone: set[int] = field(default_factory=set)
    notes: list[tuple[int, int]] = field(default_factory=list)

    def obey(self, t: int, client: int, entity: int, request: Any) -> None:
        super().obey(t, client, entity, request)
        if isinstance(request, messages.LeaveRequest):
            self.gone.add(entity)
        if isinstance(request, messages.PublishRequest):
            feeds = self.harness.states[client].feeds
            self.numbers[entity, request.channel] = feeds[request.channel]
        if isinstance(request, messages.SubscribeRequest):
            budget_state = SubscriptionBudget(request, t, t, request.budget or inf)
            self.budget_states[client, request.subscription] = budget_state
        self.budget_states = {
            key: budget_state
            for key, budget_state in self.budget_states.items()
            if key in self.wanted
        }

    def flush(self, t: int) -> list[tuple[int, int, int]]:
        said = list(self.waiting)
        heard = super().flush(t)
        for entity, request in said:
            self.places[entity, request.channel] = request.x, request.y, request.z
            for budget_state in self.budget_states.values():
                budget_state.near.discard((entity, request.channel))
        kept = []
        for (client, number), budget_state in self.budget_states.items():
            mine = [i for c, i, n in heard if (c, n) == (client, number)]
            kept += [(client, i, number) for i in self._spared(t, (client, number), mine, said)]
            assert budget_state.left == inf or budget_state.left <= (budget_state.asked.budget or 0)
        return sorted(kept)

    def _spared(
        self, t: int, key: Key, mine: list[int], said: list[tuple[int, messages.PublishRequest]]
    ) -> list[int]:
        budget_state, centre = self.budget_states[key], _centre(self.wanted[key], t)
        feeds = {i: (said[i][0], said[i][1].channel) for i in mine}
        away = {i: _away(centre, (said[i][1].x, said[i][1].y, said[i][1].z)) for i in mine}
        budget_state.near |= set(feeds.values())
        why = {i: 0 for i in mine if not self._rare(t, budget_state, feeds, away, i)}
        near = sorted(
            (_away(centre, self.places[feed]), self.numbers[feed], feed)
            for feed in budget_state.near
            if feed[0] not in self.gone
        )
        if budget_state.asked.closest is not None:
            far = [feed for _, _, feed in near[budget_state.asked.closest :]]
            why |= {i: 1 for i in mine if i not in why and feeds[i] in far}
        if budget_state.asked.budget is not None:
            rest = [i for i in mine if i not in why]
            if rest:
                filled = budget_state.left + budget_state.asked.budget * (
                    (t - budget_state.filled) / 1e6
                )
                budget_state.left, budget_state.filled = min(filled, budget_state.asked.budget), t
            for i in sorted(rest, key=lambda i: (away[i], i)):
                if budget_state.left > 0:
                    budget_state.left -= len(said[i][1].payload) + MESSAGE_OVERHEAD
                else:
                    why[i] = 2
        for i in mine:
            if i not in why:
                budget_state.last[feeds[i]] = t
        for i, reason in why.items():
            budget_state.withheld[reason] += 1
            self.notes.append((key[0], i))
        return [i for i in mine if i not in why]

    def _rare(
        self,
        t: int,
        budget_state: SubscriptionBudget,
        feeds: dict[int, Voice],
        away: dict[int, float],
        i: int,
    ) -> bool:
        def apart(j: int) -> float:
            rates = [most for beyond, most in sorted(budget_state.asked.rates) if away[j] > beyond]
            return 0 if not rates else inf if rates[-1] == 0 else ceil(SECOND / rates[-1])

        def ready(j: int) -> bool:
            return t - budget_state.last.get(feeds[j], -inf) >= apart(j) and apart(j) < inf

        earlier = [j for j in feeds if j < i and feeds[j] == feeds[i] and ready(j)]
        return ready(i) and (apart(i) == 0 or not earlier)

    def tick(self, t: int) -> list[tuple[int, messages.WithheldNotice]]:
        notices = []
        for (client, number), budget_state in self.budget_states.items():
            if any(budget_state.withheld) and t - budget_state.told >= SECOND:
                notices.append((client, messages.WithheldNotice(number, *budget_state.withheld)))
                budget_state.withheld, budget_state.told = [0, 0, 0], t
        return notices


def _centre(wanted: Subscription, t: int) -> tuple[float, float, float] | None:
    if isinstance(wanted.region, Formula) or wanted.region.at(t) == EVERYWHERE:
        return None
    shape = wanted.region.at(t)
    return shape.x, shape.y, shape.z


def _away(centre: tuple[float, float, float] | None, place: tuple[float, float, float]) -> float:
    if centre is None:
        return 0.0
    return sqrt(sum((c - p) * (c - p) for c, p in zip(centre, place, strict=True)))


SPARING = st.builds(
    messages.SubscribeRequest,
    NUMBERS,
    areas_of_interest(),
    channel=CHANNELS,
    echo=st.booleans(),
    variables=st.just({"wide": 2.0}),
    rates=st.lists(
        st.tuples(st.sampled_from([0.0, 2.0, 5.0]), st.sampled_from([0.0, 0.5, 2.0, 10.0])),
        max_size=3,
        unique_by=lambda rate: rate[0],
    ),
    closest=st.sampled_from([None, None, 1, 2]),
    budget=st.sampled_from([None, None, 70.0, 200.0]),
)
HISTORIES = histories(
    st.one_of(
        SPARING,
        publishes(),
        publishes(),
        publishes(),
        publishes(),
        st.builds(messages.MoveRequest, NUMBERS, areas_of_interest()),
        st.sampled_from([messages.UnsubscribeRequest(0), messages.LeaveRequest()]),
    )
)


def triples(harness: RealmHarness, heard: FlushDeliveries) -> list[tuple[int, int, int]]:
    clients = {state.slot: client for client, state in harness.states.items()}
    numbers = harness.realm.numbers[heard.subscription].tolist()
    pairs = zip(heard.client.tolist(), heard.publication.tolist(), numbers, strict=True)
    return [(clients[state], publication, number) for state, publication, number in pairs]


@given(HISTORIES)
@examples(100)
def test_everybody_gets_what_is_left_of_it_and_is_told_what_is_not(history: list[Step]) -> None:
    harness = RealmHarness()
    model = ThrottlingModel(harness=harness)
    notes = []
    for later, client, step in [*history, (0, 0, FLUSH), (SECOND, 0, TICK)]:
        harness.now += later
        if step == TICK:
            clients = {state.slot: client for client, state in harness.states.items()}
            notices = harness.realm.tick(harness.now)
            told = [(clients[state.slot], word) for state, word in notices]
            key = lambda notice: (notice[0], notice[1].subscription)  # noqa: E731
            assert sorted(told, key=key) == sorted(model.tick(harness.realm.now), key=key)
        elif step == FLUSH:
            heard = harness.realm.flush(harness.now)
            assert sorted(triples(harness, heard)) == model.flush(heard.t)
            notes += [(harness.states[c].entity, heard.publications[i].id) for c, i in model.notes]
            model.notes.clear()
        else:
            entity = harness.client_state(client).entity
            try:
                harness.ask(client, step)
            except Refused:
                continue
            model.obey(harness.realm.now, client, entity, step)
    rows = [row for row in harness.table("notes").to_pylist() if row["fact"] == "withheld"]
    assert sorted((row["node"], row["about"]) for row in rows) == sorted(notes)


HERE = Area(x=0.0, y=0.0, r=50.0)


def say(harness: RealmHarness, *where: tuple[int, float]) -> list[float]:
    """These clients publish at these places, at once; which of them does client 0 hear?"""
    for client, x in where:
        harness.ask(client, messages.PublishRequest(x, 0.0, Raw(b"1" * 36)))
    heard = harness.realm.flush(harness.now)
    harness.now += 100_000
    return [heard.publications[i].request.x for i in heard.publication.tolist()]


def test_a_rate_holds_beyond_its_distance() -> None:
    harness = RealmHarness()
    harness.ask(0, messages.SubscribeRequest(0, HERE, rates=[(10.0, 5.0), (20.0, 0.0)]))
    heard = [say(harness, (1, 10.0), (2, 11.0), (3, 21.0)) for _ in range(4)]
    assert heard == [[10.0, 11.0], [10.0], [10.0, 11.0], [10.0]]


def test_publications_of_who_comes_closer_are_delivered_at_once() -> None:
    harness = RealmHarness()
    harness.ask(0, messages.SubscribeRequest(0, HERE, rates=[(10.0, 0.01)]))
    assert [say(harness, (1, x)) for x in (12.0, 11.0, 10.0)] == [[12.0], [], [10.0]]


def test_the_closest_stand_in_the_way_of_others_until_they_go() -> None:
    harness = RealmHarness()
    harness.ask(0, messages.SubscribeRequest(0, HERE, closest=2))
    assert say(harness, (1, 1.0), (2, 2.0), (3, 3.0)) == [1.0, 2.0]
    assert say(harness, (3, 3.0)) == []
    assert say(harness, (2, 99.0), (3, 3.0)) == [3.0]
    assert say(harness, (2, 2.0), (3, 3.0)) == [2.0]
    harness.ask(1, messages.LeaveRequest())
    assert say(harness, (3, 3.0)) == [3.0]
    harness.ask(0, messages.MoveRequest(0, Area(x=4.0, y=0.0, r=50.0)))
    assert say(harness, (4, 5.0), (2, 2.0)) == [5.0]


def test_a_budget_is_spent_on_the_nearest_and_fills_up_again() -> None:
    harness = RealmHarness()
    harness.ask(0, messages.SubscribeRequest(0, HERE, budget=200.0))
    assert say(harness, (1, 3.0), (2, 1.0), (3, 2.0)) == [1.0, 2.0]
    assert say(harness, (1, 3.0)) == [3.0]  # a tenth of a second later there are 20 bytes
    assert say(harness, (1, 3.0)) == []
    harness.now += 2 * SECOND
    assert say(harness, (1, 3.0), (2, 1.0), (3, 2.0)) == [1.0, 2.0]


def test_a_centre_walks_with_its_area() -> None:
    harness = RealmHarness()
    walk = Area(x=0.0, y=0.0, r=50.0, to=[[10.0, 0.0], [0.0, 0.0]], speed=10.0)
    harness.ask(0, messages.SubscribeRequest(0, walk, rates=[(1.0, 0.0)]))
    harness.now = harness.realm.now
    heard = [i for i in range(25) if say(harness, (1, 9.5))]
    assert heard == [9, 10, 11]


def test_other_subscribers_receive_everything() -> None:
    harness = RealmHarness()
    harness.ask(0, messages.SubscribeRequest(0, HERE, rates=[(0.0, 0.0)]))
    harness.ask(5, messages.SubscribeRequest(0, HERE))
    assert say(harness, (1, 1.0), (2, 2.0)) == [1.0, 2.0]
    ((state, word),) = harness.realm.tick(harness.now + SECOND)
    assert (state, word) == (harness.states[0], messages.WithheldNotice(0, rate=2))


def test_what_the_budget_withholds_does_not_count_for_the_rate() -> None:
    harness = RealmHarness()
    harness.ask(0, messages.SubscribeRequest(0, HERE, rates=[(5.0, 0.5)], budget=100.0))
    assert say(harness, (1, 1.0), (2, 9.0)) == [1.0]
    assert say(harness, (2, 9.0)) == [9.0]
    harness.now += SECOND
    assert say(harness, (2, 9.0)) == []
