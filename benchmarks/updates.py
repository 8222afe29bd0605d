"""What fewer bytes for each update are worth: delta encoding of single updates, and compression of
those that relays aggregate.

delta        a ship's update of Planet π4 that is sent as what differs from its update before (or
             the second before), as bytes or as the game's own numbers; as part of what a signed
             update takes on the wire, where two peers send each other ten a second over QUIC:
             headers, acknowledgements and credit counted, on a played network
age          a model: ten updates a second, lossy, 1 % lost, 50 ms; how old the newest update is
             that can be read, if each says all, and if nine of ten differ from the tenth
compression  updates of relays, as `compress=on` deflates them: with the dictionary that all peers
             have and without; those of several sources apart; signed

Updates are those of simulated runs. Their names, numbers and times are made as long as those of
live peers, which are drawn at random; payloads of the virtual reality and signatures are random
bytes. It does not measure what a shorter update is worth to a full line, nor what a protocol
costs that tells what was received. CPU time is measured by itself; a busy machine makes it longer.

Run: python benchmarks/updates.py [SECONDS]
"""

import asyncio
import sys
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from statistics import mean
from time import process_time
from typing import Any

import numpy as np
from msgspec.structs import replace

from nearcast.model.publication import Publication
from nearcast.model.subscription import NodeId
from nearcast.node import Message, Priority
from nearcast.peer.signing import SIGNATURE_BYTES
from nearcast.protocols.bubblestorm.messages import CODEC as BUBBLESTORM
from nearcast.protocols.bubblestorm.messages import DirectPublication
from nearcast.protocols.relays.compression import RAW, deflate, expand
from nearcast.protocols.relays.messages import CODEC as RELAYS
from nearcast.protocols.relays.messages import PeerStatus, Update
from nearcast.scenario import Scenario
from nearcast.sim.world import SimulatedWorld
from nearcast.space.motion import SECOND
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from nearcast.workloads.planetpi4_reckoning import UPDATE, unpack
from nearcast_papers.relays.scenarios import QUICK, game_scenario, reality_scenario

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.played_quic import QuicScene
from support.played_quic import play as play_scene

SHIPS, SECONDS = 32, 20.0
HEADERS = 28  # bytes of UDP and IP around a packet
WIRE_UPDATES, GAP_S = 500, 0.067  # a round takes 100 ms on average
LIVE_SINCE = 1_700_000_000 * SECOND
TICKS = 2**32  # of relays, which count time modulo this
UNIT, RADIAN = 100, 1000  # steps of the game's own numbers: place, rotation, velocity, spin
STEPS = np.repeat([UNIT, RADIAN, UNIT, RADIAN], 3)
LOSS, DELAY_MS, KEY_EVERY, MODELLED = 0.01, 50, 10, 200_000
RANDOM = Random(1)


def messages_of(scenario: Scenario, kind: type[Message]) -> list[Any]:
    """All messages of a kind that are sent in a simulated run, once the workload plays."""
    world = SimulatedWorld(scenario, lambda _: Recorder(MemoryTrace(), "none"))
    encode, found = world.simulation._encode, []

    def note(message: Message) -> bytes:
        if isinstance(message, kind) and world.begins:
            found.append(message)
        return encode(message)

    world.simulation._encode = note
    world.run()
    return found


# As long as live.


@cache
def live_name(node: NodeId) -> NodeId:
    return Random(node).getrandbits(40)


@cache
def live_block(node: NodeId) -> int:
    return Random(-1 - node).getrandbits(37) << 16


def as_live(made: Publication, *, random_payload: bool, signed: bool) -> Publication:
    payload = RANDOM.randbytes(len(made.payload)) if random_payload else made.payload
    return replace(
        made, id=live_block(made.node) + made.id % 2**16, node=live_name(made.node),
        t=LIVE_SINCE + made.t,
        payload=(RANDOM.randbytes(SIGNATURE_BYTES) if signed else b"") + payload,
    )  # fmt: skip


