"""The JavaScript client in Node, against a real node of ours and a client in Python."""

import asyncio
import json
import re
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

import pytest
from picows import WSMsgType

import nearcast
from nearcast.client_protocol import messages
from nearcast.server.server import Server
from nearcast.space.earth_shapes import earth_disc, great_circle_line
from nearcast.space.motion import Path as Way
from nearcast.space.shapes import disc, point
from support.javascript import CLIENTS, in_node, published
from support.join_targets import address, quiet, run
from support.node_processes import start
from support.patience import PATIENCE_S
from support.ports import free_port
from support.scripted_nodes import message_notice, nodes, until


def test_messages_go_from_python_to_javascript_and_back() -> None:
    program = """
        const me = await nc.connect(url, { name: "js" });
        const here = await me.subscribe({ x: 0, y: 0, z: 1, r: 50 }, { channel: "talk" });
        await me.publish({ x: 1, y: 2, r: 3 }, { ready: ["ä", 1.5, null] }, { channel: "hello" });
        for await (const message of here) {
          tell(message);
          if (message.payload === "end") break;
        }
        me.close();
    """

    async def story() -> None:
        async with Server(quiet()) as service, nearcast.connect(address(service)) as py:
            hello = await py.subscribe(disc(0, 0, 9), channel="hello")
            talking = asyncio.ensure_future(in_node(program, address(service)))
            first = await asyncio.wait_for(anext(hello), PATIENCE_S)
            assert (first.payload, first.shape) == ({"ready": ["ä", 1.5, None]}, disc(1, 2, 3))
            number = await py.publish(
                point(3, 4, 5), {"a": [1, "ö"]}, attributes={"k": 2}, channel="talk", retain=True
            )
            await py.publish(point(900, 4), "far", channel="talk")
            await py.publish(point(3, 4), "other channel")
            await py.publish(disc(3, 4, 2), "end", channel="talk")
            heard, end = await talking
            assert heard.pop("t") > 1e15
            assert heard == {
                "is": "message", "to": [1], "from": py.entity, "publication": number,
                "x": 3, "y": 4, "z": 5, "payload": {"a": [1, "ö"]}, "retain": True,
                "attributes": {"k": 2}, "channel": "talk",
            }  # fmt: skip
            assert (end["payload"], end["r"], end["z"], end["retain"]) == ("end", 2, 0, False)

    run(story())


def test_javascript_asks_for_a_token_each_time_it_joins(tmp_path: Path) -> None:
    program = """
        const tokens = ["a-first-token", null, "a-second-token"];
        const token = async () => {
          const next = tokens.shift();
          if (!next) throw new Error("the issuer is away for a moment");
          return next;
        };
        const me = await nc.connect(url, { token });
        tell("joined");
        for (let number = 0; number < 2; number++) tell((await me.notices().next()).value.is);
        await me.publish({ x: 0, y: 0 }, "again");
        tell(tokens.length);
        me.close();
    """

    async def story() -> None:
        file = tmp_path / "tokens.toml"
        file.write_text('[a]\ntoken = "a-first-token"\nrole = "publish"\n')
        async with Server(quiet(token_file=str(file))) as service:
            telling = asyncio.ensure_future(in_node(program, address(service)))
            await until(lambda: any(one.client for one in service.gateway.sessions))
            file.write_text('[a]\ntoken = "a-second-token"\nrole = "publish"\n')
            await service.reload()
            assert await telling == ["joined", "disconnected", "reconnected", 0]

    run(story())


