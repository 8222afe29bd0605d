"""Who is there, who comes, who goes: against a model that looks at everybody at every tick."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from realm_histories import (
    CHANNELS,
    FILTERS,
    FLUSH,
    NUMBERS,
    TICK,
    VARIABLES,
    Company,
    Model,
    Step,
    areas_of_interest,
    histories,
    publishes,
)

from nearcast.live import areas, words
from nearcast.live.areas import Area
from nearcast.live.realm import Refused
from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import Subscription
from nearcast.space.motion import SECOND

EVERYBODY = Area()
HERE = Area(x=0.0, y=0.0, r=5.0)


@dataclass
class Watch:
    linger: int
    known: dict[int, int | None] = field(default_factory=dict)  # entity: out of sight since
    withdrawn: list[int] = field(default_factory=list)  # entities, told at the next tick


@dataclass
class WatchModel(Model):
    """Also: who has which state, and which watch knows whom."""

    states: dict[tuple[int, str], words.Publish] = field(default_factory=dict)
    present: set[int] = field(default_factory=set)
    watches: dict[tuple[int, int], Watch] = field(default_factory=dict)

    def obey(self, t: int, client: int, entity: int, request: Any) -> None:
        super().obey(t, client, entity, request)
        self.present.add(entity)
        if isinstance(request, words.Leave):
            self.present.discard(entity)
            self.states = {key: said for key, said in self.states.items() if key[0] != entity}
        if isinstance(request, words.Withdraw):
            self._withdraw(entity, request.channel)
        if isinstance(request, words.Subscribe):
            self.watches.pop((client, request.subscription), None)
            if request.watch:
                watch = Watch(round(request.linger * SECOND))
                key = client, request.subscription
                watch.known = dict.fromkeys(self.seen(self.wanted[key], t))
                self.watches[key] = watch
        self.watches = {key: watch for key, watch in self.watches.items() if key in self.wanted}

    def _withdraw(self, entity: int, channel: str | None) -> None:
        """What is known of it ends; what it has said and is not flushed is no state."""
        self.states = {
            key: said
            for key, said in self.states.items()
            if key[0] != entity or channel not in (None, key[1])
        }
        for place, (who, said) in enumerate(self.waiting):
            if who == entity and channel in (None, said.channel):
                self.waiting[place] = who, replace(said, retain=False)
        for key, watch in self.watches.items():
            if entity in watch.known and channel in (None, self.wanted[key].channel):
                del watch.known[entity]
                watch.withdrawn.append(entity)

    def flush(self, t: int) -> list[tuple[int, int, int]]:
        for entity, said in self.waiting:
            if said.retain and entity in self.present:
                self.states[entity, said.channel] = said
        return super().flush(t)

    def seen(self, subscription: Subscription, t: int) -> list[int]:
        """Whose state would be heard, were it said now? Nobody's own."""
        watching = replace(subscription, echo=False)
        return [
            entity
            for (entity, channel), said in self.states.items()
            if wants(watching, _publication(entity, said, t), t)
        ]

    def tick(self, t: int) -> list[tuple[int, str, int, int, bool]]:
        """Client, "enter" or "leave", the client's number, the entity, and whether it is gone."""
        notices = []
        for (client, number), watch in self.watches.items():
            seen = self.seen(self.wanted[client, number], t)
            gone = [entity for entity in watch.known if entity not in self.present]
            for entity in (*gone, *watch.withdrawn):
                notices.append((client, "leave", number, entity, True))
                watch.known.pop(entity, None)
            watch.withdrawn.clear()
            for entity in seen:
                if entity not in watch.known:
                    notices.append((client, "enter", number, entity, False))
                watch.known[entity] = None
            for entity, since in list(watch.known.items()):
                if entity not in seen:
                    watch.known[entity] = since = t if since is None else since
                    if t - since >= watch.linger:
                        notices.append((client, "leave", number, entity, False))
                        del watch.known[entity]
        return sorted(notices)


