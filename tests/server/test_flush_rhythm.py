"""A node flushes at once while that needs little enough CPU, and gathers otherwise."""

import pytest

from nearcast.server import flush_rhythm
from nearcast.server.flush_rhythm import BURST, GATHER_S, PAUSE, FlushRhythm

LONGEST_S, PROMPT = 0.05, 0.8
# CPU seconds to read a publication, to write to a client, and of a delivery besides.
READ, WRITE, MATCH = 5e-6, 5e-6, 2e-7
CLIENTS = 1_000


class PlayedNode:
    """A core that reads and flushes, in a time of its own: `rate` deliveries a second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, prompt: float = PROMPT) -> None:
        self.now = self.used = 0.0
        monkeypatch.setattr(flush_rhythm, "thread_time", lambda: self.used)
        self.rhythm = FlushRhythm(0.0, prompt, LONGEST_S)
        self.waits_since = 0.0

    def run(self, seconds: float, rate: float) -> float:
        """The mean pause meanwhile."""
        end, pauses = self.now + seconds, []
        while self.now < end:
            gap = 50 / rate * 20  # until something waits: bursts of 50 publications to 20 others
            self.now = max(self.now, self.waits_since + gap)
            deliveries = round((self.now - self.waits_since) * rate)
            self.waits_since = self.now
            took = min(deliveries, CLIENTS) * WRITE + deliveries * MATCH
            self.now, self.used = self.now + took, self.used + took + READ * deliveries / 20
            pause = self.rhythm.pause_s(self.now, took, 50, deliveries)
            pauses.append(pause)
            self.now += pause
        return sum(pauses) / len(pauses)


def test_it_gathers_when_flushing_at_once_needs_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    node = PlayedNode(monkeypatch)
    for rate, gathers in ((20_000, False), (400_000, True), (350_000, True), (20_000, False)):
        node.run(3.0, rate)  # until it has noticed
        pause = node.run(3.0, rate)
        assert node.rhythm.gathering is gathers, rate
        assert (pause > 0.9 * LONGEST_S) is gathers


def test_it_does_not_change_its_mind_while_the_load_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    for rate in range(20_000, 500_000, 20_000):
        node = PlayedNode(monkeypatch)
        node.run(3.0, rate)
        before, changes = node.rhythm.gathering, 0
        for _ in range(40):
            node.run(0.25, rate)
            changes += node.rhythm.gathering is not before
            before = node.rhythm.gathering
        assert not changes, rate


def test_who_prefers_little_cpu_gathers_always(monkeypatch: pytest.MonkeyPatch) -> None:
    node = PlayedNode(monkeypatch, prompt=0.0)
    assert node.run(3.0, 1_000) == pytest.approx(LONGEST_S)


def test_a_busy_node_without_deliveries_returns_when_it_is_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = PlayedNode(monkeypatch)
    node.now, node.used = 1.0, 1.0  # it has done something else
    node.rhythm.pause_s(node.now, 0.0, 0, 0)
    assert node.rhythm.gathering
    node.now += 1.0
    assert node.rhythm.pause_s(node.now, 0.001, 1, 1) == PAUSE * 0.001


def test_the_rest_of_a_burst_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    rhythm = PlayedNode(monkeypatch).rhythm
    assert rhythm.gather_s == 0.0, "one to one, nobody waits"
    rhythm.pause_s(0.1, 0.001, BURST, 100)
    assert rhythm.gather_s == GATHER_S
    rhythm.pause_s(0.2, 0.001, BURST - 1, 100)
    assert rhythm.gather_s == 0.0
