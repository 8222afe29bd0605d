"""The JavaScript client in a cluster: it is handed over, and goes elsewhere if its node is dead."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

import nearcast
from nearcast.client_protocol import messages
from nearcast.space.shapes import point
from support.javascript import in_node, published
from support.join_targets import run
from support.node_processes import cluster
from support.patience import PATIENCE_S
from support.scripted_nodes import message_notice, nodes, until


def test_javascript_is_handed_over_and_receives_everything_once() -> None:
    program = """
        const me = await nc.connect(url, { name: "js" });
        const here = await me.subscribe({ x: 0, y: 0, r: 5 });
        const there = await me.subscribe({ x: 3, y: 0, r: 5 });
        const [all, notices] = [me.messages(), me.notices()];
        const looking = me.nearby({ x: 0, y: 0, r: 5 });
        tell((await notices.next()).value);
        tell([await looking, await me.publish({ x: 0, y: 0 }), me.node, me.entity]);
        const heard = async (inbox, count) => {
          const numbers = [];
          for (let k = 0; k < count; k++) numbers.push((await inbox.next()).value.publication);
          return [numbers, inbox.length];
        };
        tell([await heard(all, 5), await heard(here.messages, 5), await heard(there.messages, 2)]);
        tell([...here.inside.keys()]);
        me.close();
    """
    somebody = messages.EntityState(3, 1, 0.0, 0.0)

    async def story() -> None:
        async with nodes("a", "b") as (a, b):
            a.nodes = [b.url]
            b.after_welcome = [
                messages.InsideNotice(1, [somebody]),
                message_notice(2, [1, 2]),
                message_notice(3, [1]),
                message_notice(4, [2]),
            ]
            talking = asyncio.ensure_future(in_node(program, a.url))
            a.slow.add(messages.NearbyRequest)
            await until(lambda: messages.NearbyRequest in a.kinds())
            a.send(
                message_notice(1, [1]),
                message_notice(2, [1, 2]),
                messages.MovedNotice(b.url, "a ticket"),
                message_notice(3, [1]),
            )
            await until(lambda: b.connections)
            a.send(messages.NearbyNotice([], a.asked[-1][1].id))
            await until(lambda: messages.PublishRequest in b.kinds())
            b.send(message_notice(5, [1]))
            late = replace(message_notice(6, [1, 2]), t=10**15)  # it has taken the client back
            a.send(message_notice(4, [1, 2]), late, messages.LeaveNotice(1, 3))
            a.end()
            told = await talking
            assert b.asked[0][1].ticket == "a ticket"
            await until(lambda: not a.connections and not b.connections)
            assert told == [
                {"is": "handed over", "node": "b", "url": b.url},
                [[], 7, "b", 7],
                [[[1, 2, 3, 4, 5], 0], [[1, 2, 3, 4, 5], 0], [[2, 4], 0]],
                [3],
            ]

    run(story())


@pytest.mark.parametrize("trouble", ["refuses", "is not there", "mistakes us"])
def test_javascript_stays_where_the_other_node_will_not_have_it(trouble: str) -> None:
    program = """
        const me = await nc.connect(url);
        await me.publish({ x: 0, y: 0 }, "ready");
        for await (const message of await me.subscribe({ x: 0, y: 0, r: 5 })) break;
        await new Promise((resolve) => setTimeout(resolve, 200));
        await me.publish({ x: 0, y: 0 }, "still here");
        tell([me.node, me.entity, me.notices().length]);
        me.close();
    """

    async def story() -> None:
        async with nodes("a", "b") as (a, b):
            b.entity = {"refuses": None, "mistakes us": 8}.get(trouble, 7)
            talking = asyncio.ensure_future(in_node(program, a.url))
            await until(lambda: messages.SubscribeRequest in a.kinds())
            to = "ws://127.0.0.1:1" if trouble == "is not there" else b.url
            a.send(messages.MovedNotice(to, "t"), message_notice(1, [1]))
            assert await talking == [["a", 7, 0]]
            assert a.kinds()[-2:] == [messages.PublishRequest, messages.LeaveRequest]
            await until(lambda: not b.connections)

    run(story())


def test_javascript_goes_to_another_node_when_its_own_is_dead() -> None:
    program = """
        const me = await nc.connect(url);
        const here = await me.subscribe({ x: 0, y: 0, r: 5 });
        const notices = me.notices();
        await me.publish({ x: 0, y: 0 }, "ready");
        tell((await notices.next()).value.is);
        tell((await notices.next()).value.is);
        tell([me.node, me.entity, me.nodes]);
        for await (const message of here) {
          tell(message.publication);
          break;
        }
        me.close();
    """

    async def story() -> None:
        async with nodes("b", "c") as (b, c):
            async with nodes("a") as (a,):
                a.nodes = ["ws://127.0.0.1:1", c.url]
                talking = asyncio.ensure_future(in_node(program, a.url))
                await until(lambda: messages.PublishRequest in a.kinds())
                a.send(messages.NodesNotice(["ws://127.0.0.1:1", b.url]))
            b.entity = 8
            a.end()
            await until(lambda: messages.SubscribeRequest in b.kinds())
            b.send(message_notice(9, [1]))
            told = await talking
            # b knows no other node, so what was known before stays.
            known = ["ws://127.0.0.1:1", a.url]
            assert told == ["disconnected", "reconnected", ["b", 8, known], 9]
            assert c.asked == []

    run(story())


def test_javascript_comes_back_to_the_address_that_it_was_given() -> None:
    """All nodes that it was told of later are gone."""
    program = """
        const me = await nc.connect(url);
        const notices = me.notices();
        for (let number = 0; number < 3; number++) tell((await notices.next()).value.is);
        tell([me.node, me.nodes]);
        me.close();
    """

    async def story() -> None:
        async with nodes("a") as (a,):
            async with nodes("b") as (b,):
                b.nodes = ["ws://127.0.0.1:1"]
                talking = asyncio.ensure_future(in_node(program, a.url))
                await until(lambda: a.connections and a.asked)
                a.send(messages.MovedNotice(b.url, "a ticket"))
                await until(lambda: b.asked)
                await until(lambda: not a.connections)  # it has left its former node
            b.end()
            told = await talking
            assert told[:3] == ["handed over", "disconnected", "reconnected"]
            assert told[3] == ["a", ["ws://127.0.0.1:1", b.url]]

    run(story())


@pytest.mark.parametrize("replaced", [False, True])
def test_javascript_publishes_a_state_again_that_was_lost_while_it_was_handed_over(
    replaced: bool,
) -> None:
    program = """
        const me = await nc.connect(url);
        const retain = (x) => me.publish({ x, y: 0 }, null, { retain: true });
        await retain(1);
        const lost = retain(2).catch((why) => tell(why.name));
        await me.notices().next();
        await lost;
        await me.publish({ x: 9, y: 0 });
        me.close();
    """
    if replaced:
        program = program.replace("await me.notices()", "await lost; retain(3); await me.notices()")

    async def story() -> None:
        async with nodes("a", "b") as (a, b):
            a.slow.add(messages.PublishRequest)
            talking = asyncio.ensure_future(in_node(program, a.url))
            await until(lambda: messages.PublishRequest in a.kinds())
            a.send(messages.DoneNotice(a.asked[-1][1].id, 1, publication=7))
            await until(lambda: len(published(a)) == 2)
            a.send(messages.MovedNotice(b.url, "a ticket"))
            await until(lambda: b.connections)
            assert b.asked == [], "first, the former node must answer"
            a.end()
            assert await talking == ["ConnectionError"]
            assert [x for _, _, x in published(b)] == [3 if replaced else 2, 9]

    run(story())


def test_javascript_walks_across_a_border_and_survives_its_node(tmp_path: Path) -> None:
    program = """
        const me = await nc.connect(url, { name: "walker" });
        const [x, y, toX, toY] = more.map(Number);
        const here = await me.subscribe({ x, y, r: 50 }, { channel: "talk" });
        await me.moveTo([toX, toY], 60);
        const notices = me.notices();
        tell((await notices.next()).value);
        await me.publish({ x, y }, "kill it", { channel: "stage" });
        tell((await notices.next()).value.is);
        const began = performance.now();
        tell((await notices.next()).value.is);
        tell((performance.now() - began) / 1000);
        for await (const message of here) {
          tell([me.node, message.payload]);
          break;
        }
        me.close();
    """

    async def story() -> None:
        with cluster(tmp_path, "a", "b") as (a, b):
            async with nearcast.connect(a.url, name="speaker") as speaker:
                stage = await speaker.subscribe(channel="stage")
                there = b.site()
                places = [*map(str, (*a.site(), *there))]
                walking = asyncio.ensure_future(in_node(program, a.url, *places))
                assert (await asyncio.wait_for(anext(stage), PATIENCE_S)).payload == "kill it"
                b.kill()
                while not walking.done():
                    await speaker.publish(point(*there), "still there", channel="talk")
                    await asyncio.wait([walking], timeout=0.05)
            handed, *rest = walking.result()
            assert handed == {"is": "handed over", "node": "b", "url": b.url}
            assert (rest[:2], rest[3]) == (["disconnected", "reconnected"], ["a", "still there"])
            print(f"JavaScript is back after {rest[2]:.2f} s")  # noqa: T201

    run(story())