def _publication(entity: int, said: words.Publish, t: int) -> Publication:
    shape = areas.shape(said.x, said.y, said.z, said.r, said.rx, said.ry, said.rz)
    return Publication(0, entity, t, shape, said.channel, said.attributes)


def told(company: Company) -> list[tuple[int, str, int, int, bool]]:
    """What the realm's tick says, as the model says it."""
    clients = {seat.place: client for client, seat in company.seats.items()}
    notices = []
    for seat, word in company.realm.tick(company.now):
        assert company.realm.seats[seat.place] is seat
        if isinstance(word, words.Enter):
            notice = "enter", word.subscription, word.entity.entity, False
        else:
            assert isinstance(word, words.Left)
            notice = "leave", word.subscription, word.entity, word.gone
        notices.append((clients[seat.place], *notice))
    return sorted(notices)


WATCHES = st.builds(
    words.Subscribe, NUMBERS, areas_of_interest(), st.sampled_from(FILTERS), CHANNELS,
    st.booleans(), VARIABLES, st.sampled_from([True, True, False]),
    st.sampled_from([0.0, 0.3, 0.3, 1.0]),
)  # fmt: skip
HISTORIES = histories(
    st.one_of(
        WATCHES,
        publishes(always_retain=True),
        publishes(always_retain=True),
        publishes(),
        st.builds(words.Move, NUMBERS, areas_of_interest()),
        st.builds(words.Tune, NUMBERS, VARIABLES),
        st.sampled_from([words.Unsubscribe(0), words.Leave()]),
        st.sampled_from([words.Withdraw(), words.Withdraw(""), words.Withdraw("chat")]),
    )
)


@given(HISTORIES)
@settings(max_examples=100, deadline=None)
def test_every_watch_is_told_what_it_would_see_for_itself(history: list[Step]) -> None:
    company, model = Company(recorded=False), WatchModel()
    for later, client, step in [*history, (0, 0, FLUSH), (0, 0, TICK), (SECOND, 0, TICK)]:
        company.now += later
        if step == TICK:
            notices = told(company)
            assert notices == model.tick(company.realm.now)
        elif step == FLUSH:
            model.flush(company.realm.flush(company.now).t)
        else:
            seat = company.seat(client)
            try:
                answer = company.ask(client, step)
            except Refused:
                continue
            model.obey(company.realm.now, client, seat.entity, step)
            if isinstance(step, words.Subscribe) and step.watch:
                (inside,) = answer
                assert inside.subscription == step.subscription
                known = model.watches[client, step.subscription].known
                assert sorted(e.entity for e in inside.entities) == sorted(known)


def settled(company: Company, *said: tuple[int, words.Publish]) -> None:
    """These have been published."""
    for client, request in said:
        company.ask(client, request)
    company.realm.flush(company.now)


def test_who_enters_is_told_with_name_place_and_state() -> None:
    company = Company(recorded=False)
    assert company.ask(0, words.Subscribe(7, HERE, watch=True)) == [words.Inside(7, [])]
    said = words.Publish(1.0, 2.0, words.JSON.seal({"hp": 3}), True, {"kind": "orc"}, z=0.5)
    settled(company, (1, said))
    t = company.realm.now
    ((seat, enter),) = company.realm.tick(company.now + 5)
    assert seat is company.seats[0]
    entity = words.Entity(
        company.seats[1].entity, t, 1.0, 2.0, 0.5, "client 1", {"kind": "orc"}, said.payload
    )
    assert enter == words.Enter(7, entity)
    assert company.ask(2, words.Subscribe(1, HERE, watch=True)) == [words.Inside(1, [entity])]
    assert company.realm.tick(company.now + 10) == []


