"""Message hops per second of CPU: Nearcast's simulator against SimPy.

The same tokens walk the same rings: n nodes, a token at every node, each hop takes 50 ms of
simulated time and hands the token to the next node. In SimPy a node is a process that takes from
its Store, waits for the hop and puts into its neighbour's Store, recording nothing. In Nearcast a
node is a state machine; every message is encoded for its true size and recorded in a trace kept
in memory. `one by one` uses the plain doors; `fan-out` sends each message to 20 nodes through
send_many, in SimPy by a process per message, as its manual does for latency on a cable.

Not measured: what protocols do inside, and the making of nodes. SimPy runs with Python's usual
garbage collection, which looks at all its processes again and again; Nearcast makes it rare.

Run: python benchmarks/simulator.py
"""

from collections.abc import Callable, Generator
from random import Random
from time import process_time
from typing import Any

import simpy
from figures import draw_bars

from nearcast.node import Message, Node
from nearcast.sim.network import ConstantDelay
from nearcast.sim.simulation import Simulation
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from nearcast.wire import Codec

HOP_S = 0.05


class Token(Message, frozen=True, tag=1):
    number: int


class Ring(Node):
    """Hands a token from its predecessor on to its followers, and keeps what others send it."""

    def __init__(self, node_id: int, count: int, width: int) -> None:
        super().__init__(node_id, Random(0))
        self.before = (node_id - 1) % count
        self.followers = [(node_id + 1 + k) % count for k in range(width)]

    def on_start(self) -> None:
        self.on_message(self.before, Token(0))

    def on_message(self, sender: int, message: Message) -> None:
        if sender != self.before:
            return
        if len(self.followers) == 1:
            self.out.send(self.followers[0], message)
        else:
            self.out.send_many(self.followers, message)


def nearcast_hops(count: int, width: int, seconds: float) -> tuple[int, float]:
    recorder = Recorder(MemoryTrace())
    simulation = Simulation(ConstantDelay(round(HOP_S * 1e6)), Codec(Token), recorder)
    for node_id in range(count):
        simulation.start(Ring(node_id, count, width))
    begin = process_time()
    simulation.run(round(seconds * 1e6))
    recorder.close()
    return simulation.messages, process_time() - begin


def simpy_hops(count: int, width: int, seconds: float) -> tuple[int, float]:
    environment = simpy.Environment()
    stores = [simpy.Store(environment) for _ in range(count)]
    hops = 0

    def carry(store: simpy.Store, token: Any) -> Generator[Any, Any, None]:
        yield environment.timeout(HOP_S)
        store.put(token)

    def node(me: int) -> Generator[Any, Any, None]:
        nonlocal hops
        while True:
            sender, token = yield stores[me].get()
            if (sender + 1) % count != me:
                continue
            hops += width
            if width == 1:  # the node itself may wait for the hop: the cheapest SimPy can do
                yield environment.timeout(HOP_S)
                stores[(me + 1) % count].put((me, token))
            else:
                for k in range(width):
                    environment.process(carry(stores[(me + 1 + k) % count], (me, token)))

    for me in range(count):
        environment.process(node(me))
        stores[me].put(((me - 1) % count, 0))
    begin = process_time()
    environment.run(until=seconds)
    return hops, process_time() - begin


def rate(measure: Callable[[int, int, float], tuple[int, float]], *args: Any) -> tuple[float, int]:
    best, hops = 0.0, 0
    for _ in range(3):
        hops, cpu = measure(*args)
        best = max(best, hops / cpu)
    return best, hops


def main() -> None:
    rates: dict[str, float] = {}
    print(f"{'':24}{'hops':>10}{'SimPy /s':>12}{'Nearcast /s':>14}{'ratio':>8}")
    for name, count, width, seconds in (
        ("one by one, 1,000", 1_000, 1, 10.0),
        ("one by one, 100,000", 100_000, 1, 0.2),
        ("fan-out 20, 1,000", 1_000, 20, 1.0),
    ):
        theirs, _ = rate(simpy_hops, count, width, seconds)
        ours, hops = rate(nearcast_hops, count, width, seconds)
        print(f"{name:24}{hops:>10,}{theirs:>12,.0f}{ours:>14,.0f}{ours / theirs:>8.1f}")
        rates |= {f"Nearcast, {name}": ours, f"SimPy, {name}": theirs}
    draw_bars("simulator-hops", "Messages simulated per second of CPU", rates)


if __name__ == "__main__":
    main()