def test_everything_that_python_can_do_javascript_can() -> None:
    program = """
        const [me, other] = [await nc.connect(url, { name: "me" }), await nc.connect(url)];
        const hears = async (here, place, options = {}) => {
          const number = await other.publish(place, "?", options);
          const ask = await other.publish({ x: 0, y: 0, rx: 1e5, ry: 1e5 }, "all", options);
          let heard = false;
          for await (const message of here) {
            heard ||= message.publication === number;
            if (message.publication === ask) return heard;
          }
        };
        const here = await me.subscribe({ x: 0, y: 0, r: 9 });
        tell(await hears(here, { x: 5, y: 0 }));
        await here.move({ x: 100, y: 0, rx: 5, ry: 5 });
        tell([await hears(here, { x: 5, y: 0 }), await hears(here, { x: 104, y: 0 })]);
        tell(await me.moveTo([100, 300], 6000));
        await new Promise((resolve) => setTimeout(resolve, 100));
        const now = here.where(me.now());
        tell([now.x, now.y, now.rx, await hears(here, { x: 100, y: 304 })]);
        const zone = await me.subscribe({ formula: "x <= limit" }, { variables: { limit: 5 } });
        tell(await hears(zone, { x: 7, y: 0 }));
        await zone.tune({ limit: 8 });
        tell(await hears(zone, { x: 7, y: 0 }));
        for (const wrong of [
          () => me.subscribe({ formula: "x >= wings" }),
          () => here.move({ x: 1 }),
          () => me.publish({ x: 0, y: 0 }, "x".repeat(20000)),
          () => me.publish({ x: 0, y: 0 }, "x".repeat(200000)),
        ]) {
          tell(await wrong().then(() => "done", (why) => [why.name, why.message]));
        }
        await me.publish({ x: 0, y: 0 }, 1, { attributes: { t: 1 }, confirm: false });
        tell((await me.notices().next()).value.reason);
        await zone.unsubscribe();
        for await (const _ of zone);
        tell("ended");
        me.close();
        tell(await me.publish({ x: 0, y: 0 }).catch((why) => [why.name, why.message]));
        other.close();
    """

    async def story() -> None:
        async with Server(quiet()) as service:
            told = await in_node(program, address(service))
        assert told == [
            True, [False, True], 0.05, [100, 300, 5, True], False, True,
            ["Refused", "unknown name 'wings' at character 5 of \"x >= wings\""],
            ["Refused", "an area needs x and y"],
            ["Refused", "a payload has at most 16384 bytes"],
            ["Refused", "a frame has at most 65536 bytes"],
            "'t' cannot be an attribute: it is the place or the time",
            "ended", ["ConnectionError", "this client has left"],
        ]  # fmt: skip

    run(story())


def test_javascript_hears_what_happens_at_fences() -> None:
    program = """
        const me = await nc.connect(url, { name: "office" });
        const geometry = { type: "Point", coordinates: [100, 0] };
        const depot = { type: "Feature", id: "depot", geometry, properties: { radius: 5 } };
        await me.putFences("depots", { features: [depot] });
        const gate = await me.subscribe({ x: 0, y: 0, r: 10 }, { events: ["cross", "leave"] });
        const depots = await me.subscribe({}, { events: ["enter", "leave"], fences: "depots" });
        const [crossings, visits] = [gate.events(), depots.events()];
        await me.publish({ x: -50, y: 0 }, null, { retain: true, name: "truck", ttl: 600 });
        await me.publish({ x: 100, y: 0 }, 7, { retain: true, name: "truck", ttl: 600 });
        const { value: cross } = await crossings.next();
        tell([cross.event, cross.name, cross.place.x, cross.place_out.x, cross.t < cross.t_out]);
        const { value: enter } = await visits.next();
        tell([enter.event, enter.fence, enter.state.payload, depots.inside.size]);
        for (const wrong of [{}, [depot], depot]) {
          try { await me.putFences("depots", wrong); } catch (why) { tell(why.message); }
        }
        await me.changeFences("depots", undefined, ["depot"]);
        const { value: leave } = await visits.next();
        tell([leave.event, leave.reason, depots.inside.size]);
        const there = { x: 100, y: 0, r: 1 };
        const again = await me.subscribe(there, { events: ["leave"], dwell: 0.01 });
        const told = again.events();
        tell([(await told.next()).value.event, (await told.next()).value.event, again.inside.size]);
        try { again.changes(); } catch (why) { tell(why.message); }
        const around = await me.subscribe({ r: 5 }, { follow: "truck", events: ["enter"] });
        await me.publish({ x: 100, y: 3 }, null, { retain: true, name: "van" });
        const { value: met } = await around.events().next();
        tell([met.event, met.name]);
        const near = await me.subscribe({}, { near: 4 });
        const { value: pair } = await near.events().next();
        tell([pair.event, [pair.name, pair.other_name].sort(), near.pairs.size]);
        me.close();
    """

    async def story() -> None:
        async with Server(quiet()) as service:
            told = await in_node(program, address(service))
        assert told == [
            ["cross", "truck", -10, 10, True],
            ["enter", "depot", 7, 1],
            *["fences are a GeoJSON FeatureCollection, an object with a list of features"] * 3,
            ["leave", "removed", 0],
            ["inside", "dwell", 1],
            "only a subscription with watch: true has changes",
            ["enter", "van"],
            ["inside", ["truck", "van"], 1],
        ]

    run(story())


