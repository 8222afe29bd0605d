"""A page in JavaScript takes part in an overlay: through a WebSocket, by a peer of its own."""

import asyncio
import json
from typing import Any

from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

import nearcast
from nearcast.client_protocol import messages
from nearcast.peer.host import run
from nearcast.peer.peer import PeerOptions, parse_address
from nearcast.server.peer_gateway import serve_overlay_clients
from nearcast.space.shapes import disc
from support.fork_server import fork_server
from support.javascript import in_node
from support.patience import PATIENCE_S
from support.peers import Process

PROGRAM = """
    const me = await nc.connect(url, { name: "js" });
    const here = await me.subscribe({ x: 0, y: 0, r: 50 });
    try {
      await me.subscribe({ x: 0, y: 0, r: 50 }, { watch: true });
    } catch (why) {
      tell(why.message);
    }
    const timer = setInterval(() => me.publish({ x: 1, y: 2 }, { js: ["ä", 1.5] }), 100);
    for await (const message of here) {
      tell(message.payload);
      if (message.payload === "heard you") break;
    }
    clearInterval(timer);
    me.close();
"""


EVOLVING = """
    const me = await nc.connect(url, { name: "js" });
    const going = { x: -30, y: 0, r: 5, to: [[30, 0]], speed: 200 };
    const here = await me.subscribe(going, { evolve: "periodic", interval: 0.1 });
    const refusals = [
      { evolve: "periodic", interval: 0.001 },
      { evolve: "lazy", threshold: 1 },
      { evolve: "weekly" },
    ];
    for (const options of refusals) {
      await me.subscribe(going, options).catch((why) => tell(why.message));
    }
    tell("ready");
    for await (const message of here) {
      tell(message.payload);
      break;
    }
    me.close();
"""
ALL_THAT_A_PAGE_DOES = """
    const me = await nc.connect(url, { name: "js" });
    tell(me.entity);
    const area = { x: 0, y: 0, r: 100 };
    const timer = setInterval(() => me.publish({ x: 1, y: 2 }, { js: ["ä", 1.5] }), 100);
    const everything = await me.subscribe(area);
    let other = -1;
    for await (const message of everything) {
      other = message.from;
      if (message.payload === "far") break;
    }
    await everything.unsubscribe();
    const some = await me.subscribe(area, { rates: [[50, 0]] });
    const payloads = [];
    while (payloads.length < 5) payloads.push((await some.messages.next()).value.payload);
    tell(payloads);
    let near = [];
    while (!near.length) near = await me.nearby({ x: 80, y: 0, r: 100 });
    tell(near.map(({ entity }) => entity));
    const refusal = (why) => [why instanceof nc.Refused, why.message];
    tell(await me.subscribe(area, { watch: true }).catch(refusal));
    tell(await me.send("ann").catch(refusal));
    await me.send(other, { to: ["you", 2.5] });
    const { value } = await me.directMessages().next();
    tell([value.from, value.payload]);
    clearInterval(timer);
    me.close();
"""
PSENSE = PeerOptions(overlay="psense", settings={"round_ms": 100.0, "limit": 100_000})


class Gateway:
    """One that runs in this process."""

    def __init__(self, options: PeerOptions = PSENSE) -> None:
        self.stop, self.address = asyncio.Event(), asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(
            serve_overlay_clients(
                options, 0, lambda *where: self.address.set_result(where), self.stop
            )
        )

    async def end(self) -> None:
        self.stop.set()
        await asyncio.wait_for(self.task, PATIENCE_S)


class PlainClient(WSListener):
    """Keeps the notices that it gets, and why its connection is closed."""

    def __init__(self) -> None:
        self.received: asyncio.Queue[Any] = asyncio.Queue()

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        del transport
        if frame.msg_type is WSMsgType.TEXT:
            self.received.put_nowait(messages.JSON.read_notice(frame.get_payload_as_bytes()))
        elif frame.msg_type is WSMsgType.CLOSE:
            self.received.put_nowait(frame.get_close_reason())


def test_javascript_and_python_meet_in_an_overlay() -> None:
    async def story() -> None:
        gateway = Gateway()
        url, contact = await gateway.address
        async with asyncio.timeout(PATIENCE_S), nearcast.join(contact=contact) as python:
            here = await python.subscribe(disc(0, 0, 50))
            talking = asyncio.ensure_future(in_node(PROGRAM, url))
            message = await anext(here)
            assert message.payload == {"js": ["ä", 1.5]}
            while not talking.done():
                await python.publish((3, 4), "heard you")
                await asyncio.wait([talking], timeout=0.1)
            refusal, *received = await talking
            assert refusal.startswith("psense does not offer presence in an area (`watch`);")
            assert received[-1] == "heard you"
        await gateway.end()

    run(story())


