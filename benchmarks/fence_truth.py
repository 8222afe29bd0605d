"""Are the events of very many fences told, exactly? A live realm is recorded and judged on Spark.

Entities move among a set of polygons of 8 to 64 vertices, of which about 1.5 are over each place,
and some discs that move; ways between two fixes are about as long as a polygon. One fix in a
hundred has a `ttl` and is the last for a while. Two clients are told of the events: one of the
polygons, one of the discs. The clock is played: fixes are published every 50 ms, and a tick comes
every 100 ms. Printed: what was told, missed and spurious, how late (since it happened) and with
which delay (since it was decided), and seconds of CPU: of the realm with recording, and of Spark.
Before that, what recording costs: 1,000 entities at 10 Hz among 10,000 polygons, with it and
without, once each to warm up and then in turns.

Run: python benchmarks/fence_truth.py [--fixes 1000000] [--fences 100000] [--folder FOLDER]
     python benchmarks/fence_truth.py --recording  (what that costs, and nothing else)
"""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import msgspec
import numpy as np
from join import cpu
from numpy.typing import NDArray
from pyspark.sql import SparkSession

from nearcast.client_protocol.geometry_json import PLANE, Area
from nearcast.client_protocol.limits import Limits
from nearcast.client_protocol.messages import JSON, PublishRequest, SubscribeRequest
from nearcast.matching import MATCHERS
from nearcast.pipeline.analyse import GROUPS, analyse
from nearcast.pipeline.spark.session import start
from nearcast.pipeline.spark.storage import open_traces, read_result
from nearcast.scenario import Scenario, to_json
from nearcast.service.fences.sets import prepare_fences
from nearcast.service.realm import Realm
from nearcast.space.motion import SECOND
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import TraceFolder

Floats = NDArray[np.float64]
RADIUS, DENSITY = 10.0, 1.5
FLUSH_EVERY = SECOND // 20
ROUNDS = 50  # fixes of each entity, one a second
DISCS = 10  # that move
TTL_S = 0.7
BEGIN = 1000 * SECOND
TURNS = 3  # of playing with and without recording


def make_features(n: int, side: float, rng: np.random.Generator) -> Iterator[dict[str, Any]]:
    """Polygons around their centres, with a radius that varies from vertex to vertex."""
    for number in range(n):
        x, y = rng.uniform(0, side, 2)
        count = rng.integers(8, 65)  # no two are far apart: edges would cross
        turn = (np.arange(count) + rng.uniform(0, 0.9, count)) * (2 * np.pi / count)
        radius = RADIUS * rng.uniform(0.6, 1.2, len(turn))
        ring = np.c_[x + radius * np.cos(turn), y + radius * np.sin(turn)].tolist()
        geometry = {"type": "Polygon", "coordinates": [[*ring, ring[0]]]}
        yield {"type": "Feature", "id": number, "properties": {}, "geometry": geometry}


def build_realm(recorder: Recorder | None, fences: int, rng: np.random.Generator) -> Realm:
    """With all fences and the two clients that are told of events."""
    side, limits = side_of(fences), Limits(fences=max(fences, 1))
    realm = Realm(MATCHERS["keyed"](), limits, recorder)
    texts = [msgspec.json.encode(feature) for feature in make_features(fences, side, rng)]
    prepared = prepare_fences(texts, limits, PLANE, numbered=True)
    realm.change_fences(BEGIN, "polygons", prepared)
    office, other = realm.join(BEGIN, "office"), realm.join(BEGIN, "other")
    realm.subscribe(
        BEGIN, office, SubscribeRequest(0, fences="polygons", events=["enter", "leave", "cross"])
    )
    for number in range(DISCS):
        x, y = rng.uniform(0, side, 2)
        vx, vy = rng.normal(0, RADIUS, 2)
        area = Area(x=float(x), y=float(y), r=5 * RADIUS, vx=float(vx), vy=float(vy))
        options: dict[str, Any] = {"dwell": 2.0, "linger": 0.5}
        realm.subscribe(
            BEGIN, other, SubscribeRequest(number, area, events=["enter", "leave"], **options)
        )
    return realm


def side_of(fences: int) -> float:
    """Of the square in which about DENSITY of them are over each place."""
    return float((fences * np.pi * RADIUS**2 / DENSITY) ** 0.5)


