"""Clients of one host receive together exactly what they would receive one by one."""

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.commands import Leave, Move, Subscribe, Unsubscribe
from nearcast.model.publication import Publication
from nearcast.model.subscription import Filter, Formula
from nearcast.node import Deliver, Effect
from nearcast.protocols.dedup import DUPLICATE_WINDOW, ReceivedPublications
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.protocols.voronoi.vso.client_columns import VERSIONS
from nearcast.protocols.voronoi.vso.messages import Notify, OwnerConfirmed
from nearcast.protocols.voronoi.vso.overlay import SendAlive, VsoDeployment, VsoNode
from nearcast.protocols.voronoi.vso.parameters import Parameters
from nearcast.space.motion import SECOND, Moving, line, path
from nearcast.space.shapes import box, disc, point
from nearcast.trace.schema import TABLES
from support.examples import choices, examples
from support.vso_worlds import run

NODES = range(6)
MATCHERS = [FIRST_SERVER + k for k in range(3)]


class Hall:
    """Clients without a network; `together`: what comes to several goes through their crowd."""

    def __init__(self, *, together: bool) -> None:
        self.together = together
        self.overlay = VsoDeployment(Parameters(), Random)
        self.members: dict[int, VsoNode] = {}
        self.delivered: list[tuple[int, int, int, int]] = []
        self.effects: list[Effect] = []

    def enter(self, now: int, node: int) -> None:
        self.members[node] = self.overlay.entity(node, Random(node))
        self.members[node].start(now)

    def crash(self, now: int, node: int) -> None:
        del self.members[node]
        self.overlay.columns.leave(node, now)

    def obey(self, now: int, node: int, command: Any) -> None:
        self.effects += self.members[node].obey(now, command)
        if isinstance(command, Leave):
            self.crash(now, node)

    def serve(self, now: int, node: int, message: OwnerConfirmed, sender: int) -> None:
        self.effects += self.members[node].receive(now, sender, message)

    def beat(self, now: int, node: int) -> None:
        self.effects += self.members[node].wake(now, SendAlive())

    def notify(
        self, now: int, arrivals: list[tuple[tuple[int, ...], int]], message: Notify
    ) -> None:
        if self.together and sum(len(to) for to, _ in arrivals) > 1:
            made = self.overlay.columns.receive(now, arrivals, message)
            pairs = zip(made.node.tolist(), made.subscription.tolist(), strict=True)
            self.delivered += [(n, made.publication.id, s, made.hops) for n, s in pairs]
            return
        for to, sender in arrivals:
            for node in to:
                if node in self.members:
                    for effect in self.members[node].receive(now, sender, message):
                        assert isinstance(effect, Deliver)
                        for subscription in effect.subscriptions:
                            row = (node, effect.publication.id, subscription, effect.hops)
                            self.delivered.append(row)

    def known(self, now: int) -> list[tuple[Any, ...]]:
        if self.together:
            views = self.overlay.columns.known_positions(now, [*self.members, 99])
            columns = (views.node.tolist(), views.other.tolist(), *views.place.T.tolist())
            return sorted(zip(*columns, strict=True))
        return sorted(
            (node, other, *where)
            for node, member in self.members.items()
            for other, where in member.known(now)
        )


def some_region(rng: Random) -> Any:
    x, y = rng.uniform(0, 100), rng.uniform(0, 100)
    return rng.choice(
        [
            Moving(disc(x, y, 40)),
            Moving(box(x, y, 40, 20)),
            Moving(disc(x, y, 30), velocity=(20.0, 0.0, 0.0), growth=(1.0, 0.0, 0.0)),
            line(disc(x, y, 30), (rng.uniform(0, 100), y, 0.0), 20.0),
            path(disc(x, y, 30), [(50, 50, 0), (0, 0, 0)], 30.0),
            Formula(f"x > {x} - 5 * t, y < {y}"),
        ]
    )


def some_publication(rng: Random, number: int, now: int) -> Publication:
    x, y = rng.uniform(0, 100), rng.uniform(0, 100)
    return Publication(
        number, rng.choice([*NODES, 50]), max(0, now - rng.choice([0, 1, 10**5, 10**6])),
        rng.choice([point(x, y), disc(x, y, 10), box(x, y, 5, 30)]),
        rng.choice(["", "", "news"]), {"weight": rng.randrange(5)},
    )  # fmt: skip


def act(rng: Random, now: int, halls: list[Hall], notifications: list[Notify]) -> None:
    """Something happens, in all halls alike."""
    node, what = rng.choice(NODES), rng.random()
    name = node * 10 + rng.randrange(3)
    here = node in halls[0].members
    if not here:
        todo: list[Any] = ["enter", node]
    elif what < 0.15:
        condition = rng.choice([None, None, Filter("weight > 2")])
        wanted = Subscribe(
            name, some_region(rng), condition, rng.choice(["", "", "news"]), rng.random() < 0.3
        )
        todo = ["obey", node, wanted]
    elif what < 0.25:
        todo = ["obey", node, Move(name, some_region(rng))]
    elif what < 0.28:
        todo = ["obey", node, Unsubscribe(name)]
    elif what < 0.36:
        todo = ["serve", node, OwnerConfirmed(name, rng.randrange(3)), rng.choice(MATCHERS)]
    elif what < 0.46:
        todo = ["beat", node]
    elif what < 0.48:
        todo = ["crash", node] if rng.random() < 0.5 else ["obey", node, Leave()]
    else:
        if not notifications or rng.random() < 0.6:
            notifications.append(
                Notify(some_publication(rng, len(notifications), now), rng.randrange(1, 4))
            )
        arrivals = [
            (tuple(rng.sample([*NODES, 77], rng.randrange(1, 6))), rng.choice(MATCHERS))
            for _ in range(rng.randrange(1, 3))
        ]
        todo = ["notify", arrivals, rng.choice(notifications[-4:])]
    for hall in halls:
        getattr(hall, todo[0])(now, *todo[1:])


