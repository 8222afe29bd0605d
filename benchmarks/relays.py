"""How long one optimisation step of the relays takes, and how long rounds of a thousand nodes do.

A scene is the virtual reality of [Lehn], on uplinks that are about full if all send directly.
CPU time is measured. Three things are, each with its opponents in the same run:

* one step of one node in the round model, which weighs every option with compiled rules. The naive
  opponent weighs the same options by the same rules in plain Python, counting utilisations anew
  from a list of all paths that touch the two uplinks; both must find the same gain;
* one step of the message protocol, from what a peer knows itself;
* rounds of 1,000 nodes: with the density of the paper's 200, and in the paper's own square, where
  each has five times as many neighbours. The opponent is direct sending, which costs no time at all
  and leaves more uplinks overloaded.

Run: python benchmarks/relays.py [--neighbours 200] [--nodes 1000] [--rounds 20]
"""

import argparse
from itertools import pairwise
from math import exp, log
from random import Random
from time import process_time

import numpy as np

from nearcast.model.publication import Publication
from nearcast.node import Outbox
from nearcast.protocols.relays import bloom, cost_model, kernels, rounds
from nearcast.protocols.relays.cost_model import Weights
from nearcast.protocols.relays.kernels import Flows
from nearcast.protocols.relays.messages import PeerStatus
from nearcast.protocols.relays.parameters import Parameters
from nearcast.protocols.relays.relays import OptimiseFlows, Relays
from nearcast.sim.network import MILLISECOND, Embedding
from nearcast.space.motion import SECOND
from nearcast.space.shapes import point

RADIUS = 0.245
PAPERS = 200  # nodes in the paper's densest square
THRESHOLD = 1e-3
WEIGHTS = Weights()


def scene(nodes: int, side: float, room: float, seed: int = 1) -> Flows:
    """`room`: how many times the paper's uplinks of 100 to 500 kbit/s."""
    rng = Random(seed)
    places = np.array([(rng.uniform(0, side), rng.uniform(0, side)) for _ in range(nodes)])
    away = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1))
    interest = np.exp(log(cost_model.AT_THE_EDGE) * (away / RADIUS) ** 2)
    network = Embedding(seed)
    delay = np.array(
        [[network.route(0, a, b, 0)[0] for b in range(nodes)] for a in range(nodes)]
    ) / (1000 * MILLISECOND)
    low, high = log(100_000 / 8), log(500_000 / 8)
    capacity = np.array([exp(rng.uniform(low, high)) * room for _ in range(nodes)])
    return rounds.flows(interest, delay, capacity)


def naive_step(f: Flows, node: int) -> tuple[float, int]:
    """The best gain and the options weighed, without columns."""
    groups = [f.member[f.first[s] : f.first[s] + f.size[s]].tolist() for s in range(len(f.size))]
    paths = {(s, d): rounds.path(f, s, d) for s, group in enumerate(groups) for d in group[1:]}
    touching: dict[int, dict[tuple[int, int], list[int]]] = {}
    for flow, path in paths.items():
        for v in path[:-1]:
            touching.setdefault(v, {})[flow] = path

    def utilisation(v: int, flow: tuple[int, int], path: list[int]) -> float:
        changed = {**touching.get(v, {}), flow: path}
        streams = {(b, s) for (s, _), way in changed.items() for a, b in pairwise(way) if a == v}
        load = sum(f.payload[s] for _, s in streams) + f.header * len({b for b, _ in streams})
        return float(load / f.capacity[v])

    def cost(s: int, u: int, flow: tuple[int, int], path: list[int]) -> float:
        interest = f.interest[f.first[flow[0]] + f.place[flow[1], flow[0]]]
        latency = sum(f.delay[b, a] for a, b in pairwise(path))
        late = cost_model.latency_cost(latency, cost_model.bounds_at(interest, WEIGHTS), WEIGHTS)
        ends = utilisation(s, flow, path), utilisation(u, flow, path)
        return cost_model.bandwidth_cost(WEIGHTS, *ends) + late

    best, weighed = -np.inf, 0
    for flow, path in touching.get(node, {}).items():
        at = path.index(node)
        options = [(path[:at] + path[at + 1 :], path[at - 1], node)] if at else []
        for u in groups[flow[0]][1:]:
            if f.near[node, u] and u not in path:
                options.append(([*path[: at + 1], u, *path[at + 1 :]], node, u))
        for after, s, u in options:
            best = max(best, cost(s, u, flow, path) - cost(s, u, flow, after))
            weighed += 1
    return best, weighed


