"""`nearcast peer --bots 32`: peers that do what a workload says.

Every bot is a peer: a node with a key, a port and connections of its own, which knows about others
only what it receives. They share a process because they share a game: to play it once for 32 bots
costs a fraction of playing it 32 times, and one trace records all of them. For several processes,
start several: the others join the first.

The workload's times count from when all peers are ready. Its subscription and publication numbers
are replaced by numbers that are unique in the overlay, and a ship's channel is named after its
peer.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from heapq import heappop, heappush
from random import SystemRandom
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from nearcast.client_protocol.geometry_json import PLANE
from nearcast.demo.live_awareness import ReceivedUpdates, ShipsInSight, accuracy, known_share
from nearcast.demo.planetpi4_live import NO_TEAM, ExternalShips, LiveGameLog, apply_damage
from nearcast.demo.ship_control import ShipControl
from nearcast.model.commands import Command, Leave, Publish, Subscribe, Unsubscribe
from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId, SubscriptionId
from nearcast.peer.discovery import OverlayDescription
from nearcast.peer.host import Host, run, unix_time
from nearcast.peer.line_protocol import unique_ids
from nearcast.peer.peer import (
    FLUSH_EVERY_S,
    LivePeer,
    PeerOptions,
    ProcessHost,
    format_address,
    parse_settings,
)
from nearcast.protocols import PROTOCOLS
from nearcast.scenario import Setting, stream
from nearcast.space.motion import SECOND, Moving, Path, Time
from nearcast.space.shapes import Vector
from nearcast.workloads import WORKLOADS
from nearcast.workloads.planetpi4 import PlanetPi4, PlanetPi4Player, channel
from nearcast.workloads.planetpi4_reckoning import unpack
from nearcast.workloads.workload import Life, Scheduled, Workload

JOINING_TOGETHER = 8  # peers that join at the same time
READY_WITHIN_S = 60.0  # after which the game begins in any case
LONGEST_S = 400_000.0  # that a game lasts: as long as workloads have numbers for
MAX_BOTS = 500
POLL_S = 0.1
SLICE: Time = SECOND // 50  # of work without a pause
# A position update that is so late is left out: a busy machine must not get busier.
DROP_UPDATES_AFTER: Time = SECOND
REPORT_EVERY_S = 10.0
LEAVING_S = 1.0  # in which all bots leave


class BotSettings(Struct, frozen=True, kw_only=True):
    """How many bots play which workload."""

    bots: int
    workload: str = "planetpi4"
    seed: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.bots <= MAX_BOTS:
            raise ValueError(f"bots must be between 1 and {MAX_BOTS}, not {self.bots}")
        if self.workload not in WORKLOADS:
            raise ValueError(f"no workload {self.workload!r}; there are {', '.join(WORKLOADS)}")

    def split(self, settings: dict[str, Setting]) -> tuple[Workload, dict[str, Setting]]:
        """The workload with its own settings, and the rest, which are the overlay's."""
        kind = WORKLOADS[self.workload]
        known = {name: settings[name] for name in kind.parameters.__struct_fields__
                 if name in settings}  # fmt: skip
        try:
            parameters = msgspec.convert(known, kind.parameters, strict=False)
        except msgspec.ValidationError as why:
            raise ValueError(str(why)) from None
        rest = {name: value for name, value in settings.items() if name not in known}
        return kind.make(parameters, self.bots, LONGEST_S, self.seed), rest


class BotCounts(NamedTuple):
    """What all bots of this process have done so far."""

    seconds: float  # since the game began
    peers: int
    publications: int
    deliveries: int
    known: float  # others that a peer knows, on average
    files: int  # that this process has open, nearly all of them connections
    late_ms: float  # by how much a command was late at most, since the last counts
    # Of the ships in the sight of each peer, the share that it knows; None: nobody sees anybody.
    aware: float | None = None
    # Of all pairs of a peer and another ship, the share where it knows it if and only if it is in
    # its sight.
    accuracy: float | None = None


def open_files() -> int:
    """0 if the system does not provide it."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


class PeerBot(Struct, eq=False):
    """A peer, its life, and the overlay's numbers of its subscriptions."""

    member: LivePeer
    life: Life
    commands: Iterator[Scheduled]
    ids: dict[SubscriptionId, SubscriptionId] = {}


