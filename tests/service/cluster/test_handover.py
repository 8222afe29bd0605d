"""A client that changes nodes is served by exactly one of them, whatever stands still meanwhile."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from nearcast.client_protocol import messages
from nearcast.service.cluster.messages import (
    ClientReturned,
    ClientTransfer,
    EntitiesLeft,
    ForwardedRequest,
    HandoverAccepted,
    HandoverCancelled,
    HandoverClaim,
    HandoverConfirmed,
    HandoverOffer,
    RetainedStatesReport,
)
from nearcast.service.cluster.remote_entities import UNCHECKED
from nearcast.space.motion import SECOND
from support.simulated_cluster_clients import HandoverCluster, HomeNode, check_under_faults

Fault = Callable[["Handover"], None]


class Handover:
    """A walker goes from one node's part of the world into another's; others stay where they are.

    Somebody on the old node talks about the place where the walker is going to be.
    """

    def __init__(self, seed: int = 1) -> None:
        self.sim_cluster = HandoverCluster(seed, 3)
        self.old, self.new, self.third = self.sim_cluster.nodes.values()
        for home in self.sim_cluster.nodes.values():
            self.sim_cluster.client(home, *self.site(home))
        self.talker = self.sim_cluster.client(self.old, *self.site(self.old), retains=False)
        self.walker = self.sim_cluster.client(self.old, *self.site(self.old))
        self.sim_cluster.run(2.0)
        self.sent: list[type] = []

    def site(self, home: HomeNode) -> tuple[float, float]:
        x, y = home.member.site.place
        return x, y

    def go(self, step: type, fault: Fault) -> None:
        """The walker is handed over; the fault begins when a message of this kind is sent."""

        def sent(kind: type) -> None:
            self.sent.append(kind)
            if kind is step and self.sent.count(step) == 1:
                fault(self)

        self.sim_cluster.on_sent = sent
        self.walker.walk(*self.site(self.new))
        self.until(lambda: step in self.sent)

    def until(self, condition: Callable[[], Any]) -> None:
        """Time passes, and the talker talks."""
        self.sim_cluster.wait(lambda: bool(self._talk() or condition()))

    def _talk(self) -> None:
        self.talker.publish(*self.site(self.new))
        self.sim_cluster.run(0.05)

    def check(self, *, ordered: bool = True) -> None:
        """Nobody is lost, and all that is said from now on is heard as it should be."""
        self.sim_cluster.calm()
        since = self.sim_cluster.publish(1.0)
        self.sim_cluster.run(2.0)
        assert self.sim_cluster.check(since, ordered=ordered) > 50

    def check_talk(self) -> None:
        """Whatever happened, the walker has heard all that was said on its old node."""
        said = self.sim_cluster.memory.table("publications").to_pylist()
        x, _ = self.site(self.new)
        published = [
            r["publication"] for r in said if r["node"] == self.talker.entity and r["x"] == x
        ]
        heard = [number for _, _, number in self.walker.messages if number in published]
        first = published.index(heard[0])
        assert heard == published[first:]
        assert len(heard) > 20


def halt_new(story: Handover, seconds: float = 3.0) -> None:
    story.sim_cluster.halt(story.new, seconds)


def halt_old(story: Handover, seconds: float = 3.0) -> None:
    story.sim_cluster.halt(story.old, seconds)


def cut(story: Handover, seconds: float = 3.0) -> None:
    """The old node reaches nobody: else the third would relay its messages."""
    story.sim_cluster.cut(story.old, story.new, seconds)
    story.sim_cluster.cut(story.old, story.third, seconds)


@pytest.mark.parametrize(
    "step",
    [
        HandoverOffer,
        HandoverAccepted,
        messages.MovedNotice,
        HandoverClaim,
        ClientTransfer,
        HandoverConfirmed,
    ],
)
@pytest.mark.parametrize("fault", [halt_new, halt_old, cut])
def test_a_node_or_link_that_stands_still_at_any_step_costs_no_client_and_leaves_no_ghost(
    step: type, fault: Fault
) -> None:
    story = Handover()
    story.go(step, fault)
    story.until(lambda: story.walker.came + story.walker.stayed)
    story.check()


def test_a_client_that_its_new_node_refuses_late_is_taken_back_and_has_missed_nothing() -> None:
    story = Handover()
    story.go(ClientTransfer, halt_new)
    assert story.walker.connection.session.client is None, "nobody serves it for now"
    story.until(lambda: story.walker.stayed)
    assert story.walker.home is story.old
    story.until(lambda: story.walker.connection.session.client is not None)
    assert HandoverConfirmed not in story.sent
    story.check()
    story.check_talk()


def test_without_any_answer_the_old_node_takes_its_client_back() -> None:
    story = Handover()
    story.sim_cluster.loses = lambda kind: kind in (ClientTransfer, HandoverCancelled)
    story.go(ClientTransfer, lambda _: None)
    story.until(lambda: story.walker.connection.session.client is not None)
    assert story.walker.home is story.old
    story.sim_cluster.loses = lambda _: False
    story.check()
    story.check_talk()


def test_who_is_taken_back_late_has_missed_nothing_either() -> None:
    """The old node remembers what was said since, however long it takes."""
    story = Handover()
    story.sim_cluster.loses = lambda kind: kind in (ClientTransfer, HandoverCancelled)
    story.go(ClientTransfer, lambda _: None)
    for _ in range(10):
        story._talk()
    halt_old(story, 5.0)
    story.until(lambda: story.walker.connection.session.client is not None)
    story.sim_cluster.loses = lambda _: False
    story.check()
    story.check_talk()


def test_an_answer_that_comes_after_the_client_was_taken_back_is_believed() -> None:
    """Two nodes have told it the same meanwhile, one of them late."""
    story = Handover()
    story.go(ClientTransfer, partial(cut, seconds=6.0))
    story.until(lambda: story.walker.came)
    old = story.walker.connections[0].session
    story.until(lambda: old.client is not None)
    story.until(lambda: old.client is None)
    assert story.walker.home is story.new
    story.check(ordered=False)


def test_if_no_answer_ever_comes_the_client_ends_the_old_connection_and_its_state_stays() -> None:
    story = Handover()
    story.sim_cluster.loses = lambda kind: kind is HandoverConfirmed
    story.go(ClientTransfer, lambda _: None)
    story.until(lambda: story.walker.came)
    old = story.walker.connections[0].session
    story.until(lambda: old.client is not None)
    story.until(lambda: old.closing)
    story.until(lambda: EntitiesLeft in story.sent)  # the old node believes so
    story.sim_cluster.run(2 * UNCHECKED / SECOND)
    story.sim_cluster.check_presence()
    heard = len(story.walker.messages)
    story.until(lambda: len(story.walker.messages) > heard + 10)


@pytest.mark.parametrize("speaks", [False, True])
@pytest.mark.parametrize("step", [ClientTransfer, HandoverConfirmed])
def test_a_client_that_gives_up_as_it_is_taken_in_is_given_back(step: type, speaks: bool) -> None:
    """What it said to its old node meanwhile is obeyed once, wherever it is served."""
    story = Handover()
    walker, joining = story.walker, list[Any]()

    def fault(_: Handover) -> None:
        joining.append(walker.joining)
        if speaks:
            walker.connection.send_request(
                messages.PublishRequest(*story.site(story.third), retain=True)
            )
        walker.give_up()  # its welcome has not come yet

    story.go(step, fault)
    story.until(lambda: joining[0].session.closing)
    story.until(lambda: walker.connection.session.client is not None)
    assert (ForwardedRequest in story.sent) == speaks
    assert (ClientReturned in story.sent) == (step is HandoverConfirmed)
    assert walker.home is story.old
    story.check()
    story.check_talk()
    said = story.sim_cluster.memory.table("publications").to_pylist()
    places = [(row["x"], row["y"]) for row in said if row["node"] == walker.entity]
    assert places.count(story.site(story.third)) == speaks


def test_a_client_that_hangs_up_after_it_was_welcomed_is_given_back_and_then_leaves() -> None:
    story = Handover()
    story.go(HandoverConfirmed, lambda _: None)
    story.until(lambda: story.walker.came)
    story.walker.connection.close()
    story.until(lambda: ClientReturned in story.sent)
    story.walker.leave()
    story.sim_cluster.calm()
    story.sim_cluster.check_presence()
    assert story.walker.entity not in story.old.entities()


@pytest.mark.parametrize("step", [HandoverClaim, ClientTransfer, HandoverConfirmed])
@pytest.mark.parametrize("fault", [halt_new, halt_old, cut])
def test_a_client_that_dies_in_the_middle_is_gone_everywhere(step: type, fault: Fault) -> None:
    story = Handover()

    def dies(story: Handover) -> None:
        fault(story)
        story.walker.leave()

    story.go(step, dies)
    story.sim_cluster.calm()
    story.sim_cluster.check_presence()


def test_what_a_client_says_to_its_old_node_while_it_is_passed_on_is_obeyed_once() -> None:
    story = Handover()
    place = story.site(story.third)

    def fault(story: Handover) -> None:
        halt_new(story)
        story.walker.connection.send_request(messages.PublishRequest(*place, retain=True))

    story.go(ClientTransfer, fault)
    story.until(lambda: story.walker.stayed and story.walker.connection.session.client is not None)
    story.check()
    said = story.sim_cluster.memory.table("publications").to_pylist()
    mine = [(row["x"], row["y"]) for row in said if row["node"] == story.walker.entity]
    assert mine.count(place) == 1


# States of entities on other nodes.


def test_a_state_whose_end_was_never_told_is_found_out() -> None:
    story = Handover()
    story.sim_cluster.loses = lambda kind: kind is EntitiesLeft
    story.walker.leave()
    story.sim_cluster.run(1.0)
    assert story.walker.name in story.third.nearby()
    story.sim_cluster.run(10.0)
    story.sim_cluster.check_presence()


def test_who_went_to_another_node_whose_word_was_lost_is_found_there() -> None:
    story = Handover()
    story.sim_cluster.loses = lambda kind: kind is RetainedStatesReport
    story.go(HandoverConfirmed, lambda _: None)
    story.sim_cluster.run(1.0)
    story.sim_cluster.loses = lambda _: False
    name, moved = story.walker.name, story.walker
    assert moved.home is story.new
    story.sim_cluster.run(2 * UNCHECKED / SECOND)
    assert name in story.third.nearby()
    moved.leave()
    story.sim_cluster.run(1.0)
    assert name not in story.third.nearby()


# Any of these, at any moment.


@pytest.mark.parametrize("seed", range(12))
def test_whatever_stands_still_every_client_has_one_home_and_receives_what_it_should(
    seed: int,
) -> None:
    check_under_faults(seed)