def measure_step(neighbours: int) -> None:
    """A node with as many neighbours as asked for: the one that comes nearest in a full square."""
    f = scene(max(4 * neighbours, 60), 0.65, neighbours / 22)
    for _ in rounds.optimise(f, WEIGHTS, THRESHOLD, 2, Random(1)):
        pass
    node = int(np.argmin(np.abs(f.near.sum(axis=1) - neighbours)))
    kernels.best_option(f, WEIGHTS, node)
    times = []
    for _ in range(20):
        began = process_time()
        *_, weighed = kernels.best_option(f, WEIGHTS, node)
        times.append(process_time() - began)
    print(
        f"one step, {f.near[node].sum()} neighbours, {weighed:,} options: "
        f"{1000 * min(times):.2f} ms (median {1000 * sorted(times)[10]:.2f} ms)"
    )
    light = scene(max(2 * neighbours // 5, 30), 0.65, neighbours / 110)
    small = int(np.argmax(light.near.sum(axis=1)))
    began = process_time()
    found, naive = naive_step(light, small)
    took = process_time() - began
    *_, gain, same = kernels.best_option(light, WEIGHTS, small)
    assert same == naive
    assert abs(found - gain) < 1e-6 * max(1.0, abs(gain))
    print(
        f"  naively, {light.near[small].sum()} neighbours, {naive:,} options: "
        f"{1000 * took:,.0f} ms; as many as above would take {took * weighed / naive:,.1f} s"
    )


def measure_protocol_step(neighbours: int) -> None:
    """A peer that is overloaded by as many direct flows, and has heard from all of them."""
    now = 0
    peers = range(1, neighbours + 1)
    relays = Relays(
        0, Outbox(), Random(1), lambda: now, Parameters(), 40_000.0, lambda node: node <= neighbours
    )
    for peer in peers:
        relays.neighbours.receive(peer, now, PeerStatus(60_000, peer % 900, 60, 1, 0, 0))
        relays.neighbours.known[peer].leg = 20_000 + 100 * peer
        relays.neighbours.learn_audience(peer, bloom.filter_of([0, *peers[peer % 3 :: 3]]))
    times = []
    for step in range(12):
        now = step * SECOND // 2
        for part in range(4):
            publication = Publication(4 * step + part, 0, now, point(0, 0), payload=bytes(64))
            relays.disseminate(publication, dict.fromkeys(peers, 0.4))
        relays._measure_load()
        began = process_time()
        relays._optimise(now)
        times.append(process_time() - began)
    relays.wake(OptimiseFlows())
    times = sorted(times[2:])
    print(
        f"one step of the protocol, {neighbours} flows and neighbours: "
        f"{1000 * times[0]:.2f} ms (median {1000 * times[len(times) // 2]:.2f} ms)"
    )


def measure_rounds(nodes: int, many: int) -> None:
    for side, room in ((nodes / PAPERS) ** 0.5, 1.0), (1.0, nodes / PAPERS):
        f = scene(nodes, max(side, 1.0), max(room, 1.0))
        kernels.total_cost(f, WEIGHTS)
        began = process_time()
        played = list(rounds.optimise(f, WEIGHTS, THRESHOLD, many, Random(1)))
        took = process_time() - began
        first, last = played[0].before, played[-1]
        options = sum(r.weighed for r in played)
        print(
            f"{nodes} nodes, {many} rounds, fan-out {(f.size - 1).mean():.0f}: {took:.1f} s CPU, "
            f"{options:,} options ({1e9 * took / options:.0f} ns each)\n"
            f"  mean utilisation {first.mean():.2f} -> {last.after.mean():.2f}, overloaded "
            f"{100 * (first > 1).mean():.0f} % directly -> {100 * (last.after > 1).mean():.1f} %, "
            f"path {last.hops.mean():.2f}, stretch {last.stretch.mean():.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--neighbours", type=int, default=200)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=20)
    chosen = parser.parse_args()
    measure_step(chosen.neighbours)
    measure_protocol_step(chosen.neighbours)
    measure_rounds(chosen.nodes, chosen.rounds)


if __name__ == "__main__":
    main()