def record(folder: Path, fixes: int, fences: int, seed: int = 1) -> dict[str, float]:
    """Play the world and leave its trace; CPU seconds of the parts."""
    rng, entities = np.random.default_rng(seed), max(1, fixes // ROUNDS)
    scenario = Scenario(protocol="live", workload="live", nodes=1, seconds=float(ROUNDS + 10))
    sink = TraceFolder(folder, to_json(scenario))
    recorder = Recorder(sink)
    began = process_time()
    realm = build_realm(recorder, fences, rng)
    put = process_time() - began
    began = process_time()
    play(realm, recorder, side_of(fences), entities, rng)
    recorder.close()
    sink.finish({})
    return {"put": put, "play": process_time() - began}


def play(
    realm: Realm, recorder: Recorder | None, side: float, entities: int, rng: np.random.Generator,
    every: int = SECOND,
) -> int:  # fmt: skip
    """ROUNDS fixes of each entity, so often, and afterwards some rounds for what is due. How many
    fixes there were."""
    now, fixes = BEGIN, 0
    clients = [realm.join(now, f"e{n}") for n in range(entities)]
    places = rng.uniform(0, side, (entities, 2))
    flushes = every // FLUSH_EVERY
    for round_number in range(ROUNDS + 5):
        places += rng.normal(0, RADIUS / 2 * every / SECOND, places.shape)
        expiring = rng.random(entities) < 0.01
        absent = rng.random(entities) < 0.02
        for part in range(flushes):
            now += FLUSH_EVERY
            which = range(part, entities, flushes) if round_number < ROUNDS else ()
            for n in which:
                if not absent[n]:
                    x, y = places[n].tolist()
                    ttl = TTL_S if expiring[n] else None
                    realm.publish(clients[n], PublishRequest(x, y, retain=True, ttl=ttl), JSON)
                    fixes += 1
            while realm.waiting:
                realm.flush(now)
                realm.fence_notices()
            if part % 2:
                realm.tick(now)
        if recorder is not None and (now - BEGIN) % SECOND < every:
            recorder.flush()
    return fixes


def recording_cost(temporary: Path) -> None:
    """Print the CPU of a fix without recording and with it."""
    spent: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(2 * (1 + TURNS)):
        recorded, sink = bool(turn % 2), None
        if recorded:
            scenario = Scenario(protocol="live", workload="live", nodes=1, seconds=60.0)
            sink = TraceFolder(temporary / f"cost{turn}", to_json(scenario))
        recorder = Recorder(sink) if sink else None
        rng = np.random.default_rng(1)
        realm = build_realm(recorder, 10_000, rng)
        began = process_time()
        fixes = play(realm, recorder, side_of(10_000), 1_000, rng, SECOND // 10)
        if recorder is not None and sink is not None:
            recorder.close()
            sink.finish({})
        if turn >= 2:
            spent[recorded].append((process_time() - began) / fixes * 1e6)
    without, recorded_us = min(spent[False]), min(spent[True])
    print(
        f"a fix takes {without:.1f} µs of CPU, with recording {recorded_us:.1f} µs"
        f" (of {TURNS} turns the best; {fixes:,} fixes)",
        flush=True,
    )


def judge(spark: SparkSession, trace: Path, out: Path) -> list[dict[str, Any]]:
    """The rows of `fence_totals`."""
    traces = open_traces([trace])
    analyse(spark, traces, out, jobs=GROUPS["fences"])
    return read_result(out, "fence_totals", traces[0].run)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fixes", type=int, default=1_000_000)
    parser.add_argument("--fences", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="keep the trace and the results here")
    parser.add_argument("--recording", action="store_true", help="only what that costs")
    arguments = parser.parse_args()
    with TemporaryDirectory() as temporary:
        recording_cost(Path(temporary))
        if arguments.recording:
            return 0
        folder = arguments.folder or Path(temporary)
        took = record(folder / "trace", arguments.fixes, arguments.fences)
        print(f"fences put: {took['put']:.1f} s of CPU; played: {took['play']:.1f} s", flush=True)
        spark = start("local[2]")
        began, spent = perf_counter(), cpu(os.getpid())
        rows = judge(spark, folder / "trace", folder / "results")
        spent, wall = cpu(os.getpid()) - spent, perf_counter() - began
        spark.stop()
    names = ("told", "missed", "spurious", "unsettled")
    times = ("late_p50_ms", "late_p99_ms", "delay_p50_ms", "delay_p99_ms", "delay_max_ms")
    print(f"{'event':8}" + "".join(f"{name:>14}" for name in (*names, *times)))
    for row in sorted(rows, key=lambda row: row["kind"]):
        shown = [f"{row[name]:>14,}" for name in names]
        shown += [f"{'' if row[name] is None else f'{row[name]:.1f}':>14}" for name in times]
        print(f"{row['kind']:8}" + "".join(shown))
    print(f"judged on Spark in {wall:.1f} s, {spent:.1f} s of CPU")
    wrong = sum(row["missed"] + row["spurious"] for row in rows)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
