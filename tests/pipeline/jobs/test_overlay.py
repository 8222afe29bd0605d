"""Overlays described second by second, against plain Python that replays the notes one by one."""

from collections import Counter, defaultdict
from itertools import combinations
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from nearcast.pipeline.jobs.delivery import first_moments
from nearcast.pipeline.jobs.graphs import measure
from nearcast.pipeline.jobs.note_replay import replay_links, replay_owners
from nearcast.pipeline.jobs.overlay import (
    overlay_by_second,
    overlay_links,
    overlay_paths,
    ownership,
)
from support.dataframes import Row
from support.examples import examples
from support.small_runs import by_keys, rows_of

SECOND = 1_000_000
RUNS = [f"run-{number}" for number in range(24)]

Link = tuple[int, int]


# The graph itself, without Spark.


def triangles(links: set[Link]) -> int:
    nodes = sorted({node for link in links for node in link})
    return sum({(a, b), (a, c), (b, c)} <= links for a, b, c in combinations(nodes, 3))


def triples(links: set[Link]) -> int:
    degree = Counter(node for link in links for node in link)
    return sum(many * (many - 1) // 2 for many in degree.values())


def components(links: set[Link]) -> int:
    group = {node: {node} for link in links for node in link}
    for a, b in links:
        together = group[a] | group[b]
        group |= dict.fromkeys(together, together)
    return len({min(nodes) for nodes in group.values()})


@examples(200)
@given(
    pairs=st.lists(
        st.tuples(st.integers(0, 11), st.integers(0, 11)).filter(lambda pair: pair[0] != pair[1]),
        max_size=40,
    ),
    names=st.permutations([0, 1, 2, 3, 5, 8, 13, 2**40, 2**52, 2**53 - 1, 99, 100]),
)
def test_a_graph_is_measured_exactly(pairs: list[Link], names: list[int]) -> None:
    links = {(min(a, b), max(a, b)) for a, b in ((names[a], names[b]) for a, b in pairs)}
    low, high = np.array(sorted(links), np.int64).reshape(-1, 2).T
    degree = Counter(node for link in links for node in link)
    assert measure(low, high) == {
        "links": len(links),
        "nodes": len(degree),
        "degree_max": max(degree.values(), default=0),
        "triangles": triangles(links),
        "triples": triples(links),
        "components": components(links),
    }


def test_a_hub_of_many_and_a_clique_are_measured_exactly() -> None:
    star = [(0, other) for other in range(1, 2001)]
    clique = list(combinations(range(5000, 5060), 2))
    low, high = np.array(star + clique).T
    assert measure(low, high) == {
        "links": 2000 + 60 * 59 // 2,
        "nodes": 2001 + 60,
        "degree_max": 2000,
        "triangles": 60 * 59 * 58 // 6,
        "triples": 2000 * 1999 // 2 + 60 * (59 * 58 // 2),
        "components": 2,
    }


# Little runs, all told apart by their names and counted in one query.


def history(run: str) -> dict[str, list[Row]]:
    """A run of five nodes and six seconds, with notes at few moments so that many coincide."""
    rng = Random(run)
    times = [rng.randrange(-2 * SECOND, 6 * SECOND) for _ in range(7)] + [0, SECOND - 1, SECOND]
    base = 50 * SECOND  # seconds may be negative, times may not

    def when() -> int:
        return base + rng.choice(times)

    def node() -> int:
        return rng.randrange(5)

    facts = ["linked"] * 8 + ["unlinked"] * 3 + ["left", "crashed", "level", "level", "joined"]
    if rng.random() < 0.4:
        facts = ["level", "joined", "left", "unlinked"]
    notes: list[Row] = [
        {"run": run, "t": when(), "node": node(), "fact": rng.choice(facts),
         "about": rng.choice([None, node(), node(), node()]),
         "value": rng.choice([None, 1.0, 2.0, 7.0])}
        for _ in range(rng.randrange(30))
    ]  # fmt: skip
    notes += [
        {"run": run, "t": when(), "node": node(), "fact": "owner", "about": rng.randrange(4)}
        for _ in range(rng.randrange(10))
    ]
    notes += [
        {"run": run, "t": when(), "node": node(), "fact": "latency", "about": node(),
         "value": rng.choice([None, 0.0, 10.0, 30.0])}
        for _ in range(rng.randrange(8))
    ]  # fmt: skip
    messages: list[Row] = [
        {"run": run, "t": when(), "node": node(), "to": node(), "bytes": rng.randrange(99),
         "lost": rng.random() < 0.2, "copies": rng.randrange(1, 4)}
        for _ in range(rng.choice([0, 12]))
    ]  # fmt: skip
    publications: list[Row] = [
        {"run": run, "t": when(), "node": node(), "publication": number}
        for number in range(rng.choice([0, 3]))
    ]
    deliveries: list[Row] = [
        {"run": run, "t": publication["t"] + rng.randrange(90_000), "node": node(),
         "publication": publication["publication"], "subscription": rng.randrange(4),
         "hops": rng.randrange(3)}
        for publication in publications for _ in range(rng.randrange(5))
    ]  # fmt: skip
    interests: list[Row] = [
        {"run": run, "t": when(), "node": 0, "subscription": number, "ended": rng.random() < 0.7}
        for number in range(4)
    ]
    return {"notes": notes, "messages": messages, "publications": publications,
            "deliveries": deliveries, "interests": interests}  # fmt: skip


HISTORIES = {run: history(run) for run in RUNS}


def frames(spark: SparkSession, *tables: str) -> list[Any]:
    return [
        rows_of(spark, table, [row for run in RUNS for row in HISTORIES[run][table]])
        for table in tables
    ]


def origin(rows: dict[str, list[Row]]) -> int:
    for table in ("publications", "messages", "notes"):
        if rows[table]:
            return min(row["t"] for row in rows[table])
    return 0


def second(rows: dict[str, list[Row]], row: Row) -> int:
    return (row["t"] - origin(rows)) // SECOND


def seconds_with_notes(rows: dict[str, list[Row]], *tables: str) -> list[int]:
    named = [row for table in tables for row in rows[table]]
    return sorted({second(rows, row) for row in named})


def noted_links(rows: dict[str, list[Row]], until: int) -> set[Link]:
    """Replay all notes up to the end of a second, one by one."""
    rank = {"unlinked": 0, "linked": 1, "left": 2, "crashed": 2}
    words = [note for note in rows["notes"] if note["fact"] in rank and second(rows, note) <= until]
    linked: set[Link] = set()
    for note in sorted(words, key=lambda note: (note["t"], rank[note["fact"]])):
        pair = (note["node"], note.get("about"))
        if note["fact"] in ("left", "crashed"):
            linked = {link for link in linked if note["node"] not in link}
        elif None not in pair and pair[0] != pair[1]:
            (linked.add if note["fact"] == "linked" else linked.discard)(pair)
    return {(min(link), max(link)) for link in linked}


def exchanged(rows: dict[str, list[Row]], when: int) -> set[Link]:
    return {
        (min(m["node"], m["to"]), max(m["node"], m["to"]))
        for m in rows["messages"]
        if second(rows, m) == when and not m["lost"] and m["node"] != m["to"]
    }


def height(rows: dict[str, list[Row]], until: int) -> float | None:
    level: dict[int, float] = {}
    words = [note for note in rows["notes"] if second(rows, note) <= until]
    for note in sorted(words, key=lambda n: (n["t"], n["fact"] != "level", n.get("value") or 0)):
        if note["fact"] in ("left", "crashed"):
            level.pop(note["node"], None)
        elif note["fact"] == "level" and note["value"] is not None:
            level[note["node"]] = note["value"]
    return max(level.values(), default=None)


def test_every_second_has_the_graph_that_a_replay_gives(spark: SparkSession) -> None:
    notes, messages, publications = frames(spark, "notes", "messages", "publications")
    begins = first_moments(publications, messages, notes)
    result = overlay_by_second(notes, messages, publications, begins)
    assert result.columns == ["run", "second", "links", "nodes", "degree_mean", "degree_max",
                              "clustering", "components", "height"]  # fmt: skip
    wanted = {}
    for run, rows in HISTORIES.items():
        telling = any(note["fact"] == "linked" for note in rows["notes"])
        for when in seconds_with_notes(rows, "notes", "messages", "publications"):
            links = noted_links(rows, when) if telling else exchanged(rows, when)
            degree = Counter(node for link in links for node in link)
            wanted[run, when] = (
                len(links),
                len(degree),
                2 * len(links) / len(degree) if degree else None,
                max(degree.values(), default=0),
                3 * triangles(links) / triples(links) if triples(links) else None,
                components(links),
                height(rows, when),
            )
    found = by_keys(result, ["run", "second"])
    assert found == wanted
    # The histories are such that all there is to get wrong is there.
    assert {row[5] for row in found.values()} >= {0, 1, 2}
    assert {row[4] for row in found.values()} >= {None, 0.0, 1.0}
    assert any(when < 0 for _, when in found)


def table(rows: list[Row], columns: dict[str, pa.DataType]) -> pa.Table:
    return pa.Table.from_pylist(rows, pa.schema(list(columns.items())))


@examples(150)
@given(name=st.integers())
def test_a_replay_has_links_and_heights_wherever_they_change(name: int) -> None:
    rows = history(f"replay-{name}")
    notes = [
        {**note, "second": second(rows, note), "other": note.get("about")}
        for note in rows["notes"]
        if note["fact"] in ("left", "crashed")
        or (note["fact"] == "level" and note["value"] is not None)
        or (note["fact"] in ("linked", "unlinked") and note["about"] not in (None, note["node"]))
    ]
    whole, text, number = pa.int64(), pa.string(), pa.float64()
    columns = {"second": whole, "t": whole, "node": whole, "fact": text, "other": whole}
    found = {
        row.pop("second"): row
        for row in replay_links(table(notes, columns | {"value": number})).to_pylist()
    }
    assert set(found) == {note["second"] for note in notes}
    telling = any(note["fact"] == "linked" for note in notes)
    for when, row in found.items():
        links = noted_links(rows, when)
        assert row.pop("height") == height(rows, when)
        low, high = np.array(sorted(links), np.int64).reshape(-1, 2).T
        assert row == (measure(low, high) if telling else dict.fromkeys(row))


def test_links_are_used_as_often_as_messages_went_over_them(spark: SparkSession) -> None:
    messages, publications = frames(spark, "messages", "publications")
    result = overlay_links(messages, first_moments(publications, messages))
    wanted: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for run, rows in HISTORIES.items():
        used = defaultdict(list)
        for m in rows["messages"]:
            used[run, m["node"], m["to"]].append(m)
        for link, sent in used.items():
            times = [(m["t"] - origin(rows)) / 1e6 for m in sent]
            wanted[link] = (
                sum(m["copies"] for m in sent), sum(m["bytes"] for m in sent),
                min(times), max(times),
            )  # fmt: skip
    assert result.columns == ["run", "node", "to", "messages", "bytes", "first_s", "last_s"]
    assert by_keys(result, ["run", "node", "to"]) == wanted


def test_paths_are_as_long_and_as_stretched_as_each_delivery_says(spark: SparkSession) -> None:
    result = overlay_paths(*frames(spark, "deliveries", "publications", "notes"))
    wanted: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for run, rows in HISTORIES.items():
        direct = {
            frozenset((note["node"], note["about"])): note["value"]
            for note in sorted(rows["notes"], key=lambda n: (n["t"], n.get("value") or 0))
            if note["fact"] == "latency" and note["value"] and note["about"] != note["node"]
        }
        publications = {row["publication"]: row for row in rows["publications"]}
        stretches = defaultdict(list)
        for delivery in rows["deliveries"]:
            source = publications[delivery["publication"]]
            way = direct.get(frozenset((delivery["node"], source["node"])))
            took = (delivery["t"] - source["t"]) / 1000
            stretches[run, delivery["hops"]].append(took / way if way else None)
        for key, found in stretches.items():
            known = [value for value in found if value is not None]
            wanted[key] = (len(found), pytest.approx(sum(known) / len(known)) if known else None)
    assert result.columns == ["run", "hops", "deliveries", "stretch_mean"]
    found = by_keys(result, ["run", "hops"])
    assert found == wanted
    assert any(row[1] is None for row in found.values())
    assert any(row[1] is not None for row in found.values())


def owners_at(rows: dict[str, list[Row]], until: int) -> tuple[Counter[int], Counter[int]]:
    """Who owns how many at the end of a second, and who took how many over in it."""
    words = [
        (note["t"], 0, note["node"], note["about"], second(rows, note))
        for note in rows["notes"]
        if note["fact"] == "owner"
    ]
    words += [
        (row["t"], 1, -1, row["subscription"], second(rows, row))
        for row in rows["interests"]
        if row["ended"]
    ]
    owner: dict[int, int] = {}
    taken: Counter[int] = Counter()
    for _, ends, node, subscription, when in sorted(words):
        if when > until:
            break
        if ends:
            owner.pop(subscription, None)
            continue
        taken[node] += when == until and owner.get(subscription, node) != node
        owner[subscription] = node
    return Counter(owner.values()), taken


@examples(150)
@given(name=st.integers())
def test_a_replay_has_owners_wherever_they_change(name: int) -> None:
    rows = history(f"owners-{name}")
    words = [
        {"second": second(rows, note), "t": note["t"], "subscription": note["about"],
         "owner": note["node"]}
        for note in rows["notes"] if note["fact"] == "owner"
    ]  # fmt: skip
    words += [
        {"second": second(rows, row), "t": row["t"], "subscription": row["subscription"]}
        for row in rows["interests"] if row["ended"]
    ]  # fmt: skip
    columns = dict.fromkeys(("second", "t", "subscription", "owner"), pa.int64())
    found = replay_owners(table(words, columns))
    wanted = []
    for when in sorted({word["second"] for word in words}):
        owned, taken = owners_at(rows, when)
        wanted += [
            (when, owner, owned[owner], taken[owner])
            for owner in range(5) if owned[owner] or taken[owner]
        ]  # fmt: skip
    assert [tuple(row.values()) for row in found.to_pylist()] == wanted


def test_owners_own_what_they_were_last_to_claim(spark: SparkSession) -> None:
    tables = ("notes", "interests", "messages", "publications")
    notes, interests, messages, publications = frames(spark, *tables)
    begins = first_moments(publications, messages, notes, interests)
    result = ownership(notes, interests, begins)
    wanted = {}
    for run, rows in HISTORIES.items():
        claims = [note for note in rows["notes"] if note["fact"] == "owner"]
        ends = [row for row in rows["interests"] if row["ended"]]
        for when in sorted({second(rows, row) for row in claims + ends}):
            owned, taken = owners_at(rows, when)
            for owner in range(5):
                if owned[owner] or taken[owner]:
                    wanted[run, when, owner] = (owned[owner], taken[owner])
    assert result.columns == ["run", "second", "owner", "subscriptions", "changes"]
    found = by_keys(result, ["run", "second", "owner"])
    assert found == wanted
    assert sum(changes for _, changes in found.values()) > 5
    assert max(count for count, _ in found.values()) > 1


def test_a_clock_that_jumps_by_years_costs_no_second(spark: SparkSession) -> None:
    years = 50 * 365 * 86_400 * SECOND
    notes = [{"run": "r", "t": t, "node": 1, "fact": "linked", "about": 2} for t in (0, years)]
    nobody: list[Row] = []
    noted = rows_of(spark, "notes", notes)
    messages, publications = (
        rows_of(spark, "messages", nobody),
        rows_of(spark, "publications", nobody),
    )
    result = overlay_by_second(noted, messages, publications, first_moments(noted))
    assert set(by_keys(result, ["run", "second"])) == {("r", 0), ("r", years // SECOND)}
