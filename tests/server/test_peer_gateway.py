"""A page in JavaScript takes part in an overlay: through a WebSocket, by a peer of its own."""

import asyncio
from typing import Any

from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_connect

import nearcast
from nearcast.client_protocol import messages
from nearcast.peer.host import run
from nearcast.peer.peer import PeerOptions
from nearcast.server.peer_gateway import serve_overlay_clients
from nearcast.space.shapes import disc
from support.javascript import in_node

PATIENCE_S = 180.0
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


def test_javascript_chooses_how_brokers_follow_its_area() -> None:
    async def story() -> None:
        settings = {"matcher": "scan", "evolving": "scan"}
        gateway = Gateway(PeerOptions(overlay="brokers", settings=settings))
        url, contact = await gateway.address
        async with asyncio.timeout(PATIENCE_S), nearcast.join(contact=contact) as python:
            listening = asyncio.ensure_future(in_node(EVOLVING, url, patience_s=PATIENCE_S))
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
