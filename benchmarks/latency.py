"""How long a publication is on its way: nearcast, redis, nats and mosquitto, in one run.

The clients are those of `benchmarks/live.py`: 1,000 of them, with about twenty receivers each. They
publish at a quarter, half and all of what a core of redis can do, which is measured first. Of 50 of
them, each delivery from within the radius is timed from the publisher's clock to the reader's; a
reader looks every half millisecond. One row is one client to one other, on an idle node.

Load and server share the machine: where it is too small or busy, publications are made at a slower
pace, and it says so.

Run: python benchmarks/latency.py [seconds]
"""

import sys
import tempfile
from pathlib import Path

from figures import draw_bars
from live import CLIENTS, LEAST, OURS, RATE, RECORDING, Measure, Measured, contestants

PARTS = 0.25, 0.5, 1.0  # of the capacity
SAMPLE = 50


def wait_line(name: str, part: float, told: Measured) -> None:
    print(
        f"{name:22} {100 * part:4.0f} %  {told['p50']:7.1f} {told['p99']:8.1f} {told['p999']:8.1f}"
        f"  CPU {100 * told['cpu'] / told['wall']:4.0f} %  {100 * told['pace']:4.0f} % of the pace",
        flush=True,
    )


def at_parts(measures: dict[str, Measure], seconds: float, capacity: float) -> None:
    """Prints the table, for parts of this many publications a second."""
    for part in PARTS:
        waits = {}
        for name, measure in measures.items():
            waits[name] = measure(seconds, rate=part * capacity / CLIENTS, sample=SAMPLE)
            wait_line(name, part, waits[name])
        draw_bars(
            f"latency-{100 * part:03.0f}",
            f"p99 of latency in ms, at {100 * part:.0f} % of {capacity:,.0f} publications/s",
            {name: told["p99"] for name, told in waits.items()}, "{:,.1f} ms",
        )  # fmt: skip


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 4.0
    with tempfile.TemporaryDirectory() as folder:
        measures = contestants(Path(folder))
        for name in RECORDING, LEAST:
            measures.pop(name, None)
        told = measures.get("redis", measures[OURS])(seconds, rate=RATE)
        capacity = told["published"] / max(told["cpu"], 0.01)
        print(
            f"latency in ms: p50, p99 and p99.9 at parts of {capacity:,.0f} publications/s,"
            " which takes redis a core"
        )
        at_parts(measures, seconds, capacity)
        told = measures[OURS](seconds, clients=2, receivers=2, rate=20.0, sample=2)
        wait_line("two clients alone", 0.0, told)


if __name__ == "__main__":
    main()
