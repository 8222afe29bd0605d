"""Where others are believed to be: the job against plain Python, and rings counted by hand."""

from random import Random
from statistics import mean
from typing import Any

import pytest
from pyspark.sql import SparkSession

from nearcast.pipeline.jobs import dead_reckoning
from nearcast.space.motion import SECOND, Time
from nearcast.space.shapes import Vector
from support.dead_reckoning import ReceivedUpdate, position_errors
from support.small_runs import by_keys, rows_of

Row = dict[str, Any]
PERIOD = SECOND // 10


def frames(spark: SparkSession, **tables: list[Row]) -> dict[str, Any]:
    return {
        name: rows_of(spark, name, [{"run": "a", **row} for row in tables.get(name, [])])
        for name in ("publications", "interests", "deliveries", "positions")
    }


def at(place: Vector, prefix: str = "") -> Row:
    return dict(zip((f"{prefix}x", f"{prefix}y", f"{prefix}z"), place, strict=True))


def a_game(rng: Random) -> tuple[dict[str, list[Row]], list[ReceivedUpdate], list[Any]]:
    """Five ships that say ten times a second where they are; some of it is lost, or late."""
    tables: dict[str, list[Row]] = {
        name: [] for name in ("publications", "interests", "deliveries", "positions")
    }
    received, truth = [], []
    for ship in range(5):
        for number in range(60):
            t = number * PERIOD + 100 * ship
            place = tuple(rng.uniform(0, 100) for _ in range(3))
            velocity = tuple(rng.uniform(-20, 20) for _ in range(3))
            publication = ship * 1000 + number
            tables["interests"].append(
                {
                    "t": t,
                    "node": ship,
                    "subscription": ship,
                    "rx": 200.0,
                    **at(place),
                    **at(velocity, "v"),
                }
            )
            tables["publications"].append(
                {"t": t, "node": ship, "publication": publication, **at(place)}
            )
            for other in range(5):
                if rng.random() < 0.7 or number == 0:
                    late = t + rng.randrange(1, 3 * PERIOD)
                    tables["deliveries"].append(
                        {"t": late, "node": other, "publication": publication}
                    )
                    if other != ship:
                        received.append(ReceivedUpdate(late, other, ship, t, place, velocity))
        for second in range(1, 6):
            place = tuple(rng.uniform(0, 100) for _ in range(3))
            tables["positions"].append({"t": second * SECOND, "node": ship, **at(place)})
            truth.append((second * SECOND, ship, place))
    return tables, received, truth


def test_differences_are_those_of_plain_python(spark: SparkSession) -> None:
    tables, received, truth = a_game(Random(7))
    # What is said on a ship's own channel, or of an explosion, is no position.
    tables["publications"] += [
        {"t": 990_000, "node": 1, "publication": 900_000, "channel": "ship 2", "x": 1e6},
        {"t": 990_000, "node": 1, "publication": 900_001, "attributes": "{}", "x": 1e6},
    ]
    tables["deliveries"] += [
        {"t": 995_000, "node": 2, "publication": number} for number in (900_000, 900_001)
    ]
    memory: Time = dead_reckoning.MEMORY_S * SECOND
    wanted = list(position_errors(received, truth, memory))
    found = by_keys(dead_reckoning.position_difference(**frames(spark, **tables)), ("run", "ring"))
    beliefs, plain, _, reckoned, _ = found["a", "all"]
    assert beliefs == len(wanted) > 80
    assert plain == pytest.approx(mean(one.plain for one in wanted))
    assert reckoned == pytest.approx(mean(one.reckoned for one in wanted))
    assert plain != pytest.approx(reckoned)


def test_a_ship_that_flies_straight_is_where_it_is_reckoned_until_it_arrives(
    spark: SparkSession,
) -> None:
    tables = {
        "interests": [{"t": 0, "node": 1, "rx": 50.0, "vx": 10.0, "until": 1_500_000}],
        "publications": [{"t": 500_000, "node": 1, "publication": 5, "x": 5.0}],
        "deliveries": [{"t": 550_000, "node": 2, "publication": 5}],
        "positions": [
            *({"t": s * SECOND, "node": 1, "x": min(10.0 * s, 15.0)} for s in range(6)),
            *({"t": s * SECOND, "node": 2} for s in range(6)),
        ],
    }
    table = by_keys(dead_reckoning.position_difference(**frames(spark, **tables)), ("run", "ring"))
    found = table["a", "all"]
    # At 1, 2 and 3 s; then the word is older than three seconds.
    assert found[0] == 3
    assert found[1] == pytest.approx((5 + 10 + 10) / 3)
    assert found[3] == pytest.approx(0)


def test_rings_are_the_thirds_of_the_area(spark: SparkSession) -> None:
    """A ship moves 10 units a second along x and says so, with no velocity, ten times a second.
    Who is far from it receives one update in ten."""
    updates = range(31)
    places = {"near": 20.0, "medium": 150.0, "far": 260.0}
    tables: dict[str, list[Row]] = {
        "interests": [{"t": 0, "node": 9, "rx": 300.0}],
        "publications": [
            {"t": n * PERIOD, "node": 1, "publication": n, "x": n / 1.0} for n in updates
        ],
        "deliveries": [
            {"t": n * PERIOD, "node": node, "publication": n}
            for n in updates
            for node in (2, 3, 4, 5)
            if node != 4 or n % 10 == 0
        ],
        "positions": [{"t": 2_900_000, "node": 1, "x": 29.0}],
    }
    for node, y in enumerate(places.values(), 2):
        tables["positions"].append({"t": 2_900_000, "node": node, "x": 29.0, "y": y})
    tables["positions"].append({"t": 2_900_000, "node": 5, "y": 301.0})  # hears it from outside
    rings = by_keys(dead_reckoning.position_difference(**frames(spark, **tables)), ("run", "ring"))
    assert rings.pop(("a", "all"))[0] == 3
    assert {ring: row[0] for (_, ring), row in rings.items()} == dict.fromkeys(places, 1)
    # The last of every tenth was said 9 updates before.
    assert {ring: row[1] for (_, ring), row in rings.items()} == {
        "near": 0.0, "medium": 0.0, "far": pytest.approx(9.0),
    }  # fmt: skip