def test_a_payload_is_told_in_the_form_of_the_one_who_watches() -> None:
    company = Company(recorded=False)
    company.seats[0] = company.realm.join(company.now, "packed", words.PACKED)
    settled(company, (1, words.Publish(0.0, 0.0, words.JSON.seal([1, "a"]), True)))
    ((inside,), nearby) = (
        company.ask(0, words.Subscribe(0, HERE, watch=True)),
        company.realm.nearby(company.now, words.Nearby(HERE), words.PACKED),
    )
    for entity in (*inside.entities, *nearby):
        assert words.PACKED.open(entity.payload) == [1, "a"]


def test_nobody_flaps_at_a_border() -> None:
    company = Company(recorded=False)
    company.ask(0, words.Subscribe(0, HERE, watch=True, linger=0.25))
    notices = []
    for i in range(40):  # in and out every 100 ms, and then out for good
        settled(
            company, (1, words.Publish(4.9 if i % 2 == 0 and i < 30 else 5.1, 0.0, retain=True))
        )
        notices += [(i, type(word)) for _, word in company.realm.tick(company.now)]
        company.now += 100_000
    # Last seen at step 28, out of sight at step 29, and told once that has lasted a quarter second.
    assert notices == [(0, words.Enter), (32, words.Left)]


def test_a_watch_that_walks_meets_those_who_stand() -> None:
    company = Company(recorded=False)
    settled(company, (1, words.Publish(30.0, 0.0, retain=True)))
    walk = Area(x=0.0, y=0.0, r=5.0, to=[[60.0, 0.0]], speed=10.0)
    assert company.ask(0, words.Subscribe(0, walk, watch=True, linger=0.0)) == [words.Inside(0, [])]
    start, notices = company.realm.now, []
    for i in range(70):
        words_told = [word for _, word in company.realm.tick(start + i * 100_000)]
        notices += [(i, type(word)) for word in words_told]
    assert notices == [(25, words.Enter), (36, words.Left)]


def test_a_number_that_is_used_again_is_nobody_known() -> None:
    company = Company(recorded=False)
    company.ask(0, words.Subscribe(0, HERE, watch=True))
    first = company.seat(1).entity
    settled(company, (1, words.Publish(0.0, 0.0, retain=True)))
    told(company)
    company.ask(1, words.Leave())
    second = company.seat(1).entity
    settled(company, (1, words.Publish(1.0, 0.0, retain=True)))
    assert told(company) == [(0, "enter", 0, second, False), (0, "leave", 0, first, True)]
    company.ask(0, words.Subscribe(0, HERE, watch=True))
    assert told(company) == []


def test_nearby_lists_the_closest_first() -> None:
    company = Company(recorded=False)
    places = [9.0, 1.0, -4.0, 2.0]
    settled(company, *((i, words.Publish(x, 0.0, retain=True)) for i, x in enumerate(places)))
    settled(
        company,
        (4, words.Publish(0.0, 0.0)),
        (5, words.Publish(0.0, 0.0, retain=True, channel="chat")),
    )
    found = company.ask(0, words.Nearby(HERE))
    assert [entity.x for entity in found] == [1.0, 2.0, -4.0]
    assert [e.x for e in company.ask(0, words.Nearby(EVERYBODY, limit=2))] == [9.0, 1.0]
    assert [e.x for e in company.ask(0, words.Nearby(Area(formula="x < 0")))] == [-4.0]
    company.ask(1, words.Leave())
    assert [e.x for e in company.ask(0, words.Nearby(HERE))] == [2.0, -4.0]


def test_what_a_client_leaves_waiting_is_heard_but_no_state() -> None:
    company = Company(recorded=False)
    company.ask(0, words.Subscribe(0, HERE, watch=True))
    company.ask(1, words.Publish(0.0, 0.0, retain=True))
    company.ask(1, words.Leave())
    assert len(company.realm.flush(company.now)) == 1
    assert company.ask(0, words.Nearby(EVERYBODY)) == []
    assert told(company) == []
