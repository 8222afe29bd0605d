"""A pause after a flush is short unless the node is busy."""

import pytest

from nearcast.server import flush_rhythm
from nearcast.server.flush_rhythm import (
    BUSY,
    BUSY_PAUSE,
    IDLE,
    IDLE_PAUSE,
    FlushRhythm,
    pause_at_load,
)


def test_the_pause_grows_with_the_load() -> None:
    loads = [0.0, IDLE, (IDLE + BUSY) / 2, BUSY, 1.0]
    between = pytest.approx((IDLE_PAUSE + BUSY_PAUSE) / 2)
    assert [pause_at_load(load) for load in loads] == [
        IDLE_PAUSE, IDLE_PAUSE, between, BUSY_PAUSE, BUSY_PAUSE,
    ]  # fmt: skip


def test_the_load_is_that_of_the_last_half_second(monkeypatch: pytest.MonkeyPatch) -> None:
    used = 0.0
    monkeypatch.setattr(flush_rhythm, "thread_time", lambda: used)
    rhythm, now = FlushRhythm(0.0), 0.0
    for share, pause in ((0.9, BUSY_PAUSE), (0.1, IDLE_PAUSE)):
        for _ in range(60):
            now, used = now + 0.05, used + 0.05 * share
            found = rhythm.pause_factor(now)
        assert found == pause
    assert rhythm.pause_factor(now) == IDLE_PAUSE, "no time has passed"
