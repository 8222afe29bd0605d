"""Nodes that lost news of a retained state find out, though its client says nothing more."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from nearcast.node import Message
from nearcast.service.cluster.messages import (
    HandoverOffer,
    PublicationBatch,
    StatesDigest,
    StatesInventory,
    StatesWithdrawn,
)
from nearcast.service.retained_state import RetainedStates
from support.cluster_scripts import ClusterScript, ScriptedClient


class Watched(ClusterScript):
    """Somebody on each of three servers, at one place, who retain a state and watch each other."""

    def __init__(self) -> None:
        super().__init__(1, watch=1)
        self.lost: tuple[type[Message], ...] = (HandoverOffer,)  # so each stays where it is
        self.world.inject.lose(lambda _, __, message: isinstance(message, self.lost))
        for server in self.servers:
            self.client(server, 100.0, 100.0)
        self.run(3.0)
        self.compared = 0
        self.world.watchers.append(self._count)

    def _count(self, _: object, __: object, message: Message) -> None:
        self.compared += isinstance(message, StatesInventory)

    def without(self, lost: type[Message], act: Callable[[], object]) -> None:
        """It happens while these messages are lost."""
        self.lost = HandoverOffer, lost
        act()
        self.run(0.5)
        self.lost = (HandoverOffer,)


CHANGES: dict[str, tuple[type[Message], Callable[[ClusterScript, ScriptedClient], object]]] = {
    "moved": (PublicationBatch, lambda _, client: client.publish(110.0, 100.0)),
    "withdrawn": (StatesWithdrawn, lambda _, client: client.host.withdraw()),
    "new": (
        PublicationBatch, lambda script, client: script.client(client.server, 120.0, 100.0),
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_a_state_of_which_nothing_was_told_is_found_out(change: str) -> None:
    story = Watched()
    lost, act = CHANGES[change]
    story.without(lost, lambda: act(story, story.clients[0]))
    assert not story.agree()
    story.run(6.0)
    assert story.agree()
    story.check()


def test_while_nothing_is_lost_nobody_asks() -> None:
    story = Watched()
    story.clients[1].host.withdraw()
    story.talk(10.0)
    story.run(4.0)
    assert story.agree()
    assert story.compared == 0


def test_a_digest_counts_what_was_made_until_then() -> None:
    """Compared with all states, one by one."""
    story = Watched()
    story.talk(3.0)
    states: RetainedStates = story.servers[0].realm._states
    known = [states.state(feed) for feed in range(states.used) if states.retains(feed)]
    times = sorted(state.t for state in known)
    assert len(set(times)) == 3
    for until in (times[0] - 1, times[0], times[1], times[2]):
        numbers = [state.accepted.id for state in known if state.t <= until]
        assert states.digest(until) == (len(numbers), sum(numbers) % 2**53)


def test_a_digest_of_the_future_is_as_good_as_any() -> None:
    """A node whose clock is wrong must not stop another."""
    story = Watched()
    one, other = story.servers[:2]
    beat = other.service.cluster.heartbeat()
    for until in (0, 2**53 - 1):
        wrong = replace(beat, states=StatesDigest(until, 7, 7))
        for _ in range(2):
            one.apply(one.service.receive(one.now, other.id, wrong))
    story.run(2.0)
    assert story.compared == 1, "and not again so soon"
    story.check()
