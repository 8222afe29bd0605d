"""Small examples for [Lehn]: its figure 1, and random operations on flows."""

from functools import cache
from random import Random

import numpy as np
from msgspec import Struct

from nearcast.protocols.relays import kernels, rounds
from nearcast.protocols.relays.kernels import Flows
from nearcast.scenario import stream

A, B, C = range(3)
PAYLOAD, HEADER = 100.0, 10.0  # told apart in a load
WORLDS, OPERATIONS, NODES = 20, 60, 9


class ClusterTraffic(Struct, frozen=True):
    """Bytes per second that C and B send, before and after C has its messages passed on."""

    c_before: float
    c_after: float
    b_before: float
    b_after: float


@cache
def figure_1() -> ClusterTraffic:
    """A and B want what C says, and A what B says; C redirects its flow to A via B."""
    interest = np.zeros((3, 3))
    interest[A, C] = interest[B, C] = interest[A, B] = 1.0
    delay = np.full((3, 3), 0.01)
    f = rounds.flows(interest, delay, np.full(3, 1e3), payload=PAYLOAD, header=HEADER)
    before = f.load.copy()
    kernels.redirect(f, C, 0, int(f.place[A, C]), int(f.place[B, C]))
    assert rounds.path(f, C, A) == [C, B, A]
    return ClusterTraffic(float(before[C]), float(f.load[C]), float(before[B]), float(f.load[B]))


class OperationCounts(Struct, frozen=True):
    """How many operations were tried, and how many did something wrong."""

    redirected: int
    shortened: int
    wrong: int  # a path became longer or shorter by anything else than one


@cache
def try_random_operations() -> OperationCounts:
    """After every operation all paths are walked; one that ends or loops is an AssertionError."""
    redirected = shortened = wrong = 0
    for number in range(WORLDS):
        rng = stream(number, "relays", "operations")
        f = _random_flows(rng)
        for _ in range(OPERATIONS):
            kind, change = _random_operation(f, rng)
            redirected, shortened = redirected + (kind == "REDIR"), shortened + (kind == "SHORT")
            wrong += change != {"REDIR": 1, "SHORT": -1, "none": 0}[kind]
            _check_paths(f)
    return OperationCounts(redirected, shortened, wrong)


def _random_flows(rng: Random) -> Flows:
    interest = np.array([[rng.random() for _ in range(NODES)] for _ in range(NODES)])
    delay = np.array([[rng.uniform(0.001, 0.2) for _ in range(NODES)] for _ in range(NODES)])
    capacity = np.array([rng.uniform(1e3, 1e4) for _ in range(NODES)])
    return rounds.flows(interest, delay, capacity, threshold=0.4)


def _random_operation(f: Flows, rng: Random) -> tuple[str, int]:
    """Any option of any node, whatever it gains; what it did, and by how much the path grew."""
    source = rng.randrange(NODES)
    members = f.member[f.first[source] + 1 : f.first[source] + f.size[source]]
    if not len(members):
        return "none", 0
    subscriber = int(rng.choice(members))
    way = rounds.path(f, source, subscriber)
    place = {node: int(f.place[node, source]) for node in range(NODES)}
    kind = "none"
    if len(way) > 2 and rng.random() < 0.4:
        kernels.shorten(f, source, place[rng.choice(way[1:-1])], place[subscriber])
        kind = "SHORT"
    else:
        here = rng.choice(way[:-1])
        via = [u for u in range(NODES) if place[u] > 0 and u not in way and f.near[here, u]]
        if via:
            kernels.redirect(f, source, place[here], place[subscriber], place[rng.choice(via)])
            kind = "REDIR"
    return kind, len(rounds.path(f, source, subscriber)) - len(way)


def _check_paths(f: Flows) -> None:
    for source in range(NODES):
        for member in f.member[f.first[source] + 1 : f.first[source] + f.size[source]]:
            rounds.path(f, source, int(member))
