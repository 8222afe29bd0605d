"""Fewer updates of distant ships, in each overlay that offers it: what is saved, what it costs.

32 ships play Planet π4 and see 400 units far, as in `nearcast reproduce bubblestorm:rings`, which
has one seed of BubbleStorm. Here are three of each overlay: with all updates (ten a second), and
with two and one a second from the outer thirds of the area. In turns, by overlay and seed:

updates      messages with a publication, and their bytes with 28 of UDP and IP, per peer and second
all else     bytes of other messages, with what ships ask for
error        how far a ship is from where its latest update, if it came within three seconds, lets
             it be believed by dead reckoning, once a second: near, medium, far third, and all
recall       ships in the area that the overlay knows, of all in the area

Runs are simulated: 50 ms for each message, none lost, and all that is counted is from second 5 on.
Bots see what their game says, so both runs of a seed are the same game. VON sends by x and y alone.

Run: python benchmarks/update_rates.py [SEEDS [SECONDS]]
"""

import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from math import dist
from statistics import mean
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from nearcast.model.subscription import NodeId
from nearcast.protocols import PROTOCOLS
from nearcast.protocols.offers import OverlayOffer
from nearcast.scenario import Scenario
from nearcast.sim.world import SimulatedWorld
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import Vector
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from nearcast.workloads.planetpi4_reckoning import predict
from nearcast_papers.bubblestorm.scenarios import (
    BOTS,
    OUTLOOK_RADIUS,
    OUTLOOK_SPEED,
    QUICK,
    RINGS,
    game_scenario,
)

SEEDS, SECONDS = 3, 15.0
HEADERS = 28
SETTLED: Time = 5 * SECOND
MEMORY: Time = 3 * SECOND
THIRDS = "near", "medium", "far"


def game(overlay: str, rates: str, seconds: float, seed: int) -> Scenario:
    more: dict[str, Any] = dict(PROTOCOLS[overlay].spatial or {})
    if rates:
        more["rates"] = rates
    return game_scenario(
        QUICK, overlay, seconds, seed, "all", radius=OUTLOOK_RADIUS, speed=OUTLOOK_SPEED, **more
    )


def measure(scenario: Scenario) -> dict[str, float]:
    memory = MemoryTrace()
    world = SimulatedWorld(scenario, lambda _: Recorder(memory))
    world.run()
    world.recorder.close()
    since = world.begins + SETTLED
    per = BOTS * (world.ends - since) / SECOND
    messages = settled(memory.table("messages"), since, world.ends)
    sizes = pc.add(messages["bytes"], HEADERS)
    updates = pc.is_valid(messages["publication"])
    total, of_updates = pc.sum(sizes).as_py(), pc.sum(pc.filter(sizes, updates)).as_py()
    figures = {
        "updates/s": pc.sum(updates).as_py() / per,
        "their B/s": of_updates / per,
        "all else": (total - of_updates) / per,
    }
    places = places_by_moment(settled(memory.table("positions"), since, world.ends))
    figures |= errors(memory, places)
    figures["recall %"] = 100 * recall(memory.table("views"), places)
    return figures


def settled(table: pa.Table, since: Time, until: Time) -> pa.Table:
    return table.filter((pc.field("t") >= since) & (pc.field("t") <= until))


Places = dict[Time, dict[NodeId, Vector]]


def places_by_moment(positions: pa.Table) -> Places:
    places: Places = defaultdict(dict)
    for row in positions.select(["t", "node", "x", "y", "z"]).to_pylist():
        places[row["t"]][row["node"]] = row["x"], row["y"], row["z"]
    return places


def errors(memory: MemoryTrace, places: Places) -> dict[str, float]:
    """Of what receivers believe, by thirds of the area."""
    motion = motions(memory.table("interests"))
    updates = {
        row["publication"]: (row["t"], row["node"], (row["x"], row["y"], row["z"]))
        for row in memory.table("publications").to_pylist()
        if not row["channel"] and row["attributes"] is None
    }
    arrivals = memory.table("deliveries").select(["t", "node", "publication"])
    due = iter(arrivals.sort_by("t").to_pylist())
    arrival = next(due, None)
    believed: dict[tuple[NodeId, NodeId], tuple[Time, Time, Vector, Vector]] = {}
    wrong: dict[str, list[float]] = defaultdict(list)
    for now in sorted(places):
        while arrival is not None and arrival["t"] <= now:
            update = updates.get(arrival["publication"])
            if update is not None:
                made, ship, place = update
                key = arrival["node"], ship
                if key not in believed or believed[key][0] < made:
                    believed[key] = made, arrival["t"], place, motion(ship, made)
            arrival = next(due, None)
        truth = places[now]
        for (node, ship), (made, known, place, velocity) in believed.items():
            if now - known <= MEMORY and node in truth and ship in truth and node != ship:
                away = dist(truth[node], truth[ship])
                if away <= OUTLOOK_RADIUS:
                    third = min(2, int(3 * away / OUTLOOK_RADIUS))
                    reckoned = predict(place, velocity, made, now)
                    wrong[THIRDS[third]].append(dist(reckoned, truth[ship]))
    every = [one for some in wrong.values() for one in some]
    return {**{third: mean(wrong[third]) for third in THIRDS}, "all": mean(every)}


def motions(interests: pa.Table) -> Callable[[NodeId, Time], Vector]:
    """How fast a ship flew at a moment: as its area of interest moved."""
    said: dict[NodeId, list[tuple[Time, Vector]]] = defaultdict(list)
    for row in interests.sort_by("t").to_pylist():
        if not row["channel"] and not row["ended"]:
            said[row["node"]].append((row["t"], (row["vx"], row["vy"], row["vz"])))

    def motion(ship: NodeId, t: Time) -> Vector:
        return said[ship][bisect_right(said[ship], t, key=lambda one: one[0]) - 1][1]

    return motion


def recall(views: pa.Table, places: Places) -> float:
    """Of all ships in the area, those that are known."""
    known = set(zip(*(views[name].to_pylist() for name in ("t", "node", "other")), strict=True))
    near = [
        (now, node, ship)
        for now, truth in places.items()
        for node, here in truth.items()
        for ship, there in truth.items()
        if node != ship and dist(here, there) <= OUTLOOK_RADIUS
    ]
    return sum(one in known for one in near) / len(near)


def main() -> None:
    words = sys.argv[1:]
    seeds = int(words[0]) if words else SEEDS
    seconds = float(words[1]) if len(words) > 1 else SECONDS
    overlays = [name for name, kind in PROTOCOLS.items() if OverlayOffer.RATES in kind.offers]
    header = ""
    for overlay in overlays:
        for name, rates in (("all updates", ""), ("in rings", RINGS)):
            runs = [measure(game(overlay, rates, seconds, seed)) for seed in range(1, seeds + 1)]
            if not header:
                header = f"{'mean (least to most)':26}" + "".join(f"{one:>22}" for one in runs[0])
                print(header)
            cells = []
            for column in runs[0]:
                values = [one[column] for one in runs]
                cells.append(f"{mean(values):.1f} ({min(values):.1f}-{max(values):.1f})")
            print(f"{overlay:13}{name:13}" + "".join(f"{one:>22}" for one in cells), flush=True)


if __name__ == "__main__":
    main()
