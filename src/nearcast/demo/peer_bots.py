"""`nearcast peer --bots 32`: a world filled with peers that live as a workload says.

Every bot is a peer: a node with a key, a port and connections of its own, which knows of others
only what reaches it by these. They share a process, because they share a game: one interpreter
that plays it for 32 costs a fraction of 32 that each play all of it, and one trace tells of all of
them. Whoever wants several processes starts several: the others join the first.

The workload's times count from when all peers are in. Its numbers become numbers that nobody else
in the overlay uses, and ships are called by their peers' names.
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

from nearcast.demo.planetpi4_live import NO_TEAM, ExternalShips, LiveGameLog, apply_damage
from nearcast.demo.ship_control import ShipControl
from nearcast.model.commands import Command, Leave, Publish, Subscribe, Unsubscribe
from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId, SubscriptionId
from nearcast.peer.host import Host, run
from nearcast.peer.line_protocol import numbers
from nearcast.peer.peer import FLUSH_EVERY_S, Home, LivePeer, Options, recording_of, written
from nearcast.protocols import PROTOCOLS
from nearcast.scenario import Setting, stream
from nearcast.space.motion import SECOND, Moving, Path, Time
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from nearcast.workloads import WORKLOADS
from nearcast.workloads.planetpi4 import PlanetPi4, Player, channel
from nearcast.workloads.planetpi4_reckoning import unpack
from nearcast.workloads.workload import Life, Scheduled, Workload

AT_ONCE = 8  # peers that join at the same time
READY_WITHIN_S = 60.0  # after which the world begins even so
LONGEST_S = 400_000.0  # that a world lasts: as long as workloads have numbers for
MAX_BOTS = 500
LOOK_S = 0.1
SLICE: Time = SECOND // 50  # of work at a time
# A word on where a ship is that is so late is left out: a busy machine must not get busier.
WORTHLESS: Time = SECOND
TELL_EVERY_S = 10.0
GOODBYE_S = 1.0  # in which all bots leave


class BotSettings(Struct, frozen=True, kw_only=True):
    """So many bots; `settings` of the workload and of the overlay are told apart by name."""

    bots: int
    workload: str = "planetpi4"
    seed: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.bots <= MAX_BOTS:
            raise ValueError(f"bots must be between 1 and {MAX_BOTS}, not {self.bots}")
        if self.workload not in WORKLOADS:
            raise ValueError(f"no workload {self.workload!r}; there are {', '.join(WORKLOADS)}")

    def split(self, settings: dict[str, Setting]) -> tuple[Workload, dict[str, Setting]]:
        """The workload, and the settings that are not its own."""
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
    """How a fleet does."""

    seconds: float  # since the world began
    peers: int
    publications: int
    deliveries: int
    known: float  # others that a peer knows, on average
    files: int  # that this process has open, nearly all of them connections
    late_ms: float  # by how much a command was late at most, since the last tally


def open_files() -> int:
    """0 where the system does not tell."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


class Bot(Struct, eq=False):
    """A peer, its life, and under which numbers its subscriptions are known outside."""

    member: LivePeer
    life: Life
    commands: Iterator[Scheduled]
    ids: dict[SubscriptionId, SubscriptionId] = {}


