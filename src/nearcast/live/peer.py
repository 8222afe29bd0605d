"""`nearcast peer`: one member of an overlay as a program of its own.

It speaks as a client's node does (`words.py`), in lines of JSON: requests on standard input,
notices on standard output. Who begins an overlay is asked by those who join it: `--join` takes the
address in its `welcome`. Whoever answers there is believed to be the one; from then on everybody is
known by key.
"""

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random, SystemRandom
from typing import Any

import msgspec
from msgspec import Raw, Struct

from nearcast.live import words
from nearcast.live.areas import region, shape
from nearcast.live.host import Host, run, unix_time
from nearcast.live.identity import Identity, kept_identity, new_identity
from nearcast.live.links import Links
from nearcast.live.quic import Quic
from nearcast.live.recording import Recording
from nearcast.live.tls import Tls
from nearcast.matching import MATCHERS
from nearcast.model import commands
from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId, SubscriptionId
from nearcast.node import Node
from nearcast.protocols import PROTOCOLS, client_server, drtree
from nearcast.protocols.brokers.broker import Broker
from nearcast.protocols.brokers.client import Client as BrokerClient
from nearcast.protocols.drtree.messages import SLOTS
from nearcast.protocols.drtree.peer import Peer as TreePeer
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.scenario import Setting
from nearcast.space.motion import SECOND
from nearcast.space.shapes import Kind
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import Memory

LINKS: dict[str, type[Links]] = {"tls": Tls, "quic": Quic}
FLUSH_EVERY_S = 5.0
INTRODUCE_EVERY_S = 1.0
JOIN_WITHIN_S = 10.0


class Bootstrap(Struct, frozen=True):
    """How an overlay begins, and how somebody comes into it by knowing one of its nodes.

    The simulator hands its nodes what they must know; here it comes from whom they have met.
    """

    entity: Callable[[Any, NodeId, Random, NodeId], Node]  # the last is whom it has met
    server: Callable[[Any, NodeId, Random], Node] | None = None  # who begins runs one beside it
    introduce: Callable[[Node, NodeId], None] = lambda node, name: None  # noqa: ARG005


def _client(
    parameters: client_server.Parameters, node_id: NodeId, rng: Random, server: NodeId
) -> Node:
    memory = round(parameters.memory_s * SECOND)
    return client_server.Client(node_id, rng, server, memory)


def _server(parameters: client_server.Parameters, node_id: NodeId, rng: Random) -> Node:
    return client_server.Server(node_id, rng, MATCHERS[parameters.matcher]())


def _introduce(node: Node, name: NodeId) -> None:
    """Trees that have begun apart find each other by any member of either."""
    assert isinstance(node, TreePeer)
    if name < FIRST_SERVER:
        node.directory.add(name * SLOTS)


BOOTSTRAPS: dict[str, Bootstrap] = {
    "client-server": Bootstrap(_client, _server),
    "drtree": Bootstrap(
        lambda parameters, node_id, rng, _: drtree.KIND.make(parameters, Random).entity(
            node_id, rng
        ),
        introduce=_introduce,
    ),
    "brokers": Bootstrap(
        lambda parameters, node_id, rng, broker: BrokerClient(node_id, rng, parameters, [broker]),
        lambda parameters, node_id, rng: Broker(node_id, rng, parameters, []),
    ),
}


