"""A world in one process: what it records is true, and it begins and ends cleanly."""

import asyncio
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import nearcast
from nearcast.client.client import Client
from nearcast.client.subscription import Subscription
from nearcast.space.motion import SECOND, Moving, line
from nearcast.space.shapes import ball, box, disc, point
from nearcast.trace import reader
from nearcast.trace.recorder import Recorder
from nearcast.trace.validate import validate
from support.brute_force import delivered, expected
from support.join_targets import run
from support.patience import PATIENCE_S


async def wander(chance: random.Random, me: Client) -> list[Subscription]:
    """Everything that a client can do with its areas, and now and then a word."""

    def place() -> tuple[float, float]:
        return chance.uniform(0, 100), chance.uniform(0, 100)

    mine = [
        await me.subscribe(disc(*place(), 20)),
        await me.subscribe(box(*place(), 15, 10), filter="level >= 2 * t", echo=True),
        await me.subscribe(line(disc(*place(), 10), (50, 50, 0), speed=300), channel="radio"),
        await me.subscribe("x <= sight + 100 * t", variables={"sight": 10}),
    ]
    for _ in range(25):
        act = chance.randrange(6)
        if act == 0:
            await me.move_to(place(), speed=chance.uniform(50, 500))
        elif act == 1:
            await mine[0].move(Moving(ball(*place(), 0, 10), growth=(50, 0, 0), duration=SECOND))
        elif act == 2:
            await mine[3].tune(sight=chance.uniform(0, 100))
        else:
            await me.publish(
                point(*place()), chance.random(), attributes={"level": chance.randrange(5)},
                channel=chance.choice(["", "radio"]), confirm=chance.random() < 0.5,
            )  # fmt: skip
        await asyncio.sleep(chance.uniform(0, 0.01))
    return mine


def test_what_is_delivered_is_what_the_trace_says_should_be(tmp_path: Path) -> None:
    trace = tmp_path / "trace"

    async def story() -> int:
        chance = random.Random(3)
        async with nearcast.World(trace=trace) as world:
            clients = [await world.join(f"client {number}") for number in range(12)]
            streams = [client.messages() for client in clients]
            await asyncio.gather(*(wander(chance, client) for client in clients))
            await clients[0].publish(point(-1000, 0))
        heard = [await anext(stream) for stream in streams for _ in range(len(stream))]
        return sum(len(message.to) for message in heard)

    heard = asyncio.run(story())
    assert not validate(trace).problems
    tables = {name: reader.read(trace, name) for name in ("interests", "publications")}
    truth = expected(tables["interests"], tables["publications"])
    told = delivered(reader.read(trace, "deliveries"))
    assert sorted(told) == sorted(truth)
    assert heard == len(truth) > 300


def test_a_world_that_ends_ends_its_clients_and_its_trace(tmp_path: Path) -> None:
    async def story() -> None:
        before = asyncio.all_tasks()
        async with nearcast.World(trace=tmp_path / "trace") as world:
            alice, bob = await world.join("alice"), await world.join("bob")
            here = await alice.subscribe(disc(0, 0, 9))
            await bob.publish(point(0, 0), "last words", confirm=False)
        assert (await anext(here)).payload == "last words"
        with pytest.raises(ConnectionError, match="the world has ended"):
            await anext(here)
        with pytest.raises(ConnectionError, match="the world has ended"):
            await alice.publish(point(0, 0))
        await bob.close()
        await world.close()
        assert asyncio.all_tasks() == before

    run(story())
    assert validate(tmp_path / "trace").finished
    assert reader.read(tmp_path / "trace", "notes").column("fact").to_pylist().count("left") == 2


def test_a_world_records_where_everybody_is_once_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded: list[tuple[int, ...]] = []
    record = Recorder.position

    def noted(recorder: Recorder, t: int, *position: Any) -> None:
        recorded.append(position)
        record(recorder, t, *position)

    monkeypatch.setattr(Recorder, "position", noted)

    async def story() -> None:
        async with nearcast.World(trace=tmp_path / "trace") as world:
            alice, bob = await world.join("alice"), await world.join("bob")
            await alice.publish(point(1, 2, 3), retain=True)
            await bob.publish(point(4, 5))
            while len(recorded) < 2:
                await asyncio.sleep(0.01)

    run(story())
    rows = reader.read(tmp_path / "trace", "positions").to_pylist()
    assert [(row["node"], row["x"], row["y"], row["z"]) for row in rows] == recorded
    assert set(recorded) == {(1, 1, 2, 3)}
    assert len({row["t"] for row in rows}) == len(rows)


def test_who_leaves_while_a_word_is_on_its_way_is_no_trouble() -> None:
    async def story() -> None:
        async with nearcast.World() as world:
            alice, bob, carol = [await world.join(name) for name in ("alice", "bob", "carol")]
            await alice.subscribe(disc(0, 0, 9))
            here = await carol.subscribe(disc(0, 0, 9))
            speaking = asyncio.ensure_future(bob.publish(point(0, 0), "hello"))
            await asyncio.sleep(0)
            await alice.close()
            await bob.close()
            assert (await asyncio.wait_for(anext(here), PATIENCE_S)).payload == "hello"
            await asyncio.gather(speaking, return_exceptions=True)

    run(story())


def test_importing_nearcast_loads_nothing() -> None:
    program = (
        "import sys; before = set(sys.modules); import nearcast;"
        "print(sorted(set(sys.modules) - before))"
    )
    out = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": str(Path(nearcast.__file__).parents[1])},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert out.stdout.strip() == "['nearcast']"


def test_connecting_needs_no_matcher_and_no_spark() -> None:
    program = (
        "import sys, nearcast; nearcast.connect;"
        "print([m for m in ('numba', 'numpy', 'pyarrow', 'pyspark') if m in sys.modules])"
    )
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"


def test_there_is_nothing_else_in_nearcast() -> None:
    with pytest.raises(AttributeError, match="module 'nearcast' has no attribute 'disconnect'"):
        nearcast.disconnect  # noqa: B018
