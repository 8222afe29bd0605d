"""What it costs that publications are signed by their authors and checked by whoever hears them.

alone       CPU time to sign and to check one update of the game Planet π4, and its bytes
simulated   32 ships with BubbleStorm: bytes per peer and second, as they are and with signatures
live        a fleet of peers that play the game over TLS, with signatures and without, in turns:
            bytes and CPU time per peer and second, of one process that is all of them

Each peer of the fleet checks for itself, though they share a process. Same seed, same settings.

Run: python benchmarks/signing.py [ROUNDS]
"""

import sys
from collections.abc import Callable, Sequence
from statistics import median
from time import process_time

from nearcast.demo.peer_bots import BotSettings, PeerBots
from nearcast.model.commands import Publish
from nearcast.model.subscription import NodeId
from nearcast.node import Message
from nearcast.peer.host import Host, run
from nearcast.peer.peer import PeerOptions
from nearcast.peer.signing import SIGNATURE_BYTES, Signing
from nearcast.protocols.bubblestorm.messages import CODEC, DirectPublication
from nearcast.scenario import Scenario
from nearcast.sim.world import SimulatedWorld
from nearcast.space.shapes import point
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from nearcast.transport.identity import new_identity
from nearcast.workloads.planetpi4_reckoning import UPDATE

NOW = 1_700_000_000_000_000
MANY = 500
BOTS, SECONDS = 12, 8.0
SIMULATED, SIMULATED_S = 32, 30.0
# A small network is measured in seconds, and a small world is full of ships.
SETTINGS = {"gossip_s": 1.0, "lambda": 2.0, "size": 700.0, "asteroids": 60}


def microseconds(act: Callable[[int], object]) -> float:
    begin = process_time()
    for number in range(MANY):
        act(number)
    return (process_time() - begin) / MANY * 1e6


def alone() -> None:
    author, reader = new_identity(), new_identity()
    signs, hears = Signing(author, lambda _: author.key), Signing(reader, lambda _: author.key)
    updates = [Publish(n, point(1.5, 2.5, 3.5), payload=bytes(UPDATE.size)) for n in range(MANY)]
    plain = [update.stamped(author.name, NOW) for update in updates]
    signed = [signs.signed(update, NOW).stamped(author.name, NOW) for update in updates]
    fresh = Signing(author, lambda _: author.key)
    figures = {
        "sign": microseconds(lambda n: fresh.signed(updates[n], NOW)),
        "check": microseconds(lambda n: hears.check(signed[n], author.name, NOW)),
        "check a copy": microseconds(lambda n: hears.check(signed[n], author.name, NOW)),
        "deliver": microseconds(lambda n: hears.opened(signed[n], (1,))),
    }
    for what, figure in figures.items():
        print(f"{what:20}{figure:>10.1f} µs CPU")
    before, after = (CODEC.size(DirectPublication(one, True)) for one in (plain[0], signed[0]))
    print(f"{'an update':20}{before:>10} bytes, signed {after}: {after / before:.2f} times")


def simulated() -> None:
    """A signature is bytes of the payload and changes nothing else."""
    memory = MemoryTrace()
    scenario = Scenario(
        protocol="bubblestorm", workload="planetpi4", nodes=SIMULATED, seconds=SIMULATED_S
    )
    world = SimulatedWorld(scenario, lambda _: Recorder(memory))
    world.run()
    world.recorder.close()
    messages = memory.table("messages").to_pylist()
    played = [row for row in messages if row["t"] >= world.begins]
    total = sum(row["bytes"] for row in played)
    more = SIGNATURE_BYTES * sum(row["publication"] is not None for row in played)
    per = SIMULATED * SIMULATED_S
    print(f"{'simulated':20}{total / per:>10.0f} bytes per peer and second,", end=" ")
    print(f"signed {(total + more) / per:.0f}: {(total + more) / total:.2f} times")


async def live(unsigned: bool) -> tuple[float, float, float]:
    """Bytes, CPU milliseconds and deliveries per peer and second of play."""
    fleet = PeerBots(
        PeerOptions(overlay="bubblestorm", unsigned=unsigned, settings=SETTINGS),
        BotSettings(bots=BOTS),
    )
    await fleet.start_peers(lambda _: None)
    sent, send = 0, Host._send

    def counted(host: Host, source: NodeId, to: Sequence[NodeId], message: Message) -> None:
        nonlocal sent
        sent += len(CODEC.encode(message)) * len(to)
        send(host, source, to, message)

    Host._send = counted
    begin = process_time()
    await fleet.play(SECONDS)
    took, per = process_time() - begin, BOTS * SECONDS
    Host._send = send
    figures = sent / per, took * 1000 / per, fleet.deliveries / per
    await fleet.stop()
    return figures


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    alone()
    simulated()
    figures: dict[bool, list[tuple[float, float, float]]] = {True: [], False: []}
    for _ in range(rounds):
        for unsigned in (True, False):
            figures[unsigned].append(run(live(unsigned)))
    print(f"{'live, per peer and s':20}{'unsigned':>10}{'signed':>10}{'ratio':>8}")
    for column, what in enumerate(("bytes", "CPU ms", "deliveries")):
        plain, signed = (median(row[column] for row in figures[u]) for u in (True, False))
        print(f"{what:20}{plain:>10.1f}{signed:>10.1f}{signed / plain:>8.2f}")


if __name__ == "__main__":
    main()