def address(text: str) -> tuple[str, int]:
    """Of HOST:PORT; ValueError if it is not that."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"an address is HOST:PORT, not {text!r}")
    return host.strip("[]"), int(port)


class Options(Struct, frozen=True, kw_only=True):
    overlay: str
    join: tuple[str, int] | None = None  # where somebody listens who is in the overlay already
    host: str = "127.0.0.1"  # where we listen, and where others find us
    port: int = 0  # 0: any that is free
    link: str = "tls"
    trace: Path | None = None
    key: Path | None = None  # the file of our key; none: a new one for this life alone
    settings: dict[str, Setting] = {}

    def __post_init__(self) -> None:
        for what, name, choices in (
            ("overlay", self.overlay, BOOTSTRAPS),
            ("link", self.link, LINKS),
        ):
            if name not in choices:
                raise ValueError(f"no {what} {name!r}; there are {', '.join(choices)}")

    @property
    def parameters(self) -> Struct:
        """Of the overlay; ValueError if a setting is not one of them, or wrong."""
        kind = PROTOCOLS[self.overlay].parameters
        for name in self.settings:
            if name not in kind.__struct_fields__:
                raise ValueError(f"no setting {name!r} for {self.overlay}")
        try:
            parameters: Struct = msgspec.convert(self.settings, kind, strict=False)
        except msgspec.ValidationError as why:
            raise ValueError(str(why)) from None
        return parameters


def numbers(rng: Random) -> Iterator[int]:
    """Identifiers that nobody else uses, though nobody is asked: from blocks drawn by chance."""
    while True:
        first = rng.getrandbits(37) << 16
        yield from range(first, first + 2**16)


class Desk:
    """Between an application's words and its node's commands."""

    def __init__(self, say: Callable[[words.Notice], None]) -> None:
        self._say = say
        self._numbers = numbers(SystemRandom())
        self._ids: dict[words.Number, SubscriptionId] = {}
        self._wanted: dict[SubscriptionId, words.Number] = {}

    def command(self, request: words.Request) -> commands.Command:
        """ValueError says why not."""
        match request:
            case words.Publish():
                if request.retain:
                    raise ValueError("a peer keeps no states: publish without retain")
                where = shape(
                    request.x, request.y, request.z, request.r, request.rx, request.ry, request.rz
                )
                return commands.Publish(
                    next(self._numbers), where, request.channel, request.attributes,
                    bytes(request.payload),
                )  # fmt: skip
            case words.Subscribe():
                return self._subscribe(request)
            case words.Move(subscription, area):
                return commands.Move(self._known(subscription), region(area))
            case words.Tune(subscription, variables):
                return commands.Tune(self._known(subscription), variables)
            case words.Unsubscribe(subscription):
                known = self._known(subscription)
                del self._ids[subscription], self._wanted[known]
                return commands.Unsubscribe(known)
            case words.Leave():
                return commands.Leave()
        raise ValueError("a peer publishes, subscribes and leaves; the rest is a node's")

    def _subscribe(self, request: words.Subscribe) -> commands.Subscribe:
        if request.watch or request.rates or request.closest or request.budget:
            raise ValueError("a peer hears everything: no watch, rates, closest or budget")
        bound = request.variables and request.area.formula
        known = self._ids.get(request.subscription)
        command = commands.Subscribe(
            next(self._numbers) if known is None else known, bound or region(request.area),
            request.filter, request.channel, request.echo, request.variables,
        )  # fmt: skip
        self._ids[request.subscription] = command.subscription
        self._wanted[command.subscription] = request.subscription
        return command

    def _known(self, subscription: words.Number) -> SubscriptionId:
        if subscription not in self._ids:
            raise ValueError(f"no subscription {subscription}")
        return self._ids[subscription]

    def obey(self, host: Host, node: NodeId, line: bytes) -> None:
        request: Any = None
        try:
            request = words.JSON.request(line)
            command = self.command(request)
            t = host.obey(node, command)
        except ValueError as why:
            self._say(words.Error(str(why), getattr(request, "id", None)))
            return
        if request.id is not None:
            publication = command.publication if isinstance(command, commands.Publish) else None
            self._say(words.Done(request.id, t, publication))

    def deliver(
        self, _node: NodeId, publication: Publication, subscriptions: Sequence[SubscriptionId]
    ) -> None:
        to = [self._wanted[s] for s in subscriptions if s in self._wanted]
        if not to:
            return  # all of them have ended meanwhile
        payload = words.NOTHING
        with suppress(msgspec.DecodeError):  # of a peer that speaks otherwise
            payload = words.JSON.seal(words.JSON.open(Raw(publication.payload)))  # on one line
        s = publication.shape
        disc, box = s.kind == Kind.DISC, s.kind == Kind.BOX
        self._say(
            words.Message(
                to, publication.node, publication.id, publication.t, s.x, s.y, payload, False,
                publication.attributes, publication.channel, s.z, s.rx if disc else None,
                s.rx if box else None, s.ry if box else None, s.rz if box else None,
            )
        )  # fmt: skip


class Member:
    """A node in its overlay, with all that it needs in this process."""

    def __init__(self, options: Options, recorder: Recorder, desk: Desk) -> None:
        self.options = options
        self.host = Host(PROTOCOLS[options.overlay].codec, recorder, desk.deliver)
        self.bootstrap = BOOTSTRAPS[options.overlay]

    async def start(self) -> words.Welcome:
        options, parameters = self.options, self.options.parameters
        identity = kept_identity(options.key) if options.key else new_identity()
        begins = options.join is None and self.bootstrap.server is not None
        join = await self._serve(identity.as_server(), parameters) if begins else options.join
        self.links = self._links(identity, 0 if begins else options.port)
        await self.links.open(lambda *_: None)  # nobody knows us yet
        contact = identity.name if join is None else await self._meet(*join)
        self.node = self.bootstrap.entity(parameters, identity.name, SystemRandom(), contact)
        self.introduce()
        await self.host.start(self.node, self.links)
        asked = join if begins and join else (self.links.host, self.links.port)
        return words.Welcome(identity.name, self.host.now, f"{asked[0]}:{asked[1]}")

    async def _meet(self, host: str, port: int) -> NodeId:
        try:
            return await self.links.meet(host, port, JOIN_WITHIN_S)
        except TimeoutError:
            await self.links.close()
            raise TimeoutError(f"nobody answers at {host}:{port}") from None

    async def _serve(self, identity: Identity, parameters: Struct) -> tuple[str, int]:
        assert self.bootstrap.server is not None
        links = self._links(identity, self.options.port)
        server = self.bootstrap.server(parameters, identity.name, SystemRandom())
        await self.host.start(server, links)
        return links.host, links.port

    def _links(self, identity: Identity, port: int) -> Links:
        return LINKS[self.options.link](identity, self.options.host, port)

    def introduce(self) -> None:
        """The node hears of everybody whom its transport knows, gone ones among them."""
        for name in self.links.book.names():
            if name != self.node.id:
                self.bootstrap.introduce(self.node, name)


async def live(
    options: Options, lines: asyncio.Queue[bytes | None], say: Callable[[words.Notice], None]
) -> None:
    """From the welcome until the application leaves; None among the lines makes it leave too."""
    desk, recording = Desk(say), None
    if options.trace is not None:
        settings = {**options.settings, "overlay": options.overlay, "link": options.link}
        recording = Recording(options.trace, unix_time(), settings)
    recorder = recording.recorder if recording else Recorder(Memory(), "none")
    member = Member(options, recorder, desk)
    try:
        say(await member.start())
        host, node_id = member.host, member.node.id
        gone = asyncio.create_task(host.stopped(node_id))
        gone.add_done_callback(lambda _: lines.put_nowait(None))
        chores = asyncio.create_task(_chores(member))
        while (line := await lines.get()) is not None:
            if node_id in host.nodes:
                desk.obey(host, node_id, line)
        gone.cancel()
        chores.cancel()
    finally:
        await member.host.stop()
        if recording is not None:
            recording.close({})
    say(words.Bye("left"))


async def _chores(member: Member) -> None:
    turns = round(FLUSH_EVERY_S / INTRODUCE_EVERY_S)
    for turn in range(sys.maxsize):
        await asyncio.sleep(INTRODUCE_EVERY_S)
        member.introduce()
        if turn % turns == 0:
            member.host.recorder.flush()


def peer(options: Options) -> None:
    """Until its application says leave, or the process is asked to end.

    ValueError, OSError and TimeoutError tell in one line why it cannot begin.
    """

    async def main() -> None:
        loop = asyncio.get_running_loop()
        lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, lines.put_nowait, None)

        def read_lines() -> None:
            for line in sys.stdin:
                with suppress(RuntimeError):  # the loop has ended before the input
                    loop.call_soon_threadsafe(lines.put_nowait, line.encode())

        # A thread of its own, which nobody waits for: reading a terminal cannot be given up.
        threading.Thread(target=read_lines, daemon=True).start()
        await live(options, lines, say)

    def say(notice: words.Notice) -> None:
        sys.stdout.write(words.JSON.write(notice).decode() + "\n")
        sys.stdout.flush()

    run(main())
