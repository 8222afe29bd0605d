"""States with a ttl in a cluster: all nodes know them until they expire or are replaced."""

from collections.abc import Callable

import pytest

from nearcast.node import Message
from nearcast.service.cluster.messages import (
    EntitiesLeft,
    HandoverOffer,
    PublicationBatch,
    RetainedStatesReport,
)
from nearcast.space.motion import SECOND
from support.cluster_scripts import ClusterScript, ScriptedClient
from support.examples import choices

TTL = 600.0


class Trucks(ClusterScript):
    """On each of three servers one client, all at one place; their states have a ttl."""

    def __init__(self) -> None:
        super().__init__(1, watch=1, ttl_s=TTL)
        self.lost: tuple[type[Message], ...] = (HandoverOffer,)  # so each stays where it is
        self.world.inject.lose(lambda _, __, message: isinstance(message, self.lost))
        for server in self.servers:
            self.client(server, 100.0, 100.0)
        self.run(3.0)

    def listed(self) -> list[list[tuple[str, float | None]]]:
        """What each server lists."""
        return [sorted((one.name, one.x) for one in server.states()) for server in self.servers]


def names(*clients: ScriptedClient) -> list[str]:
    return sorted(client.host.name for client in clients)


def ends(story: Trucks, client: ScriptedClient, by: str) -> None:
    """The client is no more, or its server."""
    if by == "server":
        story.clients.remove(client)
        story.world.crash_client(client.host)
        story.world.crash_server(client.server)
    else:
        getattr(story, by)(client)


@choices("by", ["server"], ["leave", "crash"])
def test_a_state_outlives_its_client_on_all_servers_until_it_expires(by: str) -> None:
    story = Trucks()
    first, *others = story.clients
    entity = first.host.entity
    made = story.world.now
    for server in story.servers:
        (state,) = server.realm.states_named(first.host.name)
        assert state.accepted.client.entity == entity
    ends(story, first, by)
    story.run(20.0)
    for server in story.servers:
        assert sorted(one.name for one in server.states()) == names(first, *others)
        (state,) = server.realm.states_named(first.host.name)
        assert state.accepted.client.entity == entity
    known = [set(other.host.core.subscriptions[1].inside) for other in others]
    assert all(entity in inside for inside in known), "it has not left for those who watch"
    story.run(TTL - (story.world.now - made) / SECOND + 5)
    assert story.listed() == [[]] * len(story.servers)


@pytest.mark.parametrize("where", [0, 1])
def test_whoever_comes_back_replaces_its_last_state_on_all_servers(where: int) -> None:
    story = Trucks()
    first, *_ = story.clients
    story.leave(first)
    story.run(3.0)
    story.come_back(first, story.servers[where], 90.0, 100.0)
    story.run(3.0)
    assert story.agree()
    (listed,) = {tuple(one) for one in story.listed()}
    assert (first.host.name, 90.0) in listed and len(listed) == 3
    assert all(server.realm.departed_clients() == [] for server in story.servers)
    story.check()


def test_what_was_replaced_before_its_client_left_does_not_stay() -> None:
    """Two connections of one truck: the older one is given up last."""
    story = Trucks()
    first, *_ = story.clients
    story.come_back(first, story.servers[1], 90.0, 100.0)
    story.run(1.0)
    story.clients.remove(first)
    story.world.leave_client(first.host)
    story.run(3.0)
    (listed,) = {tuple(one) for one in story.listed()}
    assert [x for name, x in listed if name == first.host.name] == [90.0]


def test_a_server_that_joins_later_learns_the_states_of_those_who_have_left() -> None:
    story = Trucks()
    story.leave(story.clients[0])
    story.run(3.0)
    story.world.add_server()
    story.run(10.0)
    assert len(story.servers) == 4
    (listed,) = {tuple(one) for one in story.listed()}
    assert len(listed) == 3
    assert story.agree()


CHANGES: dict[str, tuple[type[Message], Callable[[Trucks, ScriptedClient], object]]] = {
    "left": (EntitiesLeft, lambda story, client: story.leave(client)),
    "published and left": (
        PublicationBatch, lambda story, client: (client.publish(110.0), story.leave(client)),
    ),
    "came back": (
        PublicationBatch,
        lambda story, client: (
            story.leave(client), story.come_back(client, story.servers[1], 90.0, 100.0),
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_is_lost_all_servers_list_the_same_in_the_end(change: str) -> None:
    story = Trucks()
    lost, act = CHANGES[change]
    story.lost = HandoverOffer, lost, RetainedStatesReport
    act(story, story.clients[0])
    story.run(0.5)
    story.lost = (HandoverOffer,)
    story.run(20.0)
    assert len({tuple(one) for one in story.listed()}) == 1
    assert len(story.listed()[0]) == 3
    assert story.agree()