class PeerBots:
    """The bots of one process and the persons who fly with them, each a peer of the overlay."""

    def __init__(self, options: PeerOptions, bot_settings: BotSettings) -> None:
        self.bot_settings = bot_settings
        self.workload, rest = bot_settings.split(options.settings)
        if options.join is None and self._is_spatial():
            spatial = PROTOCOLS[options.overlay].spatial or {}
            options = replace(options, settings={**spatial, **options.settings})
            rest = {**spatial, **rest}
        self.options = replace(options, settings=rest, geometry=PLANE)
        about: dict[str, Setting] = {
            "bots": bot_settings.bots, "world": bot_settings.workload, "seed": bot_settings.seed,
        }  # fmt: skip
        self.home = ProcessHost(options, self._deliver, about)
        self.bots: list[PeerBot] = []
        self.ships: dict[NodeId, int] = {}  # by peer: the bot's number
        self.ship_controls: dict[NodeId, ShipControl] = {}  # by peer: of persons in this process
        self.person_peers: dict[NodeId, LivePeer] = {}
        self.teams: dict[NodeId, int] = {}  # by peer: of bots, and of persons in this process
        self.game_log: LiveGameLog | None = None
        self.external_ships: ExternalShips | None = None
        self.received_updates = ReceivedUpdates()
        self.begins: Time = 0
        self.publications = self.deliveries = 0
        self._late: Time = 0
        self._numbers = unique_ids(SystemRandom())
        self._channels: dict[str, str] = {}

    @property
    def host(self) -> Host:
        assert self.home.host is not None
        return self.home.host

    def _is_spatial(self) -> bool:
        """Is the game in 3-D?"""
        low, high = self.workload.world
        return high[2] > low[2]

    # Start.

    async def start_peers(self, report: Callable[[str], None]) -> tuple[str, int]:
        """Start all peers and wait until they are ready. Returns the address for others to join."""
        first = await self._start(self.options)
        if self._is_spatial() and (advice := _flat_overlay(first.about)):
            report(advice)
        others = replace(self.options, join=first.address, port=0, serve=False, key=None)
        members = [first]
        while len(members) < self.bot_settings.bots:
            some = min(JOINING_TOGETHER, self.bot_settings.bots - len(members))
            members += await asyncio.gather(*(self._start(others) for _ in range(some)))
            report(f"{len(members)} of {self.bot_settings.bots} peers have joined")
        self._begin_lives(members)
        await self._wait_until_ready(report)
        if PROTOCOLS[first.about.overlay].settles:
            for bot in self.bots:
                for command in _first_interests(bot.life):
                    self._execute(bot, command)
            await self._wait_until_ready(report)
        return first.address

    async def _start(self, options: PeerOptions) -> LivePeer:
        member = LivePeer(options, self.home)
        await member.start()
        return member

    def _begin_lives(self, members: list[LivePeer]) -> None:
        for number, member in enumerate(members):
            life = self.workload.life(number, 0, 0)
            self.bots.append(PeerBot(member, life, life.commands(), {}))
            self.ships[member.node.id] = number
            self._channels[channel(number)] = channel(member.node.id)
        if isinstance(self.workload, PlanetPi4):
            self._share_game(self.workload)

    def _share_game(self, game: PlanetPi4) -> None:
        """One game for all bots, in which external ships may take part."""
        log, seed = game.log(0), self.bot_settings.seed
        game_log = LiveGameLog(
            log.game.rules, stream(seed, "planetpi4", "landscape"), stream(seed, "planetpi4", 0)
        )
        for bot in self.bots:
            assert isinstance(bot.life, PlanetPi4Player)
            bot.life.log = game_log
        names = list(self.ships)
        self.teams = dict(zip(names, game_log.game.team.tolist(), strict=True))
        self.game_log = game_log
        game_log.external_ships = self.external_ships = ExternalShips(
            game_log.game, lambda name: self.teams.get(name, NO_TEAM)
        )

    async def _wait_until_ready(self, report: Callable[[str], None]) -> None:
        loop = asyncio.get_running_loop()
        patience, reported = loop.time() + READY_WITHIN_S, loop.time()
        while (ready := sum(bot.member.node.ready for bot in self.bots)) < len(self.bots):
            if loop.time() > patience:
                report(f"only {ready} of {len(self.bots)} peers are ready; the game begins now")
                return
            if loop.time() - reported > 2.0:
                reported = loop.time()
                report(f"{ready} of {len(self.bots)} peers are ready")
            await asyncio.sleep(POLL_S)

    # The game.

    async def play(self, seconds: float | None = None) -> None:
        """Execute all lives in real time, for so many seconds or until this is cancelled."""
        # At a whole second, when every process samples positions.
        self.begins = (self.host.now // SECOND + 1) * SECOND
        ends = None if seconds is None else self.begins + round(seconds * SECOND)
        chores = asyncio.create_task(self._housekeeping())
        try:
            await self._play(ends)
        finally:
            chores.cancel()
            with suppress(asyncio.CancelledError):
                await chores

    async def _play(self, ends: Time | None) -> None:
        due: list[tuple[Time, bool, int, Command]] = []

        def schedule_next(number: int) -> None:
            scheduled = next(self.bots[number].commands, None)
            if scheduled is not None:
                t, command = scheduled
                heappush(due, (self.begins + t, isinstance(command, Publish), number, command))

        for number in range(len(self.bots)):
            schedule_next(number)
        while due:
            if ends is not None and due[0][0] >= ends:
                await asyncio.sleep((ends - self.host.now) / SECOND)
                return
            await asyncio.sleep(max(0, due[0][0] - self.host.now) / SECOND)
            # If commands are late, other tasks run in between.
            begun = now = self.host.now
            while due and due[0][0] <= now < begun + SLICE:
                t, _, number, command = heappop(due)
                self._late = max(self._late, now - t)
                if now - t < DROP_UPDATES_AFTER or not _is_position_update(command):
                    self._execute(self.bots[number], command)
                schedule_next(number)
                now = self.host.now

    def _execute(self, bot: PeerBot, command: Command) -> None:
        name = bot.member.node.id
        if name not in self.host.nodes:
            return  # it has failed, which is in the log
        if isinstance(command, Publish):
            self.publications += 1
            whom = self._channel(command.channel)
            command = replace(command, publication=next(self._numbers), channel=whom)
        elif isinstance(command, Subscribe):
            known = bot.ids.setdefault(command.subscription, next(self._numbers))
            whom = self._channel(command.channel)
            command = replace(command, subscription=known, channel=whom)
        else:
            assert hasattr(command, "subscription")
            known = bot.ids[command.subscription]
            if isinstance(command, Unsubscribe):
                del bot.ids[command.subscription]
            command = replace(command, subscription=known)
        self.host.obey(name, command)

    def _channel(self, channel_name: str) -> str:
        """The channel of a ship in the overlay: named after its peer."""
        if channel_name and channel_name not in self._channels and self.external_ships is not None:
            for name, slot in self.external_ships.slots.items():
                if channel_name == channel(slot):
                    return channel(name)
        return self._channels.get(channel_name, channel_name)

    # Deliveries.

    def _deliver(self, node: NodeId, publication: Publication, to: Any) -> None:
        if self.game_log is not None and not publication.channel:
            self.received_updates.add(node, publication.node, unix_time())
        control = self.ship_controls.get(node)
        if control is not None:
            control.deliver(node, publication, to)
            return
        self.deliveries += 1
        ship = self.ships.get(node)
        if self.external_ships is None or self.game_log is None or ship is None:
            return
        if publication.node in self.ships:
            return  # a bot of this process: the game knows its state
        if publication.channel == channel(node):
            damage = publication.attributes.get("damage")
            if isinstance(damage, int | float):
                apply_damage(self.game_log.game, ship, damage)
        elif publication.attributes.get("exploded"):
            self.external_ships.remove(publication.node)
        else:
            with suppress(ValueError):
                self.external_ships.update(publication.node, unpack(publication.payload))

    # Persons.

    async def add_person(self, control: ShipControl, team: int) -> LivePeer:
        """Start a peer for a person; to bots it is an external ship like any other."""
        first = self.bots[0].member
        options = replace(
            self.options, join=first.address, port=0, serve=False, key=None, overlay=""
        )
        member = await self._start(options)
        control.about = member.about
        self.ship_controls[member.node.id] = control
        self.person_peers[member.node.id] = member
        self.teams[member.node.id] = team
        return member

    def remove_person(self, member: LivePeer) -> None:
        """The peer of this person leaves the overlay."""
        name = member.node.id
        self.ship_controls.pop(name, None)
        self.person_peers.pop(name, None)
        self.teams.pop(name, None)
        self.received_updates.forget(name)
        if self.external_ships is not None:
            self.external_ships.remove(name)
        if name in self.host.nodes:
            self.host.obey(name, Leave())

    # Once a second.

    async def _housekeeping(self) -> None:
        """At every whole second: sample positions, introduce peers; sometimes flush the trace."""
        second = self.begins
        while True:
            await asyncio.sleep(max(0, second - self.host.now) / SECOND)
            self._sample(second)
            for member in [bot.member for bot in self.bots] + list(self.person_peers.values()):
                member.introduce()
            if self.external_ships is not None:
                self.external_ships.remove_silent()
            if second // SECOND % round(FLUSH_EVERY_S) == 0:
                self.host.recorder.flush()
            second = max(second + SECOND, self.host.now // SECOND * SECOND)

    def _sample(self, t: Time) -> None:
        """Record true positions, and where peers believe others to be."""
        recorder = self.host.recorder
        for bot in self.bots:
            node = bot.member.node
            if node.id in self.host.nodes:
                recorder.position(t, node.id, *bot.life.position(t - self.begins))
                for other, place in node.known(t):
                    recorder.view(t, node.id, other, *place)
        for name, control in self.ship_controls.items():
            where = control.position(t)
            if where is not None:
                recorder.position(t, name, *where)

    def awareness(self) -> dict[NodeId, ShipsInSight]:
        """What each peer of this process knows of the ships in its sight."""
        if self.game_log is None or not isinstance(self.workload, PlanetPi4):
            return {}
        now, game = self.host.now, self.game_log.game
        alive, place = game.alive.tolist(), game.place.tolist()
        places: dict[NodeId, Vector] = {}
        for name, ship in self.ships.items():
            if alive[ship] and name in self.host.nodes:
                x, y, z = place[ship]
                places[name] = x, y, z
        for name, control in self.ship_controls.items():
            where = control.position(now)
            if where is not None:
                places[name] = where
        return self.received_updates.awareness(now, places, self.workload.parameters.radius)

    def counts(self) -> BotCounts:
        """What the bots have done so far."""
        now = self.host.now
        nodes = [bot.member.node for bot in self.bots]
        known = sum(len(list(node.known(now))) for node in nodes) / len(nodes)
        late, self._late = self._late / 1000, 0
        awareness = self.awareness()
        return BotCounts(
            max(0, now - self.begins) / SECOND, len(self.host.nodes), self.publications,
            self.deliveries, known, open_files(), late, known_share(awareness),
            accuracy(awareness),
        )  # fmt: skip

    async def stop(self) -> None:
        """All leave, one after the other, so that each can still tell others."""
        for bot in self.bots:
            if bot.member.node.id in self.host.nodes:
                self.host.obey(bot.member.node.id, Leave())
                await asyncio.sleep(LEAVING_S / len(self.bots))
        await self.home.stop()


def _flat_overlay(about: OverlayDescription) -> str:
    """What to say of an overlay that has a form for 3-D worlds and does not use it; "": it does."""
    kind = PROTOCOLS[about.overlay]
    chosen, usual = parse_settings(about.overlay, about.settings), kind.parameters()
    for name, value in (kind.spatial or {}).items():
        if getattr(chosen, name) == getattr(usual, name):
            return (
                f"the game is in 3-D, but this overlay of {about.overlay} sends by x and y alone:"
                f" it should begin with --set {name}={value}"
            )
    return ""


def _is_position_update(command: Command) -> bool:
    """Position updates may be left out: the next one follows soon."""
    return isinstance(command, Publish) and not command.attributes


def _first_interests(life: Life) -> Iterator[Subscribe]:
    """The first interests of an entity, without motion until the game begins."""
    for t, command in life.commands():
        if t > 0 or not isinstance(command, Subscribe):
            return
        region = command.region
        if isinstance(region, Moving | Path):
            command = replace(command, region=Moving(region.at(region.since)))
        yield command


def run_bots(
    peer_bots: PeerBots,
    seconds: float | None,
    report_progress: Callable[[str], None],
    ready: Callable[[str], None],
    report: Callable[[BotCounts], None],
) -> None:
    """Run the bots until their time is over, or until SIGINT or SIGTERM.

    `report_progress` gets texts about the start, `ready` the address for others to join, and
    `report` the counts every few seconds.
    """

    async def main() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
        try:
            ready(format_address(*await peer_bots.start_peers(report_progress)))
            reporting = asyncio.create_task(_report_regularly(peer_bots, report))
            await peer_bots.play(seconds)
            reporting.cancel()
            report(peer_bots.counts())
        except asyncio.CancelledError:
            report_progress("the bots leave")
        finally:
            await peer_bots.stop()

    run(main())


async def _report_regularly(peer_bots: PeerBots, report: Callable[[BotCounts], None]) -> None:
    while True:
        await asyncio.sleep(REPORT_EVERY_S)
        report(peer_bots.counts())