def status_as_live(status: PeerStatus) -> PeerStatus:
    def ticks(of: int) -> int:
        return (of + LIVE_SINCE // 100) % TICKS

    return replace(
        status, sent=ticks(status.sent), echo=ticks(status.echo) if status.held else 0,
        reliances=tuple(
            replace(
                one, source=live_name(one.source),
                destinations=tuple(map(live_name, one.destinations)),
            )
            for one in status.reliances
        ),
        latencies=tuple(
            replace(one, source=live_name(one.source), destination=live_name(one.destination))
            for one in status.latencies
        ),
        lost=tuple((live_name(one), live_name(other)) for one, other in status.lost),
    )  # fmt: skip


def update_as_live(update: Update, **chosen: bool) -> bytes:
    pieces = tuple(
        replace(one, source=live_name(one.source), publication=as_live(one.publication, **chosen))
        for one in update.pieces
    )
    status = None if update.status is None else status_as_live(update.status)
    return RELAYS.encode(Update(pieces, status))


# Delta encoding.


def flights(seconds: float) -> list[list[Publication]]:
    """The position updates of each ship, in order."""
    run = Scenario(protocol="bubblestorm", workload="planetpi4", nodes=SHIPS, seconds=seconds)
    made: dict[tuple[NodeId, int], Publication] = {}
    for message in messages_of(run, DirectPublication):
        one = message.publication
        if not one.channel and not one.attributes and len(one.payload) == UPDATE.size:
            made[one.node, one.id] = as_live(one, random_payload=False, signed=False)
    ships = defaultdict(list)
    for one in made.values():
        ships[one.node].append(one)
    return [sorted(ship, key=lambda one: one.t) for ship in ships.values()]


def encoded(one: Publication) -> bytes:
    return BUBBLESTORM.encode(DirectPublication(one, True))


def deflated(data: bytes, dictionary: bytes) -> int:
    deflater = zlib.compressobj(6, zlib.DEFLATED, RAW, zdict=dictionary)
    return len(deflater.compress(data) + deflater.flush())


def differing(one: Publication, before: Publication) -> int:
    """A bit for each byte, and the bytes that differ."""
    data, old = encoded(one), encoded(before)
    if len(data) != len(old):
        return len(data)
    return (len(data) + 7) // 8 + sum(a != b for a, b in zip(data, old, strict=True))


def deflated_after(one: Publication, before: Publication) -> int:
    return deflated(encoded(one), encoded(before))


def own_numbers(one: Publication, before: Publication) -> int:
    """Two bytes for the kind of message and which update it differs from, and differences of
    number, time and the twelve numbers in steps, each in groups of seven bits."""

    def steps(of: Publication) -> list[int]:
        values = np.concatenate(unpack(of.payload)).astype(float)
        return [int(step) for step in np.rint(values * STEPS)]

    now, then = [one.id, one.t, *steps(one)], [before.id, before.t, *steps(before)]
    return 2 + sum(_varint(a - b) for a, b in zip(now, then, strict=True))


def _varint(value: int) -> int:
    """Bytes of a whole number, its sign in the lowest bit."""
    return max(1, -(-(2 * abs(value) + (value < 0)).bit_length() // 7))


def wire_bytes(frame_bytes: int, *, lossy: bool) -> float:
    """Of an update that two peers send each other, with all packets that it causes both ways:
    as a datagram if it is lossy, else on a stream of its own."""
    total = 0

    async def scene(scene: QuicScene) -> None:
        def count(_source: object, packet: bytes) -> bool:
            nonlocal total
            total += len(packet) + HEADERS
            return False

        await asyncio.sleep(2.0)
        scene.network.drops = count
        for _ in range(WIRE_UPDATES):
            for one, other in ((scene.ann, scene.ben), (scene.ben, scene.ann)):
                frame = RANDOM.randbytes(frame_bytes)
                one.send(other.name, frame, lossy, Priority.PUBLICATION, ordered=False)
                await asyncio.sleep(GAP_S * RANDOM.random())
            await asyncio.sleep(GAP_S * RANDOM.random())

    play_scene(scene)
    return total / (2 * WIRE_UPDATES)


def delta(seconds: float) -> None:
    ships = flights(seconds)
    pairs = [(one, before) for ship in ships for before, one in pairwise(ship[1:])]
    second = [(one, before) for ship in ships for before, one in zip(ship, ship[2:], strict=False)]
    whole = mean(len(encoded(one)) for one, _ in pairs)
    signed = round(whole) + SIGNATURE_BYTES
    wires = [wire_bytes(signed, lossy=lossy) for lossy in (False, True)]
    print(
        f"{len(pairs):,} updates of {len(ships)} ships: {whole:.0f} bytes, signed {signed};"
        f" on the wire {wires[0]:.0f} in a stream of its own, {wires[1]:.0f} as a datagram"
    )
    print(
        f"{'instead of all bytes':36}{'bytes':>8}{'second before':>16}"
        f"{'of stream':>12}{'datagram':>12}"
    )
    ways: dict[str, Callable[[Publication, Publication], int]] = {
        "bytes that differ": differing, "DEFLATE": deflated_after,
        "the game's own numbers": own_numbers,
    }  # fmt: skip
    for name, size in ways.items():
        near, far = (mean(size(*pair) for pair in some) for some in (pairs, second))
        parts = "".join(f"{(near - whole) / wire:>12.0%}" for wire in wires)
        print(f"{name:36}{near:>8.0f}{far:>16.0f}{parts}")


def age() -> None:
    rng = np.random.default_rng(1)
    arrived = rng.random(MODELLED) >= LOSS
    key = np.arange(MODELLED) // KEY_EVERY * KEY_EVERY
    print(f"{'model of 1 % lost':36}{'missed':>8}{'p99 ms':>16}{'p99.9 ms':>14}")
    for name, readable in (
        ("each update says all", arrived),
        (f"nine of {KEY_EVERY} differ from the tenth", arrived & arrived[key]),
    ):
        made = np.flatnonzero(readable) * 100  # ms
        until = np.diff(made)  # before the next one arrives
        ages = np.concatenate([DELAY_MS + np.arange(0, gap, 5) for gap in until])
        p99, worst = np.percentile(ages, [99, 99.9])
        print(f"{name:36}{1 - readable.mean():>8.1%}{p99:>16.0f}{worst:>14.0f}")


# Compression.


def saved(plain: Iterable[int], short: Iterable[int]) -> str:
    """The part of all bytes; in brackets with the headers of a packet."""
    before, after = list(plain), list(short)
    headers = HEADERS * len(before)
    part, with_headers = (1 - (sum(after) + more) / (sum(before) + more) for more in (0, headers))
    return f"{mean(before):>9.1f}{mean(after):>12.1f}{part:>9.1%} ({with_headers:.1%})"


def compression(name: str, updates: Sequence[Update], *, random_payload: bool) -> None:
    several = [len({piece.source for piece in one.pieces}) > 1 for one in updates]
    signs = (False, True)
    for signed in signs:
        plain = [
            update_as_live(one, random_payload=random_payload, signed=signed) for one in updates
        ]
        began = process_time()
        packets = [deflate(one) for one in plain]
        took = process_time() - began
        before = [len(one) for one in plain]
        after = [min(old, RELAYS.size(one)) for one, old in zip(packets, before, strict=True)]
        label = f"{name}{', signed' if signed else ''}"
        print(f"{label:36}{saved(before, after)}")
        if signed:
            continue
        some = [
            pair
            for pair, many in zip(zip(before, after, strict=True), several, strict=True)
            if many
        ]
        print(f"{f'  of several sources: {len(some):,}':36}{saved(*zip(*some, strict=True))}")
        bare = [min(len(one), deflated(one, b"") + 8) for one in plain]
        print(f"{'  without the dictionary':36}{saved(before, bare)}")
        expand.cache_clear()
        began = process_time()
        for packet in packets:
            expand(packet.deflated)
        undone = (process_time() - began) / len(packets)
        print(f"  {1e6 * took / len(packets):.0f} µs CPU each; read again in {1e6 * undone:.0f} µs")


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else SECONDS
    delta(seconds)
    age()
    worlds = {
        "virtual reality": (reality_scenario(QUICK, 1), True),
        "Planet π4": (game_scenario(QUICK, 1, "on"), False),
    }
    for name, (scenario, random_payload) in worlds.items():
        updates = messages_of(replace(scenario, seconds=min(seconds, scenario.seconds)), Update)
        print(f"{name}: {len(updates):,} updates")
        print(f"{'':36}{'plain':>9}{'compressed':>12}{'saved (with headers)':>22}")
        compression(name, updates, random_payload=random_payload)


if __name__ == "__main__":
    main()