def test_javascript_watches_an_area() -> None:
    program = """
        const me = await nc.connect(url, { name: "watcher" });
        const here = await me.subscribe({ x: 0, y: 0, r: 50 }, { watch: true, linger: 0 });
        tell([...here.inside.values()].map((e) => [e.name, e.x, e.payload]));
        await me.publish({ x: 999, y: 0 }, "begin", { channel: "stage" });
        const changes = here.changes();
        await changes.next();
        for (let number = 0; number < 2; number++) {
          const { value } = await changes.next();
          tell([Object.keys(value), (value.enter ?? value.leave).name, value.gone ?? null]);
          await me.publish({ x: 999, y: 0 }, "told", { channel: "stage" });
        }
        tell([...here.inside.values()].map((e) => [e.name, e.x, e.payload]));
        tell((await me.nearby({ x: 0, y: 0, r: 50 })).map((e) => e.name));
        me.close();
    """

    async def story() -> None:
        async with (
            Server(quiet()) as service,
            nearcast.connect(address(service), name="anna") as anna,
            nearcast.connect(address(service), name="otto") as otto,
        ):
            await anna.publish(point(3, 4), "old", retain=True)
            stage = await anna.subscribe(channel="stage")
            watching = asyncio.ensure_future(in_node(program, address(service)))
            await asyncio.wait_for(anext(stage), PATIENCE_S)
            await otto.publish(point(1, 1), {"hp": 3}, retain=True)
            await asyncio.wait_for(anext(stage), PATIENCE_S)
            await anna.publish(point(5, 4), "new", retain=True)
            await otto.publish(point(100, 1), {"hp": 2}, retain=True)
            told = await watching
        assert told == [
            [["anna", 3, "old"]],
            [["enter"], "otto", None],
            [["leave", "gone"], "otto", False],
            [["anna", 5, "new"]],
            ["anna"],
        ]

    run(story())


def test_javascript_comes_back_and_listens_again() -> None:
    program = """
        const me = await nc.connect(url, { name: "js" });
        const here = await me.subscribe({ x: 0, y: 0, r: 5 });
        const moving = await me.subscribe({ x: 0, y: 0, r: 5, vx: 1000, lasts: 0.3 });
        const tour = await me.subscribe({ x: 0, y: 0, r: 5, to: [[0, 50], [50, 50]], speed: 250 });
        const filtered = await me.subscribe({ formula: "x >= 100 * t" }, { filter: "k >= t" });
        await new Promise((resolve) => setTimeout(resolve, 500));
        tell(await me.publish({ x: 0, y: 0 }, "here", { channel: "stage" }));
        const notices = me.notices();
        tell((await notices.next()).value);
        const waiting = me.publish({ x: 0, y: 0 }, "again", { channel: "stage" });
        const back = (await notices.next()).value;
        tell([back.is, back.refused.length]);
        await waiting;
        for (const subscription of [here, moving, tour]) {
          for await (const message of subscription) {
            tell(message.payload);
            break;
          }
        }
        me.close();
    """

    async def story() -> None:
        port = free_port()
        service = Server(quiet(port=port))
        await service.start()
        try:
            async with nearcast.connect(address(service)) as py:
                stage = await py.subscribe(channel="stage")
                talking = asyncio.ensure_future(in_node(program, address(service)))
                assert (await asyncio.wait_for(anext(stage), PATIENCE_S)).payload == "here"
                await service.stop()
                service = Server(quiet(port=port))
                await service.start()
                while not any(
                    client and len(client.subscriptions) == 4 for client in service.realm.clients
                ):
                    await asyncio.sleep(0.01)  # until it listens to all four again
                await py.publish(point(0, 0), "still")
                await py.publish(point(300, 0), "moved")
                await py.publish(point(50, 50), "toured")
                told = await talking
        finally:
            await service.stop()
        assert told[1] == {"is": "disconnected", "reason": "the node stops", "code": 1001}
        assert told[2:] == [["reconnected", 0], "still", "moved", "toured"]

    run(story())


