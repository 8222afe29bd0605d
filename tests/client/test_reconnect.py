"""A connection that cannot be made, is refused, breaks, and comes back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from picows import WSFrame, WSListener, WSMsgType, WSTransport, ws_create_server

import nearcast
from nearcast.client import client as client_module
from nearcast.client.client import Client, Disconnected, Reconnected
from nearcast.client.websocket import ConnectionLost, OnMessage
from nearcast.client_protocol import messages
from nearcast.server.server import Server
from nearcast.space.motion import line
from nearcast.space.shapes import disc, point
from support.join_targets import address, quiet, run
from support.patience import PATIENCE_S
from support.ports import free_port


async def notice_of(client: Client) -> client_module.ClientNotice:
    return await asyncio.wait_for(anext(client.notices()), PATIENCE_S)


def test_a_client_comes_back_with_everything_it_listened_to() -> None:
    async def story() -> None:
        service = Server(quiet(port=free_port()))
        await service.start()
        try:
            async with nearcast.connect(address(service), name="alice") as alice:
                here = await alice.subscribe(
                    disc(0, 0, 5), channel="talk", filter="level >= t / 99"
                )
                moving = await alice.subscribe(line(disc(0, 0, 5), (300, 0, 0), speed=1_000))
                tuned = await alice.subscribe("x <= limit", variables={"limit": 1})
                await tuned.tune(limit=50)
                ended = await alice.subscribe(disc(0, 0, 5))
                await ended.unsubscribe()
                everything = alice.messages()
                await asyncio.sleep(0.35)
                await service.stop()
                assert await notice_of(alice) == Disconnected("the node stops", 1001)
                waiting = asyncio.ensure_future(alice.publish(point(0, 0), "nobody hears this"))
                service = Server(quiet(port=service.port))
                await service.start()
                assert await notice_of(alice) == Reconnected([])
                await waiting
                async with nearcast.connect(address(service)) as bob:
                    await bob.publish(point(0, 0), "a", channel="talk", attributes={"level": 1})
                    await bob.publish(point(0, 0), "b", channel="talk", attributes={"level": -1})
                    await bob.publish(point(49, 0), "c")
                    await bob.publish(point(51, 0), "d")
                    await bob.publish(point(303, 0), "e")
                    heard = {}
                    for _ in range(3):
                        message = await asyncio.wait_for(anext(everything), PATIENCE_S)
                        heard[message.payload] = message.to
                assert heard == {"a": [here.number], "c": [tuned.number], "e": [moving.number]}
        finally:
            await service.stop()

    run(story())


def test_what_the_node_no_longer_allows_ends_and_the_rest_goes_on() -> None:
    async def story() -> None:
        service = Server(quiet(port=free_port()))
        await service.start()
        try:
            async with nearcast.connect(address(service), name="alice") as alice:
                small, large = await alice.subscribe(disc(0, 0, 5)), await alice.subscribe(
                    disc(0, 0, 50)
                )  # fmt: skip
                await service.stop()
                assert isinstance(await notice_of(alice), Disconnected)
                service = Server(quiet(**{"port": service.port, "limits.extent": 10.0}))
                await service.start()
                assert await notice_of(alice) == Reconnected([large])
                with pytest.raises(nearcast.Refused, match="reaches at most 10"):
                    await anext(large)
                async with nearcast.connect(address(service)) as bob:
                    await bob.publish(point(0, 0), "still here")
                assert (await asyncio.wait_for(anext(small), PATIENCE_S)).payload == "still here"
        finally:
            await service.stop()

    run(story())


def test_without_coming_back_every_iteration_ends_with_the_reason() -> None:
    async def story() -> None:
        service = Server(quiet())
        await service.start()
        me = nearcast.connect(address(service), reconnect=False)
        async with me:
            here = await me.subscribe(disc(0, 0, 5))
            await service.stop("it is late")
            with pytest.raises(ConnectionError, match="it is late"):
                await anext(here)
            with pytest.raises(ConnectionError, match="it is late"):
                await me.publish(point(0, 0))

    run(story())


def test_a_wrong_token_is_refused_and_a_right_one_is_not() -> None:
    async def story() -> None:
        async with Server(quiet(token="open sesame")) as service:
            for token in ("", "open barley"):
                with pytest.raises(nearcast.Refused, match="token"):
                    await nearcast.connect(address(service), token=token).open()
            async with nearcast.connect(address(service), token="open sesame") as me:
                assert me.entity > 0

    run(story())


def test_a_token_that_is_no_longer_known_ends_the_client() -> None:
    async def story() -> None:
        service = Server(quiet(port=free_port(), token="open sesame"))
        await service.start()
        try:
            async with nearcast.connect(address(service), token="open sesame") as me:
                here = await me.subscribe(disc(0, 0, 5))
                await service.stop()
                service = Server(quiet(port=service.port, token="open barley"))
                await service.start()
                with pytest.raises(nearcast.Refused, match="token"):
                    await asyncio.wait_for(anext(here), PATIENCE_S)
        finally:
            await service.stop()

    run(story())


@pytest.mark.parametrize("url", ["ws://127.0.0.1:1", "ws://no.such.host.invalid", "http://x", "?"])
def test_where_there_is_no_node_the_first_connection_fails_at_once(url: str) -> None:
    async def story() -> None:
        with pytest.raises(ConnectionError, match="cannot connect to"):
            await nearcast.connect(url).open()

    run(story())


class FrailLink:
    """A link whose second connection breaks as soon as it is said that all went well."""

    encoding, max_frame_bytes = messages.MSGPACK, 1_000

    def __init__(self) -> None:
        self.opened = 0

    async def open(self, receive: OnMessage, lost: ConnectionLost) -> None:
        self.receive, self.lost = receive, lost
        self.opened += 1

    def send(self, request: messages.Request) -> None:
        if isinstance(request, messages.JoinRequest):
            self.receive(messages.WelcomeNotice, messages.WelcomeNotice(1, 1, id=request.id))
        elif isinstance(request, messages.SubscribeRequest):
            self.receive(messages.DoneNotice, messages.DoneNotice(request.id or 0, 1))
            if self.opened == 2:
                self.lost("once more")

    async def writable(self) -> None:
        """Always."""

    async def close(self) -> None:
        """Nothing to do."""


def test_a_connection_that_breaks_at_the_last_moment_of_coming_back_is_made_again() -> None:
    async def story() -> None:
        link = FrailLink()
        async with Client(link, "alice", reconnect=True) as me:
            await me.subscribe(disc(0, 0, 5))
            link.lost("by accident")
            assert await notice_of(me) == Disconnected("by accident")
            assert await notice_of(me) == Reconnected([])
            assert await notice_of(me) == Disconnected("once more")
            assert await notice_of(me) == Reconnected([])
            assert link.opened == 3

    run(story())


class Odd(WSListener):
    """A node that lets everyone in, and hangs up at the next request."""

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type != WSMsgType.BINARY:
            return
        word = messages.MSGPACK.read_request(frame.get_payload_as_bytes())
        if messages.MSGPACK.message_class(word) is messages.JoinRequest:
            welcome = messages.MSGPACK.encode(messages.WelcomeNotice(1, 1, id=word.id))
            transport.send(WSMsgType.BINARY, welcome)
        else:
            transport.disconnect()


@asynccontextmanager
async def odd_node() -> AsyncIterator[str]:
    server = await ws_create_server(lambda _: Odd(), "127.0.0.1", 0)
    try:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def test_a_request_under_way_when_the_connection_breaks_fails() -> None:
    async def story() -> None:
        async with odd_node() as url, nearcast.connect(url) as me:
            with pytest.raises(ConnectionError, match="lost"):
                await me.subscribe(disc(0, 0, 5))
            assert isinstance(await notice_of(me), Disconnected)
            assert await notice_of(me) == Reconnected([])

    run(story())


def test_a_client_leaves_no_task_behind() -> None:
    async def story() -> None:
        async with Server(quiet()) as service:
            before = asyncio.all_tasks()
            async with nearcast.connect(address(service)) as me:
                await me.subscribe(disc(0, 0, 5))
            service.gateway.close("gone")
            assert asyncio.all_tasks() == before

    run(story())


def test_a_client_that_is_coming_back_can_be_closed() -> None:
    async def story() -> None:
        service = Server(quiet())
        await service.start()
        before = asyncio.all_tasks()
        me = await nearcast.connect(address(service)).open()
        await service.stop()
        assert isinstance(await notice_of(me), Disconnected)
        waiting = asyncio.ensure_future(me.publish(point(0, 0)))
        await asyncio.sleep(0)
        await me.close()
        with pytest.raises(ConnectionError, match="has left"):
            await waiting
        assert asyncio.all_tasks() == before

    run(story())
