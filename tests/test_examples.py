"""The example scripts do what they say."""

import asyncio
import runpy
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from nearcast.server.config import Settings
from nearcast.server.server import Server
from nearcast.trace.reader import read
from nearcast.trace.validate import validate
from support.patience import PATIENCE_S
from support.small_traces import delivery, message, position, publication, write_trace

EXAMPLES = Path(__file__).parent.parent / "examples"


def example(name: str) -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def test_people_who_are_near_chat_and_others_receive_nothing() -> None:
    """Each as a program of its own: lines in, lines out."""

    async def story() -> None:
        async with Server(Settings(port=0)) as node, asyncio.timeout(PATIENCE_S):
            ann, ben, far = [
                await asyncio.create_subprocess_exec(
                    sys.executable, EXAMPLES / "chat.py", "--url", node.url, "--name", name,
                    "--x", x, stdin=PIPE, stdout=PIPE,
                )
                for name, x in (("ann", "0"), ("ben", "30"), ("far", "500"))
            ]  # fmt: skip

            async def line(of: Any, text: str) -> list[str]:
                """All that it prints up to this line."""
                printed: list[str] = []
                while text not in printed:
                    printed.append((await of.stdout.readline()).decode().strip())
                return printed

            await line(ann, "(ben is near)")
            await line(far, "(you are at 500, 0)")
            ann.stdin.write(b"hello\n")
            await line(ben, "ann: hello")
            far.stdin.write(b"/go 30 10\n")
            assert "ann: hello" not in await line(far, "(ann is near)")
            far.stdin.write(b"now I am here\n")
            await line(ben, "far: now I am here")
            for one in (ann, ben, far):
                one.stdin.close()
                assert await one.wait() == 0

    asyncio.run(story())


def test_characters_of_a_game_see_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    game = example("game_loop")
    game["play"].__globals__["WORLD"] = 20.0  # so small that everybody is in sight

    async def story() -> None:
        async with Server(Settings(port=0)) as node:
            await asyncio.gather(
                *(
                    game["main"](["--url", node.url, "--name", name, "--seconds", "3"])
                    for name in ("ann", "ben")
                )
            )

    asyncio.run(story())
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 60
    for name, other in (("ann", "ben"), ("ben", "ann")):
        assert any(line.startswith(name) and f"sees {other} at" in line for line in printed)


def test_taxis_receive_passengers_calls_and_the_trace_has_each_offer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(example("embedded_world")["main"](["--trace", str(tmp_path / "rides")]))
    offers = int(capsys.readouterr().out.split()[-2])
    assert offers > 0
    assert not validate(tmp_path / "rides").problems
    assert read(tmp_path / "rides", "deliveries").num_rows == offers


def test_two_peers_need_no_server(capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(asyncio.wait_for(example("peer")["main"]([]), PATIENCE_S))
    printed = capsys.readouterr().out
    assert "ann received: hello from ben" in printed
    assert "psense does not offer presence in an area (`watch`)" in printed


def test_the_example_queries_give_the_right_answers(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    trace = write_trace(
        tmp_path / "walk",
        {
            "publications": [publication(1_000_000, 1, x=0.0, y=0.0, z=0.0)],
            "positions": [
                position(0, 1, x=50.0, y=0.0, z=0.0),
                position(1_000_000, 1, x=3.0, y=4.0, z=0.0),
                position(0, 2, x=0.0, y=80.0, z=0.0),
                position(2_000_000, 2, x=0.0, y=0.0, z=0.0),
            ],
            "deliveries": [
                delivery(1_010_000, 1, 1, node=1),
                delivery(1_030_000, 1, 2, node=1),
                delivery(1_090_000, 1, 3, node=2),
                delivery(1_090_000, 1, 4, node=3),  # nobody knows where that is
            ],
            "messages": [
                message(999_999, kind="ping", bytes=100),
                message(1_000_000, kind="ping", bytes=30),
                message(1_999_999, kind="notice", bytes=60, copies=3),
                message(1_500_000, kind="notice", bytes=60),
            ],
        },
    )
    monkeypatch.setattr("nearcast.pipeline.spark.session.start", lambda: spark)
    main = example("questions")["main"]
    main(["--trace", str(trace)])
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|walk")]
    assert [line.replace(" ", "") for line in printed] == [
        "|walk|1|2|1|",
        "|walk|2|1|1|",
        "|walk|3|1|1|",
        "|walk|0.0|10.0|2|20.0|30.0|",
        "|walk|70.0|80.0|1|90.0|90.0|",
        "|walk|1|notice|4|120|",
        "|walk|1|ping|1|30|",
    ]
    with pytest.raises(SystemExit):
        main(["--trace", "/nowhere"])
    assert "there is no trace at /nowhere" in capsys.readouterr().err