def test_javascript_subscribes_then_publishes_its_states_then_sends_what_waits() -> None:
    program = """
        const me = await nc.connect(url, { name: "js" });
        const payload = { colour: "red" };
        await me.publish({ x: 0, y: 0 }, "first", { retain: true });
        await me.publish({ x: 1, y: 0 }, payload, { retain: true });
        payload.colour = "changed by the application later";
        await me.publish({ x: 2, y: 0 }, 2, { retain: true, name: "orc", confirm: false });
        await me.publish({ x: 3, y: 0 }, 3, { retain: true, channel: "talk" });
        await me.publish({ x: 4, y: 0 }, 4, { retain: true, name: "gone" });
        await me.publish({ x: 5, y: 0 }, 5, { name: "orc" });
        await me.withdraw({ name: "gone" });
        await me.subscribe({ x: 0, y: 0, r: 5 });
        const notices = me.notices();
        tell((await notices.next()).value.is);
        const waiting = [
          me.publish({ x: 6, y: 0 }, 6, { retain: true, channel: "talk" }),
          me.withdraw({ name: "orc" }),
          me.publish({ x: 7, y: 0 }, 7, { retain: true, name: "orc" }),
        ];
        tell((await notices.next()).value.is);
        await Promise.all(waiting);
        me.close();
    """

    async def story() -> None:
        async with nodes("n") as (node,):
            talking = asyncio.ensure_future(in_node(program, node.url))
            await until(lambda: messages.SubscribeRequest in node.kinds())
            node.slow.add(messages.PublishRequest)
            node.asked.clear()
            node.end()
            await until(lambda: len(node.asked) == 4)
            assert published(node) == [("", "", 1), ("orc", "", 2)]
            assert json.loads(bytes(node.asked[2][1].payload)) == {"colour": "red"}
            node.slow.clear()
            for _, request in node.asked[2:]:
                node.send(messages.DoneNotice(request.id, 1, publication=7))
            assert await talking == ["disconnected", "reconnected"]
            assert published(node)[2:] == [("", "talk", 6), ("orc", "", 7)]
            assert node.kinds() == [
                messages.JoinRequest, messages.SubscribeRequest,
                messages.PublishRequest, messages.PublishRequest,
                messages.PublishRequest, messages.WithdrawRequest, messages.PublishRequest,
                messages.LeaveRequest,
            ]  # fmt: skip

    run(story())


def test_javascript_goes_on_without_a_state_that_is_refused() -> None:
    program = """
        const me = await nc.connect(url, { name: "js" });
        for (const [x, name] of ["", "orc", "elf", "old"].entries()) {
          await me.publish({ x, y: 0 }, x, { retain: true, name });
        }
        await me.subscribe({ x: 0, y: 0, r: 5 });
        const notices = me.notices();
        tell((await notices.next()).value.is);
        const waiting = me.publish({ x: 9, y: 0 }, 9, { retain: true, name: "old" });
        tell((await notices.next()).value);
        tell((await notices.next()).value.is);
        tell(await waiting.catch((why) => why.message));
        me.close();
    """

    async def story() -> None:
        async with nodes("n") as (node,):
            talking = asyncio.ensure_future(in_node(program, node.url))
            await until(lambda: messages.SubscribeRequest in node.kinds())
            node.slow.add(messages.PublishRequest)
            node.asked.clear()
            node.end()
            await until(lambda: len(node.asked) == 5)
            first, second, third = (request.id for _, request in node.asked[2:])
            node.send(
                messages.ErrorNotice("no", first),
                messages.ErrorNotice("the node is busy: 1 of your publications wait", second),
                messages.DoneNotice(third, 1),
            )
            await until(lambda: len(node.asked) == 6)
            node.send(messages.DoneNotice(node.asked[5][1].id, 1))
            await until(lambda: len(node.asked) == 7)
            node.send(messages.ErrorNotice("nor this", node.asked[6][1].id))
            reason = 'the retained state of "js" on channel "" is not accepted again: no'
            told = await talking
            assert told == [
                "disconnected", {"is": "error", "reason": reason}, "reconnected", "nor this",
            ]  # fmt: skip
            assert [(name, x) for name, _, x in published(node)] == [
                ("", 0), ("orc", 1), ("elf", 2), ("orc", 1), ("old", 9), ("old", 3),
            ]  # fmt: skip

    run(story())


