"""Bad frames and vanishing clients: no crash, no leak, and nobody else notices."""

import asyncio
import logging
from pathlib import Path
from random import Random

import pytest

from nearcast.server import request_cost
from nearcast.server.config import LimitSettings
from nearcast.trace.validate import validate
from support.bad_frames import (
    WellBehavedClients,
    connect_and_vanish,
    nothing_left,
    send_malformed_frames,
)
from support.live_clients import run, service


def test_bad_frames_hurt_only_those_who_send_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr(request_cost, "READ_BUDGET", 2**40)  # they are read at once, and not later

    async def story() -> int:
        limits = LimitSettings(requests=10**6, refusals=10**6, frame=4_096)
        async with service(tmp_path / "t", limits) as node:
            async with WellBehavedClients(node):
                await asyncio.gather(
                    *(send_malformed_frames(node, Random(n), 5_000) for n in range(4))
                )
            await nothing_left(node)
            return node.gateway.metrics.refused

    assert run(story()) > 10_000
    assert [record.getMessage() for record in caplog.records] == []
    assert validate(tmp_path / "t").problems == ()


def test_clients_who_come_and_vanish_leave_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    async def story() -> None:
        async with service(tmp_path / "t") as node:
            async with WellBehavedClients(node):
                await asyncio.gather(*(connect_and_vanish(node, Random(n), 60) for n in range(20)))
            await nothing_left(node)

    run(story())
    assert [record.getMessage() for record in caplog.records] == []
    assert validate(tmp_path / "t").problems == ()