class PeerBots:
    """Bots and guests of one process, each a peer of the overlay."""

    def __init__(self, options: Options, crew: BotSettings) -> None:
        self.crew = crew
        self.workload, rest = crew.split(options.settings)
        self.options = replace(options, settings=rest)
        told: dict[str, Setting] = {
            "bots": crew.bots, "world": crew.workload, "seed": crew.seed,
        }  # fmt: skip
        self.recording = recording_of(options, told)
        recorder = self.recording.recorder if self.recording else Recorder(MemoryTrace(), "none")
        self.home = Home(recorder, self._deliver)
        self.bots: list[Bot] = []
        self.ships: dict[NodeId, int] = {}  # by name: the bot's number
        self.pilots: dict[NodeId, ShipControl] = {}  # of persons' peers in this process
        self.visitors: dict[NodeId, LivePeer] = {}  # these peers
        self.teams: dict[NodeId, int] = {}  # of bots, and of persons' peers in this process
        self.course: LiveGameLog | None = None
        self.guests: ExternalShips | None = None
        self.begins: Time = 0
        self.publications = self.deliveries = 0
        self._late: Time = 0
        self._numbers = numbers(SystemRandom())
        self._channels: dict[str, str] = {}

    @property
    def host(self) -> Host:
        assert self.home.host is not None
        return self.home.host

    # Coming together.

    async def gather(self, tell: Callable[[str], None]) -> tuple[str, int]:
        """All peers join, and their overlay settles; the address by which others join them."""
        first = await self._start(self.options)
        others = replace(self.options, join=first.address, port=0, serve=False, key=None)
        members = [first]
        while len(members) < self.crew.bots:
            some = min(AT_ONCE, self.crew.bots - len(members))
            members += await asyncio.gather(*(self._start(others) for _ in range(some)))
            tell(f"{len(members)} of {self.crew.bots} peers have joined")
        self._lives(members)
        await self._until_ready(tell)
        if PROTOCOLS[first.about.overlay].settles:
            for bot in self.bots:
                for command in _first_interests(bot.life):
                    self._obey(bot, command)
            await self._until_ready(tell)
        return first.address

    async def _start(self, options: Options) -> LivePeer:
        member = LivePeer(options, self.home)
        await member.start()
        return member

    def _lives(self, members: list[LivePeer]) -> None:
        for number, member in enumerate(members):
            life = self.workload.life(number, 0, 0)
            self.bots.append(Bot(member, life, life.commands(), {}))
            self.ships[member.node.id] = number
            self._channels[channel(number)] = channel(member.node.id)
        if isinstance(self.workload, PlanetPi4):
            self._open_arena(self.workload)

    def _open_arena(self, game: PlanetPi4) -> None:
        """All bots read the same course, in which guests may take part."""
        log, seed = game.log(0), self.crew.seed
        course = LiveGameLog(
            log.game.rules, stream(seed, "planetpi4", "landscape"), stream(seed, "planetpi4", 0)
        )
        for bot in self.bots:
            assert isinstance(bot.life, Player)
            bot.life.log = course
        names = list(self.ships)
        self.teams = dict(zip(names, course.game.team.tolist(), strict=True))
        self.course = course
        course.guests = self.guests = ExternalShips(
            course.game, lambda name: self.teams.get(name, NO_TEAM)
        )

    async def _until_ready(self, tell: Callable[[str], None]) -> None:
        loop = asyncio.get_running_loop()
        patience, told = loop.time() + READY_WITHIN_S, loop.time()
        while (ready := sum(bot.member.node.ready for bot in self.bots)) < len(self.bots):
            if loop.time() > patience:
                tell(f"only {ready} of {len(self.bots)} peers are ready; the world begins even so")
                return
            if loop.time() - told > 2.0:
                told = loop.time()
                tell(f"{ready} of {len(self.bots)} peers are ready")
            await asyncio.sleep(LOOK_S)

    # Living.

    async def play(self, seconds: float | None = None) -> None:
        """Every life at the pace of the clock, for so long or until this is cancelled."""
        # At a whole second: positions are sampled there, whoever does it.
        self.begins = (self.host.now // SECOND + 1) * SECOND
        ends = None if seconds is None else self.begins + round(seconds * SECOND)
        chores = asyncio.create_task(self._chores())
        try:
            await self._play(ends)
        finally:
            chores.cancel()
            with suppress(asyncio.CancelledError):
                await chores

    async def _play(self, ends: Time | None) -> None:
        due: list[tuple[Time, bool, int, Command]] = []

        def line_up(number: int) -> None:
            scheduled = next(self.bots[number].commands, None)
            if scheduled is not None:
                t, command = scheduled
                heappush(due, (self.begins + t, isinstance(command, Publish), number, command))

        for number in range(len(self.bots)):
            line_up(number)
        while due:
            if ends is not None and due[0][0] >= ends:
                await asyncio.sleep((ends - self.host.now) / SECOND)
                return
            await asyncio.sleep(max(0, due[0][0] - self.host.now) / SECOND)
            # Whoever is late lets others speak in between.
            begun = now = self.host.now
            while due and due[0][0] <= now < begun + SLICE:
                t, _, number, command = heappop(due)
                self._late = max(self._late, now - t)
                if now - t < WORTHLESS or not _only_says_where(command):
                    self._obey(self.bots[number], command)
                line_up(number)
                now = self.host.now

    def _obey(self, bot: Bot, command: Command) -> None:
        name = bot.member.node.id
        if name not in self.host.nodes:
            return  # it has failed, and the log has said so
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

    def _channel(self, said: str) -> str:
        """A ship is called by the name of its peer, a guest by its own."""
        if said and said not in self._channels and self.guests is not None:
            for name, slot in self.guests.slots.items():
                if said == channel(slot):
                    return channel(name)
        return self._channels.get(said, said)

    # Hearing.

    def _deliver(self, node: NodeId, publication: Publication, to: Any) -> None:
        pilot = self.pilots.get(node)
        if pilot is not None:
            pilot.deliver(node, publication, to)
            return
        self.deliveries += 1
        ship = self.ships.get(node)
        if self.guests is None or self.course is None or ship is None:
            return
        if publication.node in self.ships:
            return  # a bot of ours: the game knows
        if publication.channel == channel(node):
            damage = publication.attributes.get("damage")
            if isinstance(damage, int | float):
                apply_damage(self.course.game, ship, damage)
        elif publication.attributes.get("exploded"):
            self.guests.lose(publication.node)
        else:
            with suppress(ValueError):
                self.guests.see(publication.node, unpack(publication.payload))

    # Persons.

    async def admit(self, pilot: ShipControl, team: int) -> LivePeer:
        """A peer of its own for a person of this process; it counts for bots as any guest does."""
        first = self.bots[0].member
        options = replace(
            self.options, join=first.address, port=0, serve=False, key=None, overlay=""
        )
        member = await self._start(options)
        self.pilots[member.node.id] = pilot
        self.visitors[member.node.id] = member
        self.teams[member.node.id] = team
        return member

    def dismiss(self, member: LivePeer) -> None:
        name = member.node.id
        self.pilots.pop(name, None)
        self.visitors.pop(name, None)
        self.teams.pop(name, None)
        if self.guests is not None:
            self.guests.lose(name)
        if name in self.host.nodes:
            self.host.obey(name, Leave())

    # Chores.

    async def _chores(self) -> None:
        """At every whole second: sample, introduce, and now and then write."""
        second = self.begins
        while True:
            await asyncio.sleep(max(0, second - self.host.now) / SECOND)
            self._sample(second)
            for member in [bot.member for bot in self.bots] + list(self.visitors.values()):
                member.introduce()
            if self.guests is not None:
                self.guests.clean()
            if second // SECOND % round(FLUSH_EVERY_S) == 0:
                self.home.recorder.flush()
            second = max(second + SECOND, self.host.now // SECOND * SECOND)

    def _sample(self, t: Time) -> None:
        """Where everybody truly is, and where others are believed to be."""
        recorder = self.home.recorder
        for bot in self.bots:
            node = bot.member.node
            if node.id in self.host.nodes:
                recorder.position(t, node.id, *bot.life.position(t - self.begins))
                for other, place in node.known(t):
                    recorder.view(t, node.id, other, *place)
        for name, pilot in self.pilots.items():
            where = pilot.position(t)
            if where is not None:
                recorder.position(t, name, *where)

    def tally(self) -> BotCounts:
        now = self.host.now
        nodes = [bot.member.node for bot in self.bots]
        known = sum(len(list(node.known(now))) for node in nodes) / len(nodes)
        late, self._late = self._late / 1000, 0
        return BotCounts(
            max(0, now - self.begins) / SECOND, len(self.host.nodes), self.publications,
            self.deliveries, known, open_files(), late,
        )  # fmt: skip

    async def stop(self) -> None:
        """One after the other, so that there is somebody left to whom each can say goodbye."""
        for bot in self.bots:
            if bot.member.node.id in self.host.nodes:
                self.host.obey(bot.member.node.id, Leave())
                await asyncio.sleep(GOODBYE_S / len(self.bots))
        await self.home.stop()
        if self.recording is not None:
            self.recording.close(self.home.summary())


def _only_says_where(command: Command) -> bool:
    """Another one of these follows soon."""
    return isinstance(command, Publish) and not command.attributes


def _first_interests(life: Life) -> Iterator[Subscribe]:
    """What an entity wants from the beginning, standing still until the world begins."""
    for t, command in life.commands():
        if t > 0 or not isinstance(command, Subscribe):
            return
        region = command.region
        if isinstance(region, Moving | Path):
            command = replace(command, region=Moving(region.at(region.since)))
        yield command


def run_bots(
    fleet: PeerBots,
    seconds: float | None,
    remark: Callable[[str], None],
    ready: Callable[[str], None],
    tell: Callable[[BotCounts], None],
) -> None:
    """Until its time is over, or SIGINT or SIGTERM. `ready` is told where to join, `tell` how it
    goes, and `remark` how far the beginning is."""

    async def main() -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, task.cancel)
        try:
            ready(written(*await fleet.gather(remark)))
            telling = asyncio.create_task(_tell_regularly(fleet, tell))
            await fleet.play(seconds)
            telling.cancel()
            tell(fleet.tally())
        except asyncio.CancelledError:
            remark("the bots say goodbye")
        finally:
            await fleet.stop()

    run(main())


async def _tell_regularly(fleet: PeerBots, tell: Callable[[BotCounts], None]) -> None:
    while True:
        await asyncio.sleep(TELL_EVERY_S)
        tell(fleet.tally())