def test_javascript_has_its_states_again_when_its_node_was_killed_and_restarted() -> None:
    program = """
        const me = await nc.connect(url, { name: "js" });
        const here = await me.subscribe({ x: 0, y: 0, r: 5 }, { channel: "talk" });
        for (let x = 0; x < 300; x++) {
          const options = { retain: true, name: `orc ${x}`, confirm: x % 9 === 2 };
          await me.publish({ x, y: 0 }, x, options);
        }
        await me.publish({ x: 0, y: 0 }, "mine", { retain: true });
        await me.publish({ x: 0, y: 0 }, "kill it", { channel: "stage" });
        const notices = me.notices();
        tell((await notices.next()).value.is);
        tell((await notices.next()).value.is);
        for await (const message of here) {
          tell(message.payload);
          break;
        }
        me.close();
    """

    async def states(url: str) -> list[tuple[str, float]]:
        async with nearcast.connect(url) as other:
            found = await other.nearby(disc(0, 0, 900), limit=1_000)
        return sorted((one.name, one.x) for one in found)

    async def story() -> None:
        first = await asyncio.to_thread(start, None, "n", None, free_port())
        again = None
        try:
            async with nearcast.connect(first.url) as py:
                stage = await py.subscribe(channel="stage")
                talking = asyncio.ensure_future(in_node(program, first.url))
                assert (await asyncio.wait_for(anext(stage), PATIENCE_S)).payload == "kill it"
                before = await states(first.url)
                assert len(before) == 301
                first.kill()
                again = await asyncio.to_thread(start, None, "n", None, urlsplit(first.url).port)
                began = monotonic()
                while await states(first.url) != before:
                    await asyncio.sleep(0.01)
                print(f"JavaScript has its states again after {monotonic() - began:.2f} s")  # noqa: T201
                while not talking.done():
                    await py.publish(point(0, 0), "still", channel="talk")
                    await asyncio.wait([talking], timeout=0.05)
                assert talking.result() == ["disconnected", "reconnected", "still"]
        finally:
            for node in filter(None, (first, again)):
                await asyncio.to_thread(node.stop)

    run(story())


def test_javascript_works_out_where_a_moving_area_is() -> None:
    """Against the regions of the model, at several moments."""
    from nearcast.client_protocol.geometry_json import Area, region_from_area
    from nearcast.model.subscription import Formula

    areas: list[dict[str, Any]] = [
        {"x": 1, "y": 2, "r": 3, "vx": 2, "gx": -1, "lasts": 2},
        {"x": 1, "y": 2, "z": 3, "rx": 4, "ry": 5, "rz": 6, "vz": -1, "gy": 2},
        {"x": 0, "y": 0, "r": 1, "to": [[3, 4], [3, 4], [0, 4, 2]], "speed": 2},
        {"x": 7, "y": 8},
    ]
    moments = [0, 0.5, 1, 2, 3.25, 100]
    program = """
        const [areas, moments] = [url, more[0]].map(JSON.parse);
        for (const area of areas) for (const t of moments) tell(nc.areaAt(area, t));
    """
    told = iter(asyncio.run(in_node(program, json.dumps(areas), json.dumps(moments))))
    for area in areas:
        where = region_from_area(Area(**area))
        assert not isinstance(where, Formula)
        for seconds in moments:
            expected, found = where.at(round(seconds * 1e6)), next(told)
            centre = (found["x"], found["y"], found["z"])
            assert centre == pytest.approx((expected.x, expected.y, expected.z), abs=1e-5)
            assert found.get("r", found.get("rx", 0)) == pytest.approx(expected.rx)
            assert found.get("ry", 0) == pytest.approx(expected.ry)


