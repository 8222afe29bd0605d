"""One client speaks for many entities, and takes states back."""

import asyncio

import pytest

import nearcast
from nearcast.client.subscription import Entered, Left, Message, Subscription
from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.client_protocol.limits import Limits
from nearcast.errors import Refused
from nearcast.server.overview import gauges
from nearcast.server.server import Server
from nearcast.space.shapes import disc, point
from support.cluster_scripts import ClusterScript
from support.examples import seeds
from support.join_targets import Join, address, in_both, quiet, run
from support.patience import PATIENCE_S
from support.realm_histories import RealmHarness


async def next_of(here: Subscription) -> Message:
    return await asyncio.wait_for(anext(here), PATIENCE_S)


async def change_of(here: Subscription) -> Entered | Left:
    return await asyncio.wait_for(anext(here.changes()), PATIENCE_S)


@in_both
async def test_each_entity_of_one_client_has_a_number_and_a_state_of_its_own(join: Join) -> None:
    server, player = await join("server"), await join("player")
    for number in range(3):
        name = f"npc {number}"
        published = await server.publish(point(number, 0), number, name=name, retain=True)
        assert published > 0
    here = await player.subscribe(disc(0, 0, 50), watch=True)
    assert {e.name: (e.x, e.payload) for e in here.inside.values()} == {
        "npc 0": (0.0, 0), "npc 1": (1.0, 1), "npc 2": (2.0, 2),
    }  # fmt: skip
    assert len({server.entity, player.entity, *here.inside}) == 5
    await server.publish(point(9, 0), "again", name="npc 1", retain=True)
    heard = await next_of(here)
    assert here.inside[heard.source].name == "npc 1"
    assert here.inside[heard.source].payload == "again"


@in_both
async def test_an_entity_leaves_when_its_states_are_withdrawn(join: Join) -> None:
    server, player = await join("server"), await join("player")
    here = await player.subscribe(disc(0, 0, 50), watch=True)
    await server.publish(point(1, 0), name="npc", retain=True)
    came = await change_of(here)
    assert isinstance(came, Entered)
    await server.withdraw(name="npc")
    went = await change_of(here)
    assert isinstance(went, Left)
    assert (went.entity.entity, went.gone) == (came.entity.entity, True)
    assert await player.nearby(disc(0, 0, 50)) == []
    with pytest.raises(Refused, match="you do not speak for 'npc'"):
        await server.withdraw(name="npc")


@in_both
async def test_a_client_takes_its_own_state_back_and_says_another(join: Join) -> None:
    alice, bob = await join("alice"), await join("bob")
    await bob.publish(point(1, 0), "first", retain=True)
    await bob.publish(point(2, 0), "chat", retain=True, channel="chat")
    here = await alice.subscribe(disc(0, 0, 50), watch=True)
    assert isinstance(await change_of(here), Entered)
    await bob.withdraw("")
    went = await change_of(here)
    assert isinstance(went, Left)
    assert went.gone
    assert await alice.nearby(disc(0, 0, 50)) == []
    assert [e.payload for e in await alice.nearby(disc(0, 0, 50), "chat")] == ["chat"]
    await bob.publish(point(3, 0), "second", retain=True)
    again = await change_of(here)
    assert isinstance(again, Entered)
    assert (again.entity.entity, again.entity.payload) == (bob.entity, "second")


@in_both
async def test_entities_leave_with_the_client_that_speaks_for_them(join: Join) -> None:
    server, player = await join("server"), await join("player")
    for number in range(5):
        await server.publish(point(number, 0), name=f"npc {number}", retain=True)
    here = await player.subscribe(disc(0, 0, 50), watch=True)
    assert len(here.inside) == 5
    await server.close()
    while here.inside:
        await change_of(here)
    assert await player.nearby(disc(0, 0, 50)) == []


def test_what_is_withdrawn_before_it_is_made_is_heard_and_is_no_state() -> None:
    harness = RealmHarness()
    harness.ask(0, messages.SubscribeRequest(1, Area(x=0.0, y=0.0, r=9.0)))
    harness.ask(1, messages.PublishRequest(1.0, 1.0, retain=True, channel=""))
    harness.ask(1, messages.PublishRequest(1.0, 1.0, retain=True, name="npc"))
    harness.ask(1, messages.WithdrawRequest())
    heard = harness.realm.flush(harness.now + 5)
    assert [said.request.retain for said in heard.publications] == [False, True]
    assert heard.publication.tolist() == [0, 1]
    (near,) = harness.ask(0, messages.NearbyRequest(Area(x=0.0, y=0.0, r=9.0)))
    assert near.name == "npc"


def test_a_client_speaks_for_a_bounded_number_and_frees_them() -> None:
    harness = RealmHarness(limits=Limits(entities=2))
    for name in ("a", "b"):
        harness.ask(0, messages.PublishRequest(0.0, 0.0, retain=True, name=name))
    with pytest.raises(Refused, match="at most 2 entities beside itself"):
        harness.ask(0, messages.PublishRequest(0.0, 0.0, name="c"))
    harness.ask(0, messages.WithdrawRequest(name="a"))
    harness.ask(0, messages.PublishRequest(0.0, 0.0, retain=True, name="c"))
    harness.realm.flush(harness.now)
    assert sorted(harness.states[0].entities) == ["b", "c"]
    harness.ask(0, messages.LeaveRequest())
    assert [client for client in harness.realm.clients if client is not None] == []


def test_five_hundred_entities_need_one_connection() -> None:
    async def story() -> None:
        async with (
            Server(quiet()) as service,
            nearcast.connect(address(service), name="server") as server,
            nearcast.connect(address(service), name="player") as player,
        ):
            sends = [
                server.publish(point(n, 0), n, name=f"npc {n}", retain=True) for n in range(500)
            ]
            await asyncio.gather(*sends)
            near = await player.nearby(disc(0, 0, 1_000), limit=1_000)
            assert sorted(e.payload for e in near) == list(range(500))
            assert len(service.gateway.sessions) == 2
            assert gauges(service.gateway)["entities"][1] == 502

    run(story())


@seeds(range(4), range(4, 12))
def test_all_nodes_of_a_cluster_learn_what_is_withdrawn(seed: int) -> None:
    """Also of the newest of several states, and whatever overtakes what on its way."""
    script = ClusterScript(seed, slow=0.03)
    random = script.random
    for server in script.servers:
        for _ in range(3):
            client = script.client(server, *script.place())
            for _ in range(4):
                client.publish(*script.place())
                script.run(random.uniform(0.0, 0.3))
                if random.random() < 0.5:
                    client.host.withdraw(random.choice([None, ""]))
                    script.run(random.uniform(0.0, 0.3))
    script.run(3.0)
    kept = {client.host.entity for client in script.clients if client.host.state}
    known = [{state.entity for state in server.states()} for server in script.servers]
    assert known == [kept] * 3
    assert 0 < len(kept) < 9
    script.check(script.world.begins)
