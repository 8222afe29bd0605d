"""The live service for longer: truth, bad frames and vanishing clients in their full numbers."""

import asyncio
import gc
from pathlib import Path
from random import Random

import pytest

from nearcast.server.config import LimitSettings
from nearcast.trace.validate import validate
from support.bad_frames import (
    WellBehavedClients,
    connect_and_vanish,
    nothing_left,
    open_files,
    send_malformed_frames,
)
from support.live_clients import check_deliveries, run, run_clients, service

pytestmark = pytest.mark.soak


def test_two_hundred_clients_receive_exactly_the_truth_for_a_minute(tmp_path: Path) -> None:
    trace = tmp_path / "trace"

    async def story() -> int:
        async with service(trace) as node:
            clients = await run_clients(node, count=200, seconds=60.0, rate=3.0, seed=7)
        return check_deliveries(trace, clients)

    assert run(story()) > 100_000


def test_a_million_bad_frames_affect_only_their_senders(tmp_path: Path) -> None:
    async def story() -> None:
        limits = LimitSettings(requests=10**6, refusals=10**6, frame=4_096)
        async with service(tmp_path / "t", limits) as node:
            async with WellBehavedClients(node):
                await asyncio.gather(
                    *(send_malformed_frames(node, Random(n), 1_000) for n in range(20))
                )
            await nothing_left(node)
            things, files = len(gc.get_objects()), open_files()
            async with WellBehavedClients(node):
                await asyncio.gather(
                    *(send_malformed_frames(node, Random(n), 49_000) for n in range(20))
                )
            await nothing_left(node)
            assert len(gc.get_objects()) < things + 20_000
            assert open_files() <= files + 2

    run(story())
    assert validate(tmp_path / "t").problems == ()


def test_a_thousand_clients_come_and_vanish_forty_times(tmp_path: Path) -> None:
    async def story() -> None:
        async with service(tmp_path / "t") as node:
            files = open_files()
            async with WellBehavedClients(node):
                visits = (connect_and_vanish(node, Random(n), 40, stay=3.0) for n in range(1_000))
                await asyncio.gather(*visits)
            await nothing_left(node)
            assert open_files() <= files + 2

    run(story())
    assert validate(tmp_path / "t").problems == ()
