"""`nearcast peer`: one member of an overlay as a program of its own.

It speaks the client protocol (`client_protocol.messages`) in lines of JSON: requests on standard
input, notices on standard output. Who begins an overlay is asked by those who join it: `--join`
takes the address in its `welcome`. Whoever answers there is believed to be the one; from then on
everybody is known by key.
"""

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from random import SystemRandom

import msgspec
from msgspec import Struct

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import EARTH, PLANE, Geometry
from nearcast.model.subscription import NodeId
from nearcast.peer.bootstrap import BOOTSTRAPS, KnownPeers
from nearcast.peer.discovery import Discovery, OverlayDescription
from nearcast.peer.host import Host, OnDeliver, run, unix_time
from nearcast.peer.line_protocol import LineProtocol
from nearcast.peer.signing import Signing
from nearcast.protocols import PROTOCOLS
from nearcast.protocols.overlay import FIRST_SERVER
from nearcast.scenario import Setting
from nearcast.storage import AnyPath
from nearcast.trace.live_recording import LiveRecording
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from nearcast.transport.identity import Identity, load_identity, new_identity
from nearcast.transport.links import LinkTransport
from nearcast.transport.quic import QuicTransport
from nearcast.transport.tls import TlsTransport

LINKS: dict[str, type[LinkTransport]] = {"tls": TlsTransport, "quic": QuicTransport}
FLUSH_EVERY_S = 5.0
INTRODUCE_EVERY_S = 1.0
JOIN_WITHIN_S = 10.0
PROBE_S = 1.0  # to find out whether anybody listens at all


def parse_address(text: str) -> tuple[str, int]:
    """Of HOST:PORT; ValueError if it is not that."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"an address is HOST:PORT, not {text!r}")
    return host.strip("[]"), int(port)


def format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_settings(overlay: str, settings: dict[str, Setting]) -> Struct:
    """ValueError if a setting is not one of the overlay's, or wrong."""
    kind = PROTOCOLS[overlay].parameters
    for name in settings:
        if name not in kind.__struct_fields__:
            raise ValueError(f"no setting {name!r} for {overlay}")
    try:
        parameters: Struct = msgspec.convert(settings, kind, strict=False)
    except msgspec.ValidationError as why:
        raise ValueError(str(why)) from None
    return parameters