def test_the_types_describe_what_there_is() -> None:
    """Every exported name has a type, and every typed method or property exists."""
    types = (CLIENTS / "nearcast.d.ts").read_text()
    classes = dict(re.findall(r"^export class (\w+)[^{]*\{(.*?)\}$", types, re.M | re.S))
    members = {
        name: re.findall(r"^  (?:readonly )?(\w+)[(:]", body, re.M)
        for name, body in classes.items()
    }
    functions = re.findall(r"^export function (\w+)", types, re.M)
    program = """
        const made = {
          Client: new nc.Client(url, {}),
          Subscription: new nc.Subscription(null, { subscription: 1 }, 1),
          Inbox: new nc.Inbox(),
          ConnectionError: new nc.ConnectionError("lost"),
        };
        const members = JSON.parse(more[0]);
        const missing = Object.entries(members).flatMap(([name, wanted]) =>
          wanted.filter((member) => !(member in made[name])).map((m) => `${name}.${m}`));
        tell([Object.keys(nc).sort(), missing]);
    """
    wanted = {name: listed for name, listed in members.items() if listed}
    assert set(wanted) == {"Client", "Subscription", "Inbox", "ConnectionError"}
    ((exported, missing),) = asyncio.run(in_node(program, "ws://x", json.dumps(wanted)))
    assert exported == sorted([*classes, *functions])
    assert missing == []


