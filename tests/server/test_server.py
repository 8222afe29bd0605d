"""A node as a process: ready, told to stop, or killed."""

import asyncio
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.server.config import Settings
from nearcast.server.server import Server
from nearcast.trace.reader import read
from nearcast.trace.validate import validate
from support.live_clients import LiveClient, join_client, run
from support.patience import PATIENCE_S

NODE = """
import sys
from nearcast.server import gateway
from nearcast.server.config import Settings
from nearcast.server.server import serve
gateway.ROTATE_S = 0.5
serve(Settings(port=0, trace=sys.argv[1]), lambda node: print(node.port, flush=True))
"""

NUMBERS = count(1_001)  # of requests


async def started(trace: Path) -> tuple[asyncio.subprocess.Process, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", NODE, str(trace), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    port = int(await asyncio.wait_for(process.stdout.readline(), PATIENCE_S))
    return process, SimpleNamespace(port=port, url=f"ws://127.0.0.1:{port}/ws")


async def talk(node: Any, answers: int) -> tuple[LiveClient, LiveClient]:
    """One listens, one publishes, each publication answered, until so many answers have come."""
    ann, bob = await join_client(node, "ann", messages.MSGPACK), await join_client(node, "bob")
    await ann.ask(messages.SubscribeRequest, 1, Area(x=0.0, y=0.0, r=10.0, vx=1.0))
    async with asyncio.timeout(PATIENCE_S):
        while len(bob.of(messages.DoneNotice)) < answers:
            await publish_many(bob)
    return ann, bob


async def publish_many(client: LiveClient) -> None:
    for _ in range(10):
        client.send_request(messages.PublishRequest(1.0, 2.0, retain=True, id=next(NUMBERS)))
    await asyncio.sleep(0.01)


def test_a_node_told_to_stop_loses_no_row(tmp_path: Path) -> None:
    async def story() -> tuple[int | None, LiveClient, LiveClient]:
        process, node = await started(tmp_path / "t")
        ann, bob = await talk(node, 500)
        process.send_signal(signal.SIGTERM)
        code = await asyncio.wait_for(process.wait(), PATIENCE_S)
        await asyncio.wait_for(bob.gone.wait(), PATIENCE_S)
        return code, ann, bob

    code, ann, bob = run(story())
    assert code == 0
    assert validate(tmp_path / "t").problems == ()
    assert validate(tmp_path / "t").finished
    kept = read(tmp_path / "t", "publications")["publication"].to_pylist()
    accepted = [done.publication for done in bob.of(messages.DoneNotice)]
    assert len(accepted) >= 500
    assert kept == accepted
    heard = [message.publication for message in ann.of(messages.MessageNotice)]
    assert read(tmp_path / "t", "deliveries")["publication"].to_pylist() == heard
    assert ann.of(messages.ByeNotice)


def test_a_node_that_is_killed_leaves_a_sound_trace(tmp_path: Path) -> None:
    def kept() -> list[int]:
        numbers: list[int] = read(tmp_path / "t", "publications")["publication"].to_pylist()
        return numbers

    async def story() -> list[int]:
        process, node = await started(tmp_path / "t")
        _, bob = await talk(node, 250)
        async with asyncio.timeout(PATIENCE_S):
            while len(kept()) <= 50:  # rows are written now and then
                await publish_many(bob)
        process.kill()
        await process.wait()
        return [done.publication for done in bob.of(messages.DoneNotice)]

    accepted = run(story())
    assert validate(tmp_path / "t").problems == ()
    assert not validate(tmp_path / "t").finished
    assert len(kept()) > 50
    assert kept() == accepted[: len(kept())]


def files(trace: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in trace.rglob("*") if file.is_file()}


def test_a_node_that_was_killed_starts_again_and_records_beside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trace = tmp_path / "t"

    async def story() -> dict[str, bytes]:
        process, node = await started(trace)
        await (await join_client(node, "ann")).ask(messages.PublishRequest, 1.0, 2.0)
        process.kill()
        await process.wait()
        left = files(trace)
        process, node = await started(trace)  # as a service manager would
        await (await join_client(node, "ann")).ask(messages.PublishRequest, 1.0, 2.0)
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), PATIENCE_S) == 0
        async with Server(Settings(port=0, trace=str(trace))) as third:
            assert third.recording is not None
            assert third.recording.path == tmp_path / "t-3"
        return left

    left = run(story())
    assert files(trace) == left, "nothing is added to an earlier trace"
    assert left
    assert not validate(trace).finished
    for name in ("t-2", "t-3"):
        assert validate(tmp_path / name).problems == ()
        assert validate(tmp_path / name).finished
    assert len(read(tmp_path / "t-2", "publications")) == 1
    told = f"{trace} holds the trace of an earlier run; recording to {tmp_path / 't-3'}"
    assert [record.getMessage() for record in caplog.records] == [told]


def test_a_port_that_is_taken_is_told_and_leaves_a_sound_trace(tmp_path: Path) -> None:
    async def story() -> None:
        async with Server(Settings(port=0, record=False)) as first:
            taken = Settings(port=first.port, trace=str(tmp_path / "t"))
            with pytest.raises(OSError, match="in use"):
                await Server(taken).start()

    run(story())
    assert validate(tmp_path / "t").problems == ()


def test_an_embedded_node_starts_again_and_again() -> None:
    """No task outlives its node."""

    async def story() -> None:
        ports = set()
        for _ in range(3):
            async with Server(Settings(port=0, record=False)) as node:
                await join_client(node, "ann")
                ports.add(node.port)
        async with asyncio.timeout(PATIENCE_S):
            while len(asyncio.all_tasks()) > 1:
                await asyncio.sleep(0.01)

    run(story())
