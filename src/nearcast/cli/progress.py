"""How far long work is, on a terminal; nothing anywhere else. And why a first start is slow."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nearcast.pipeline.sweeps import SweepProgress as Sweeping
    from nearcast.sim.run import SimulationProgress


class SimulationMeter:
    """A line on the terminal that tells how far a run is and how long it will take."""

    def __init__(self) -> None:
        self._began = monotonic()

    def __call__(self, progress: "SimulationProgress") -> None:
        share, took = progress.done / progress.whole, monotonic() - self._began
        left = took / share - took if share else 0.0
        bar = "█" * round(share * 24)
        sys.stderr.write(
            f"\r{bar:░<24} {progress.done / 1e6:7.1f} of {progress.whole / 1e6:.1f} s simulated, "
            f"{progress.messages:,} messages, {left:.0f} s left \x1b[K"
        )
        sys.stderr.flush()

    def clear(self) -> None:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()


class StepMeter:
    """What long work is doing, on a terminal."""

    def __init__(self) -> None:
        self._began = monotonic()

    def __call__(self, what: str, done: int, whole: int) -> None:
        if sys.stderr.isatty():
            bar = "█" * round(done / whole * 24)
            sys.stderr.write(f"\r{bar:░<24} {what} ({monotonic() - self._began:.0f} s)\x1b[K")
            sys.stderr.flush()

    def of_sweep(self, progress: "Sweeping") -> None:
        done = progress.skipped + progress.done + progress.failed
        left = "" if progress.left_s is None else f", {progress.left_s:.0f} s left"
        failed = f", {progress.failed} failed" if progress.failed else ""
        self(f"{done} of {progress.total} scenarios{failed}{left}", done, progress.total)

    def clear(self) -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


COMPILING = "nearcast: compiling kernels; this takes half a minute, once after installing\n"


@contextmanager
def telling_of_compilation() -> Iterator[None]:
    """Say once on standard error, anywhere, that kernels are compiled, as soon as one is.

    numba keeps them, so only the first start waits; and set-up by `make` has compiled them.
    """
    from numba.core import event

    class _CompilationListener(event.Listener):
        told = False

        def on_start(self, _: object) -> None:
            if not self.told:
                self.told = True
                sys.stderr.write(COMPILING)
                sys.stderr.flush()

        def on_end(self, _: object) -> None:
            pass

    with event.install_listener("numba:compile", _CompilationListener()):
        yield
