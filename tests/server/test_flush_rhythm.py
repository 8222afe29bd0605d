"""A node flushes at once while there is little to write, and gathers otherwise."""

import pytest

from nearcast.server.flush_rhythm import LEAST, FlushRhythm

LONGEST_S = 0.05


def test_flushes_get_a_share_of_a_core() -> None:
    rhythm = FlushRhythm(0.1, LONGEST_S)
    for took in (0.0, 1e-5, 0.001, 0.004):
        assert rhythm.pause_s(took) + took == pytest.approx(10 * took)


def test_other_threads_share_that_core() -> None:
    rhythm = FlushRhythm(0.1, LONGEST_S)
    assert rhythm.pause_s(0.001, 0.002) + 0.001 == pytest.approx(0.03)
    assert rhythm.pause_s(0.001, 0.02) + 0.001 == pytest.approx(LONGEST_S)


def test_nobody_waits_longer_than_the_setting_says() -> None:
    rhythm = FlushRhythm(0.1, LONGEST_S)
    for took in (0.005, 0.01, 0.03):
        assert rhythm.pause_s(took) + took == pytest.approx(LONGEST_S)


def test_the_loop_does_other_work_however_long_a_flush_takes() -> None:
    for prompt in (0.0, 0.1, 1.0):
        assert FlushRhythm(prompt, LONGEST_S).pause_s(0.2) == pytest.approx(LEAST * 0.2)


def test_who_prefers_little_cpu_gathers_always() -> None:
    assert FlushRhythm(0.0, LONGEST_S).pause_s(0.0001) == pytest.approx(LONGEST_S - 0.0001)