def test_a_node_serves_the_client() -> None:
    async def story() -> None:
        async with Server(quiet()) as service:
            reader, writer = await asyncio.open_connection("127.0.0.1", service.port)
            writer.write(
                b"GET /nearcast.js HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            )
            answer = await reader.read()
            writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        assert body == (CLIENTS / "nearcast.js").read_bytes()
        assert b"Content-Type: text/javascript" in head

    run(story())


def test_a_plain_close_is_clean_and_the_end_of_a_connection_has_a_code() -> None:
    program = """
        const closed = (socket) => new Promise((resolve) => (socket.onclose = resolve));
        const plain = new WebSocket(url);
        plain.onopen = () => plain.close();
        const { code, wasClean } = await closed(plain);
        tell([code, wasClean]);
        const me = await nc.connect(url, { name: "js", reconnect: false });
        const here = await me.subscribe({});
        await me.publish({ x: 0, y: 0 }, "ready");
        await here.messages.next().catch((why) => tell([why.name, why.message, why.code]));
        await nc.connect(url).catch((why) => tell([why.name, why.code]));
    """

    async def story() -> list[Any]:
        async with Server(quiet()) as service, nearcast.connect(address(service)) as py:
            ready = await py.subscribe(disc(0, 0, 9))
            talking = asyncio.ensure_future(in_node(program, address(service)))
            await asyncio.wait_for(anext(ready), PATIENCE_S)
            await service.stop()
            return await talking

    told = asyncio.run(story())
    assert told == [
        [1000, True], ["ConnectionError", "the node stops", 1001], ["ConnectionError", 1006],
    ]  # fmt: skip


def test_javascript_refuses_by_itself_what_is_plainly_wrong() -> None:
    program = """
        const me = await nc.connect(url);
        const here = await me.subscribe({ x: 0, y: 0, r: 9 });
        for (const wrong of [
          () => me.subscribe({ x: 0, y: 0, radius: 50 }),
          () => me.subscribe({ x: 0, y: 0, r: NaN }),
          () => me.subscribe({ x: 0, y: 0, r: undefined }),
          () => me.subscribe({ lat: 0, lon: 0 }),
          () => me.subscribe({ r: 5 }),
          () => me.subscribe({ x: 0, y: 0, to: [[1, Infinity]], speed: 1 }),
          () => me.subscribe({ formula: 5 }),
          () => me.subscribe("x < 5"),
          () => me.subscribe({}, { watches: true }),
          () => me.subscribe({ formula: "x < v" }, { variables: { v: NaN } }),
          () => me.subscribe({}, { budget: NaN }),
          () => me.publish({ x: 0, y: 0 }, 1, { retained: true }),
          () => me.publish({ x: 0 }, 1),
          () => me.publish({ x: "0", y: 0 }, 1),
          () => me.publish({ x: 0, y: 0 }, { deep: [Infinity] }),
          () => me.publish({ x: 0, y: 0 }, NaN),
          () => me.publish({ x: 0, y: 0 }, 1, { attributes: { a: [1] } }),
          () => me.publish({ x: 0, y: 0 }, 1, { attributes: { a: null } }),
          () => me.nearby({ x: 0, y: 0, r: 1 }, { most: 5 }),
          () => me.moveTo([1], 5),
          () => me.moveTo([1, 2], NaN),
          () => here.move({ x: 0, y: 0, size: 5 }),
          () => here.tune({ v: NaN }),
          async () => here.changes(),
          () => nc.connect(url, { nam: "me" }),
          () => me.publish({ x: 0, y: 0 }, "\\ud800"),
        ]) {
          tell(await wrong().then(() => "done", (why) => [why.name, why.message]));
        }
        tell(await me.publish({ x: 0, y: 0, z: 1 }, { fine: [1e20, "ä"] }) > 0);
        me.close();
    """

    async def story() -> None:
        async with Server(quiet()) as service:
            *refused, done = await in_node(program, address(service))
        assert done is True
        assert [name for name, _ in refused] == ["Refused"] * 26
        reasons = [reason for _, reason in refused]
        assert reasons[0].startswith("an area: there is no radius; there are x, y, z, r, rx")
        assert reasons[1] == "an area: r must be a finite number, not NaN"
        assert reasons[3] == "this world is a plane: an area has x and y there, not lon"
        assert reasons[4] == "an area needs x and y"
        assert reasons[10] == "budget is NaN, which JSON cannot express"
        assert reasons[11].startswith("publish: there is no retained; there are retain")
        assert reasons[14] == "0 is Infinity, which JSON cannot express"
        assert reasons[23] == "only a subscription with watch: true has changes"
        assert "surrogate" in reasons[25] or "hex escape" in reasons[25]  # the node's

    run(story())


def test_javascript_survives_what_it_cannot_read() -> None:
    program = """
        const me = await nc.connect(url, { reconnect: false });
        const here = await me.subscribe();
        for await (const message of here) {
          if (message.publication === 2) break;
        }
        for (let number = 0; number < 5; number++) tell((await me.notices().next()).value);
        me.close();
    """

    async def story() -> None:
        async with nodes("n") as (node,):
            talking = asyncio.ensure_future(in_node(program, node.url))
            await until(lambda: messages.SubscribeRequest in node.kinds())
            transport = node.connections[0].transport
            for text in (b"hello", b"null", b"{}", b'{"is":"message"}', b'{"is":"inside"'):
                transport.send(WSMsgType.TEXT, text)
            node.send(message_notice(1, [1]), message_notice(2, [1]))
            told = await talking
        assert [notice["is"] for notice in told] == ["error"] * 5
        assert all("a notice of the node is unreadable" in notice["reason"] for notice in told)

    run(story())


def test_javascript_gives_up_who_says_nothing_readable() -> None:
    program = """
        tell(await nc.connect(url).catch((why) => [why.name, why.message]));
    """

    async def story() -> None:
        async with nodes("n") as (node,):
            node.answers = False
            talking = asyncio.ensure_future(in_node(program, node.url))
            await until(lambda: node.asked)
            node.connections[0].transport.send(WSMsgType.TEXT, b"hello")
            ((name, reason),) = await talking
        assert name == "ConnectionError"
        assert reason.startswith("a notice of the node is unreadable")

    run(story())


def test_javascript_knows_the_earth() -> None:
    program = """
        const [me, other] = [await nc.connect(url, { name: "me" }), await nc.connect(url)];
        tell(me.geometry);
        const ring = [[8, 47], [9, 47], [9, 48], [8, 48], [8, 47]];
        const zone = await me.subscribe(
          { geometry: { type: "Polygon", coordinates: [ring] }, low: 100 }, { watch: true });
        const road = await me.subscribe(
          { geometry: { type: "LineString", coordinates: [[8, 47], [9, 48]] }, half_width: 2000 });
        const view = await me.subscribe({ lon: 8.5, lat: 47.4, r: 20000, sector: [0, 90] });
        const bounds = await me.subscribe({ bounds: [179, 47, 9, 48] });
        const disc = await me.subscribe({ lon: 8.5, lat: 47, r: 1000 });
        tell(Math.round(await me.moveTo([8.5, 47.5], 1e6) * 1e6));
        await new Promise((resolve) => setTimeout(resolve, 100));
        const { lon, lat } = disc.where(me.now());
        tell([lon, lat]);
        await other.publish({ lon: 8.5, lat: 47.5, alt: 150 }, "high", { retain: true });
        const message = (await disc.messages.next()).value;
        tell([message.payload, message.lon, message.lat, message.alt, message.x ?? null]);
        tell(message.to);
        tell((await me.nearby({ lon: 8.5, lat: 47.5, r: 10 })).map(({ lon, alt }) => [lon, alt]));
        tell((await zone.changes().next()).value.enter.lat);
        for (const wrong of [
          () => me.subscribe({ x: 1, y: 2 }),
          () => me.subscribe({ lon: 1 }),
          () => me.subscribe({ bounds: [1, 2, 3] }),
          () => me.subscribe({ geometry: "Polygon" }),
          () => me.publish({ x: 1, y: 2 }, "?"),
          () => me.publish({ lon: 1 }, "?"),
        ]) {
          tell(await wrong().then(() => "done", (why) => why.message));
        }
        me.close();
        other.close();
    """

    async def story() -> None:
        async with Server(quiet(geometry="earth")) as service:
            told = await in_node(program, address(service))
        seconds = great_circle_line(earth_disc(8.5, 47, 1000), (8.5, 47.5), 1e6)
        assert isinstance(seconds, Way)
        assert told == [
            "earth", seconds.legs[-1].until, [8.5, 47.5],
            ["high", 8.5, 47.5, 150, None], [1, 2, 3, 4, 5], [[8.5, 150]], 47.5,
            "this world is the Earth: an area has lon and lat there, not x",
            "an area needs lon and lat",
            "an area: bounds must be 4 finite numbers",
            "an area: geometry must be a GeoJSON object",
            "this world is the Earth: a publication has lon and lat there, not x",
            "a place needs lon and lat",
        ]  # fmt: skip

    run(story())


def test_polygons_move_in_javascript_as_on_the_node() -> None:
    program = """
        const ring = [[0, 0], [8, 0], [8, 8], [0, 8], [0, 0]];
        const area = { geometry: { type: "Polygon", coordinates: [ring] } };
        tell(nc.areaAt({ ...area, vx: 2, vy: 1, lasts: 3 }, 2).geometry.coordinates[0][0]);
        const way = { ...area, to: [[14, 4], [14, 14]], speed: 2 };
        tell(nc.areaAt(way, 7).geometry.coordinates[0][0]);
        tell(nc.walkingSeconds(way));
        const me = await nc.connect(url);
        const here = await me.subscribe(area);
        tell(await me.moveTo([104, 4], 1e5));
        await new Promise((resolve) => setTimeout(resolve, 50));
        tell(here.where(me.now()).geometry.coordinates[0][0]);
        await me.publish({ x: 100, y: 8 }, "!");
        const other = await nc.connect(url);
        await other.publish({ x: 100, y: 8 }, "there");
        tell((await here.messages.next()).value.payload);
        me.close();
        other.close();
    """

    async def story() -> None:
        async with Server(quiet()) as service:
            told = await in_node(program, address(service))
        assert told == [[4, 2], [10, 4], 10, 0.001, [100, 0], "there"]

    run(story())