@pytest.mark.parametrize("age", [1, VERSIONS - 1, VERSIONS, VERSIONS + 3])
def test_what_counts_is_the_version_of_the_time_of_publication(age: int) -> None:
    """So many changes ago, more than the columns have; the area has gone on since."""
    hall = Hall(together=True)
    for node in (1, 2):
        hall.enter(0, node)
        hall.obey(0, node, Subscribe(node, Moving(disc(0, 0, 5))))
        for step in range(1, 2 * VERSIONS):
            hall.obey(step, node, Move(node, Moving(disc(100 * step, 0, 5))))
    then = 2 * VERSIONS - 1 - age
    publications = [Publication(k, 50, then, point(100 * (then + k), 0)) for k in (0, 1)]
    for publication in publications:
        hall.notify(2 * VERSIONS, [((1, 2), MATCHERS[0])], Notify(publication, 1))
    assert hall.delivered == [(1, 0, 1, 1), (2, 0, 2, 1)]


@given(st.integers(0, 2**32))
@examples(150)
def test_a_batch_is_delivered_like_its_messages_one_by_one(seed: int) -> None:
    rng, now = Random(seed), 0
    halls, notifications = [Hall(together=True), Hall(together=False)], list[Notify]()
    for _ in range(150):
        now += rng.choice([0, 1, 10**4, 3 * 10**5, 2 * SECOND])
        act(rng, now, halls, notifications)
        if rng.random() < 0.1:
            assert halls[0].known(now) == halls[1].known(now)
        assert halls[0].delivered == halls[1].delivered
        assert halls[0].effects == halls[1].effects


def test_the_random_histories_contain_every_case() -> None:
    rng, now = Random(1), 0
    hall, notifications = Hall(together=True), list[Notify]()
    for _ in range(3000):
        now += rng.choice([0, 1, 10**4, 3 * 10**5, 2 * SECOND])
        act(rng, now, [hall], notifications)
    assert len(hall.delivered) > 500
    assert len({subscription for _, _, subscription, _ in hall.delivered}) > 12
    assert any(getattr(effect, "fact", "") == "unlinked" for effect in hall.effects)


def tables_of(**settings: Any) -> dict[str, pa.Table]:
    world, memory = run(nodes=30, seconds=4, rate=5.0, overload_ms=300.0, limit=4.0, **settings)
    world.recorder.close()
    tables = {name: memory.table(name) for name in TABLES}
    keys = [(name, "ascending") for name in TABLES["views"].names]
    return {**tables, "views": tables["views"].sort_by(keys)}  # in no order within a node's


CHURN = {"churn_rate": 2.0, "churn_by": "crash"}
BLASTS = {"motion": "path", "blast": 40.0}


@choices("more", [{**CHURN, **BLASTS}], [{}, CHURN, BLASTS])
def test_a_run_with_a_node_group_leaves_the_trace_of_one_without(
    more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    together = tables_of(**more)
    monkeypatch.setattr(VsoNode, "node_group", property(lambda _: None, lambda *_: None))
    apart = tables_of(**more)
    for name, table in apart.items():
        assert table.equals(together[name]), name
    assert apart["deliveries"].num_rows > 1000
    assert apart["views"].num_rows > 100


@given(st.lists(st.tuples(st.integers(0, 3), st.sets(st.integers(0, 5)), st.booleans())))
def test_received_publications_are_the_same_singly_and_in_bulk(
    receptions: list[tuple[int, set[int], bool]],
) -> None:
    had, truth = ReceivedPublications(), set[tuple[int, int]]()
    for publication, receivers, at_once in receptions:
        before = had.those(publication)
        assert set(before.tolist()) == {receiver for p, receiver in truth if p == publication}
        more = [receiver for receiver in sorted(receivers) if (publication, receiver) not in truth]
        if at_once:
            had.add(publication, before, np.array(more, np.int32), 0)
        else:
            assert [e for e in sorted(receivers) if had.is_new(publication, e, 0)] == more
        truth |= {(publication, receiver) for receiver in more}


def test_copies_are_remembered_as_long_as_they_may_come() -> None:
    had = ReceivedPublications()
    assert had.is_new(1, 7, 0)
    assert had.is_new(2, 7, DUPLICATE_WINDOW)
    assert not had.is_new(1, 7, DUPLICATE_WINDOW)
    assert had.is_new(3, 7, DUPLICATE_WINDOW + 1)
    assert len(had.those(1)) == 0
    assert had.those(2).tolist() == [7]
