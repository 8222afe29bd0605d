"""A node flushes at once while there is little to write, and gathers otherwise."""

import pytest

from nearcast.server.flush_rhythm import FEW, LEAST, PER_DELIVERY_S, FlushRhythm

LONGEST_S = 0.05


def test_flushes_get_a_share_of_a_core() -> None:
    rhythm = FlushRhythm(0.1, LONGEST_S)
    for took in (0.0, 1e-5, 0.001, 0.004):
        assert rhythm.pause_s(took) + took == pytest.approx(10 * took)


def test_other_threads_share_that_core() -> None:
    rhythm = FlushRhythm(0.1, LONGEST_S)
    assert rhythm.pause_s(0.001, 0.002) + 0.001 == pytest.approx(0.03)
    assert rhythm.pause_s(0.001, 0.02) + 0.001 == pytest.approx(LONGEST_S)


def test_the_more_is_delivered_the_longer_it_gathers() -> None:
    """Deliveries a second, and seconds from flush to flush: in steady flow, and in bursts."""
    for each, every in ((2_000, 0.01), (100, 0.0005), (20_000, 0.1)):
        rhythm, began = FlushRhythm(0.6, LONGEST_S), 1_000.0
        while began < 1_003.0:
            wait = rhythm.pause_s(0.0, 0.0, each, began)
            began += every
        assert wait == pytest.approx(PER_DELIVERY_S * (200_000 - FEW) / 0.6)
        assert rhythm.pause_s(0.0, 0.0, 1, began + 60.0) == 0.0, "after a minute nothing is left"
    busy = FlushRhythm(0.6, LONGEST_S)
    assert busy.pause_s(0.0, 0.0, 10**7, 0.0) == LONGEST_S
    assert busy.pause_s(0.04, 0.0, 10**7, 0.0) == pytest.approx(0.01)


def test_nobody_waits_longer_than_the_setting_says() -> None:
    rhythm = FlushRhythm(0.1, LONGEST_S)
    for took in (0.005, 0.01, 0.03):
        assert rhythm.pause_s(took) + took == pytest.approx(LONGEST_S)


def test_the_loop_does_other_work_however_long_a_flush_takes() -> None:
    for prompt in (0.0, 0.1, 1.0):
        assert FlushRhythm(prompt, LONGEST_S).pause_s(0.2) == pytest.approx(LEAST * 0.2)


def test_who_prefers_little_cpu_gathers_always() -> None:
    assert FlushRhythm(0.0, LONGEST_S).pause_s(0.0001) == pytest.approx(LONGEST_S - 0.0001)