async def gateway_process(overlay: str, **settings: Any) -> tuple[asyncio.subprocess.Process, Any]:
    """`nearcast peer --websocket`, and what it tells when it is ready."""
    chosen = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    arguments = ["--overlay", overlay, "--websocket", "0", "--json", *chosen]
    process = await asyncio.create_subprocess_exec(
        fork_server(), "peer", *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    return process, json.loads(await process.stdout.readline())


def test_a_page_a_peer_and_the_program_between_them_are_processes() -> None:
    """Publications, rates, direct messages both ways, `nearby`, and refusals."""

    async def story() -> None:
        gateway, where = await gateway_process(
            "bubblestorm", gossip_s=1.0, round_ms=250.0, **{"lambda": 3.0}
        )
        player = Process(PeerOptions(join=parse_address(where["join"])))
        await player.begin()
        player.say("subscribe", subscription=1, area={"x": 80, "y": 0, "r": 100})
        (mine,) = player.of("welcome")
        page = asyncio.ensure_future(in_node(ALL_THAT_A_PAGE_DOES, where["websocket"]))
        async with asyncio.timeout(PATIENCE_S):
            while not player.of("direct"):
                assert not page.done(), page.result()
                player.say("publish", x=80, y=0, payload="far")
                player.say("publish", x=30, y=0, payload="near")
                await asyncio.wait([page], timeout=0.1)
        (direct,) = player.of("direct")
        player.say("send", to=direct["from"], payload="to the page", id=7)
        entity, payloads, near, watch, name, answer = await page
        assert direct["payload"] == {"to": ["you", 2.5]} and direct["from"] == entity
        assert payloads == ["near"] * 5
        assert mine["entity"] in near
        assert watch[0] and "does not offer presence in an area (`watch`)" in watch[1]
        assert name == [True, "entities of an overlay have no names: send to a number"]
        assert answer == [mine["entity"], "to the page"]
        await player.until(lambda: any(done["id"] == 7 for done in player.of("done")))
        heard = [message for message in player.of("message") if message["from"] == entity]
        assert heard[0]["payload"] == {"js": ["ä", 1.5]}
        await player.end()
        gateway.terminate()
        assert await asyncio.wait_for(gateway.wait(), PATIENCE_S) == 0

    run(story())


def test_javascript_chooses_how_brokers_follow_its_area() -> None:
    async def story() -> None:
        settings = {"matcher": "scan", "evolving": "scan"}
        gateway = Gateway(PeerOptions(overlay="brokers", settings=settings))
        url, contact = await gateway.address
        async with asyncio.timeout(PATIENCE_S), nearcast.join(contact=contact) as python:
            listening = asyncio.ensure_future(in_node(EVOLVING, url))
            while not listening.done():
                await python.publish((0, 8), "beside its way")
                await python.publish((30, 0), "where it arrives")
                await asyncio.wait([listening], timeout=0.1)
            short, threshold, weekly, ready, payload = await listening
            assert short == "interval is from 0.01 to 10000 seconds, not 0.001"
            assert threshold == 'threshold is of a subscription with evolve="cached"'
            assert weekly.startswith("Invalid enum value 'weekly'")
            assert (ready, payload) == ("ready", "where it arrives")
        await gateway.end()

    run(story())


def test_who_does_not_join_first_or_speaks_no_json_is_told_so() -> None:
    async def story() -> None:
        gateway = Gateway()
        url, _ = await gateway.address
        async with asyncio.timeout(PATIENCE_S):
            transport, client = await ws_connect(PlainClient, url)
            assert isinstance(client, PlainClient)
            transport.send(WSMsgType.TEXT, b'{"do": "nearby", "area": {}, "id": 7}')
            assert await client.received.get() == messages.ErrorNotice("join first", 7)
            transport.send(WSMsgType.TEXT, b"no JSON")
            assert "JSON" in (await client.received.get()).reason
            transport.send(WSMsgType.BINARY, b"\x90")
            assert await client.received.get() == "clients of a peer speak JSON, in texts"
            transport.disconnect()
        await gateway.end()

    run(story())