class PeerOptions(Struct, frozen=True, kw_only=True):
    """The options of `nearcast peer`."""

    overlay: str = ""  # with `join` it need not be said: whoever is asked there knows
    join: tuple[str, int] | None = None  # where somebody listens who is in the overlay already
    host: str = ""  # where we listen, and where others find us; empty: where `join` reaches us
    port: int = 0  # 0: any that is free
    link: str = "tls"
    serve: bool = False  # also run a server of the overlay, beside the one that is joined
    trace: AnyPath | None = None
    key: Path | None = None  # the file of our key; none: a new one for this life alone
    unsigned: bool = False  # publications are not signed; all peers of an overlay agree on that
    geometry: Geometry | None = None  # with `join` it need not be said; else a plane
    settings: dict[str, Setting] = {}

    def __post_init__(self) -> None:
        if not self.overlay and self.join is None:
            raise ValueError(f"which overlay shall begin? There are {', '.join(BOOTSTRAPS)}")
        for what, name, choices in (
            ("overlay", self.overlay, ["", *BOOTSTRAPS]),
            ("link", self.link, LINKS),
            ("geometry", self.geometry or "", ["", PLANE, EARTH]),
        ):
            if name not in choices:
                raise ValueError(
                    f"no {what} {name!r}; there are {', '.join(filter(None, choices))}"
                )
        if self.host in ("0.0.0.0", "::"):
            raise ValueError(f"others find a peer where it listens: {self.host} is nowhere")

    @property
    def parameters(self) -> Struct:
        return parse_settings(self.overlay, self.settings)

    def own_host(self) -> str:
        """The address of this machine from which the one to be joined is reached."""
        if self.host or self.join is None:
            return self.host or "127.0.0.1"
        try:
            family, *_, where = socket.getaddrinfo(*self.join, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect(where)  # says nothing to anybody
                own = str(probe.getsockname()[0])
        except OSError as why:
            raise OSError(f"there is no way to {self.join[0]}: {why.strerror}") from None
        return str(ip_address(own))


class ProcessHost:
    """The host of a process and its trace, which begin when its overlay is known.

    `more`: what the trace says of the run beside the options.
    """

    def __init__(
        self, options: PeerOptions, on_deliver: OnDeliver, more: dict[str, Setting] | None = None
    ) -> None:
        self._options, self._on_deliver, self._more = options, on_deliver, more or {}
        self._recording: LiveRecording | None = None
        self.host: Host | None = None

    def host_of(self, about: OverlayDescription) -> Host:
        if self.host is None:
            recorder = Recorder(MemoryTrace(), "none")
            if self._options.trace is not None:
                self._recording = self._record(self._options.trace, about)
                recorder = self._recording.recorder
            self.host = Host(PROTOCOLS[about.overlay].codec, recorder, self._on_deliver)
        return self.host

    def _record(self, folder: AnyPath, about: OverlayDescription) -> LiveRecording:
        options = self._options
        settings = {**options.settings, "overlay": about.overlay, "link": options.link}
        if about.geometry != PLANE:  # which is understood
            settings["geometry"] = about.geometry
        return LiveRecording(folder, unix_time(), {**settings, **self._more})

    async def stop(self) -> None:
        """All leave; then the trace is complete. It says how many publications were refused."""
        if self.host is None:
            return
        await self.host.stop()
        if self._recording is not None:
            self._recording.close({"refused": dict(self.host.refused)})


class LivePeer:
    """A node in its overlay, with all that it needs in this process."""

    def __init__(self, options: PeerOptions, home: ProcessHost) -> None:
        self.options, self._home = options, home

    async def start(self) -> None:
        """ValueError, OSError and TimeoutError tell in one line why it cannot be."""
        options = self.options
        identity = load_identity(options.key) if options.key else new_identity()
        if options.join is None:
            _ = options.parameters  # what is wrong with them is told before anything begins
        contact = about = None
        served: LinkTransport | None = None
        begins = options.join is None and BOOTSTRAPS[options.overlay].server is not None
        discovery = self._make_discovery(identity, 0 if begins or options.serve else options.port)
        await discovery.open(None)
        try:
            if options.join is not None:
                contact, about = await self._contact(discovery, *options.join)
            about = self._agreed(about)
            self.bootstrap = BOOTSTRAPS[about.overlay]
            parameters = parse_settings(about.overlay, about.settings)
            self.host = self._home.host_of(about)
            if begins or options.serve:
                served = await self._serve(identity.as_server(), parameters, about, contact)
                discovery.links.add_record(served.record)
                contact = served.name
        except BaseException:
            await discovery.close()
            raise
        self.links = discovery.links
        contact = identity.name if contact is None else self._served_by(contact)
        self.node = self.bootstrap.entity(parameters, identity.name, SystemRandom(), contact)
        discovery.about = self.about = about
        self._acquaintances = KnownPeers(self.bootstrap, self.node, self.links.book)
        self.introduce()
        await self.host.start(self.node, discovery, self._signing(self.links))
        listening = served or self.links
        self.address = listening.host, listening.port

    def welcome(self, number: int | None = None) -> messages.WelcomeNotice:
        """Who it is, and the address that others join; `number` is that of the request."""
        where = format_address(*self.address)
        geometry = self.about.geometry
        return messages.WelcomeNotice(
            self.node.id, self.host.now, where, id=number, geometry=geometry
        )

    def _agreed(self, described: OverlayDescription | None) -> OverlayDescription:
        """Overlay and settings: the other's, unless ours say otherwise."""
        options = self.options
        if described is not None and options.overlay not in ("", described.overlay):
            assert options.join is not None
            where = format_address(*options.join)
            raise ValueError(
                f"{where} is in an overlay of {described.overlay}, not {options.overlay}"
            )
        overlay = described.overlay if described else options.overlay
        if overlay not in BOOTSTRAPS:
            raise ValueError(f"no overlay {overlay!r} is known here")
        if options.serve and options.join and not BOOTSTRAPS[overlay].servers_join:
            raise ValueError(f"an overlay of {overlay} has no room for a further server")
        if described is not None and described.signed == options.unsigned:
            assert options.join is not None
            where = format_address(*options.join)
            raise ValueError(
                f"publications are signed in the overlay at {where}: leave out --unsigned"
                if described.signed
                else f"publications are not signed in the overlay at {where}: join with --unsigned"
            )
        geometry = described.geometry if described else options.geometry or PLANE
        if options.geometry not in (None, geometry):
            assert options.join is not None
            where = format_address(*options.join)
            raise ValueError(
                f"the geometry of the overlay at {where} is {geometry}, not {options.geometry}"
            )
        begun = described.settings if described else BOOTSTRAPS[overlay].settings
        # On Earth places have three coordinates.
        spatial = (PROTOCOLS[overlay].spatial or {}) if geometry == EARTH else {}
        settings = {**spatial, **begun, **options.settings}
        chosen = parse_settings(overlay, settings)
        for name, value in spatial.items():
            if getattr(chosen, name) != value:
                raise ValueError(f"on Earth {overlay} has {name}={value}, and nothing else")
        if overlay == "brokers" and settings.get("interest") == "object" and not options.unsigned:
            # They publish under a channel of their own making, which no signature covers.
            raise ValueError("brokers with interest=object cannot sign: use --unsigned")
        if overlay == "relays" and settings.get("directory") == "central":
            raise ValueError("live relays have no central directory: leave out directory=central")
        return OverlayDescription(overlay, settings, not options.unsigned, geometry)

    async def _contact(
        self, discovery: Discovery, host: str, port: int
    ) -> tuple[NodeId, OverlayDescription]:
        where, links = format_address(host, port), discovery.links
        try:
            name = await links.meet(host, port, JOIN_WITHIN_S)
        except TimeoutError:
            why = await _explain_no_answer(host, port, self.options.link)
            raise TimeoutError(why.format(where)) from None
        except ConnectionError:
            raise ConnectionError(
                f"{where} hangs up: it is no peer, or has the key that this one has"
            ) from None
        try:
            return name, await discovery.query(name, JOIN_WITHIN_S)
        except TimeoutError:
            raise TimeoutError(f"{where} is a node, but does not say of which overlay") from None

    def _served_by(self, contact: NodeId) -> NodeId:
        """Whoever has met a client knows by it where the server is."""
        if self.bootstrap.server is None or contact >= FIRST_SERVER:
            return contact
        servers = [name for name in self.links.book.names() if name >= FIRST_SERVER]
        if not servers:
            raise ValueError("this peer serves nobody, and knows nobody who does")
        return servers[0]

    async def _serve(
        self,
        identity: Identity,
        parameters: Struct,
        about: OverlayDescription,
        contact: NodeId | None,
    ) -> LinkTransport:
        assert self.bootstrap.server is not None
        discovery = self._make_discovery(identity, self.options.port)
        discovery.about = about
        beside = identity.name
        if contact is not None and self.options.join is not None:
            await discovery.open(None)
            await discovery.links.meet(*self.options.join, JOIN_WITHIN_S)
            self.links = discovery.links
            beside = self._served_by(contact)
        server = self.bootstrap.server(parameters, identity.name, SystemRandom(), beside)
        await self.host.start(server, discovery, self._signing(discovery.links))
        return discovery.links

    def _make_discovery(self, identity: Identity, port: int) -> Discovery:
        options = self.options
        return Discovery(LINKS[options.link](identity, options.own_host(), port))

    def _signing(self, links: LinkTransport) -> Signing | None:
        return None if self.options.unsigned else Signing(links.identity, links.book.key)

    def introduce(self) -> None:
        """The node hears of those whom its transport knows."""
        self._acquaintances.introduce_due(unix_time())


async def _explain_no_answer(host: str, port: int, link: str) -> str:
    """Why nobody has answered, as far as can be told from here."""
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(PROBE_S):
            _, writer = await asyncio.open_connection(host, port)
        writer.close()
        other = "; try --link tls" if link == "quic" else ""
        return f"whoever listens at {{}} is no peer with {link} links{other}"
    return "nobody answers at {}"


@asynccontextmanager
async def live_peer(options: PeerOptions, on_deliver: OnDeliver) -> AsyncIterator[LivePeer]:
    """A peer with a host of its own: from its start until it has left and its trace is complete.

    ValueError, OSError and TimeoutError tell in one line why it cannot begin.
    """
    home = ProcessHost(options, on_deliver)
    member = LivePeer(options, home)
    try:
        await member.start()
        periodic_tasks = asyncio.create_task(_run_periodic_tasks(member))
        try:
            yield member
        finally:
            periodic_tasks.cancel()
    finally:
        await home.stop()


async def run_peer(
    options: PeerOptions,
    lines: asyncio.Queue[bytes | None],
    send_notice: Callable[[messages.Notice], None],
) -> None:
    """From the welcome until the application leaves; None among the lines makes it leave too."""
    line_protocol = LineProtocol(send_notice)
    async with live_peer(options, line_protocol.deliver) as member:
        line_protocol.about = member.about
        member.host.on_direct[member.node.id] = line_protocol.receive_direct
        send_notice(member.welcome())
        host, node_id = member.host, member.node.id
        gone = asyncio.create_task(host.stopped(node_id))
        gone.add_done_callback(lambda _: lines.put_nowait(None))
        while (line := await lines.get()) is not None:
            if node_id in host.nodes:
                line_protocol.obey(host, node_id, line)
        gone.cancel()
    send_notice(messages.ByeNotice("left"))


async def _run_periodic_tasks(member: LivePeer) -> None:
    turns = round(FLUSH_EVERY_S / INTRODUCE_EVERY_S)
    for turn in range(sys.maxsize):
        await asyncio.sleep(INTRODUCE_EVERY_S)
        member.introduce()
        if turn % turns == 0:
            member.host.recorder.flush()


def run_peer_process(options: PeerOptions) -> None:
    """Until its application says leave, or the process is asked to end.

    ValueError, OSError and TimeoutError tell in one line why it cannot begin.
    """
    lines: asyncio.Queue[bytes | None] = asyncio.Queue()
    welcomed = threading.Event()

    async def main() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def stop() -> None:
            if welcomed.is_set():
                lines.put_nowait(None)
            else:
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop)

        def read_lines() -> None:
            for line in sys.stdin:
                with suppress(RuntimeError):  # the loop has ended before the input
                    loop.call_soon_threadsafe(lines.put_nowait, line.encode())

        # A thread of its own, which nobody waits for: reading a terminal cannot be given up.
        threading.Thread(target=read_lines, daemon=True).start()
        with suppress(asyncio.CancelledError):
            await run_peer(options, lines, send_notice)

    def send_notice(notice: messages.Notice) -> None:
        if isinstance(notice, messages.WelcomeNotice):
            welcomed.set()
        sys.stdout.write(messages.JSON.encode(notice).decode() + "\n")
        sys.stdout.flush()

    run(main())
