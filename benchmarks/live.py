"""The live service against redis-server, nats-server and mosquitto: useful deliveries per second of
server CPU, in one run, with the same clients walking the same ways (`benchmarks/live_load.py`).

1,000 clients publish 64 bytes twenty times a second, each in a phase of its own, to about twenty
others within 50 units. Nearcast gets areas; the brokers get one topic per grid cell of 50 units, as
a user would emulate areas with them. A delivery is useful if it comes from within the radius. CPU
is the server's own, user and system, all threads, until all has been heard; every server runs
alone, with defaults, persistence off. What a client does with a message is not measured.

Also: latency of all at a quarter, half and all of what redis can do, and of one client to another
on an idle node; seconds until a node is ready, and 10,000 clients at one publication a second each.
A server that is not installed is named and left out. Load and server share the machine: where it is
too small or busy, publications are made at a slower pace, and it says so.

Run: python benchmarks/live.py [seconds]
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from figures import draw_bars

CLIENTS, RATE, RECEIVERS = 1_000, 20.0, 20
WANTED = {"redis": 2.5, "nats": 8.0, "mosquitto": 40.0}  # times as many useful deliveries
LOAD = Path(__file__).with_name("live_load.py")
NODE = """
import sys
from nearcast.server.config import LimitSettings, Settings
from nearcast.server.server import serve
record, trace = sys.argv[1] == "yes", sys.argv[2]
limits = LimitSettings(clients=12_000)
serve(
    Settings(port=0, record=record, trace=trace, limits=limits),
    lambda node: print(node.port, flush=True),
)
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@contextmanager
def ended(process: "subprocess.Popen[bytes]") -> Iterator["subprocess.Popen[bytes]"]:
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def nearcast(folder: Path, record: bool) -> Iterator[tuple[int, int, float]]:
    """A node's process, its port, and how many seconds it took to be ready."""
    trace = str(folder / f"trace-{monotonic()}")
    began = monotonic()
    node = subprocess.Popen(
        [sys.executable, "-c", NODE, "yes" if record else "no", trace],
        stdout=subprocess.PIPE,
    )
    with ended(node):
        assert node.stdout is not None
        port = int(node.stdout.readline())
        yield node.pid, port, monotonic() - began


def brokers(folder: Path) -> dict[str, Callable[[int], list[str]]]:
    """How each is started on a port."""

    def mosquitto(port: int) -> list[str]:
        settings = folder / "mosquitto.conf"
        settings.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nlog_type none\n")
        return ["mosquitto", "-c", str(settings)]

    return {
        "redis": lambda port: [
            "redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "",
            "--appendonly", "no", "--dir", str(folder),
        ],
        "nats": lambda port: ["nats-server", "-a", "127.0.0.1", "-p", str(port)],
        "mosquitto": mosquitto,
    }  # fmt: skip


@contextmanager
def broker(command: list[str]) -> Iterator[int]:
    quiet = subprocess.DEVNULL
    with ended(subprocess.Popen(command, stdout=quiet, stderr=quiet)) as process:
        sleep(1.0)
        assert process.poll() is None, f"{command[0]} did not start"
        yield process.pid


def found(name: str) -> bool:
    """Debian keeps some servers where only root looks for them."""
    os.environ["PATH"] += ":/usr/sbin"
    return (
        shutil.which({"redis": "redis-server", "nats": "nats-server"}.get(name, name)) is not None
    )


def load(server: str, pid: int, port: int, seconds: float, **more: Any) -> dict[str, float]:
    asked = {
        "server": server, "pid": pid, "port": port, "seconds": seconds, "clients": CLIENTS,
        "rate": RATE, "receivers": RECEIVERS, "sample": 0, **more,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(LOAD), json.dumps(asked)], capture_output=True, text=True,
        timeout=seconds * 4 + 120,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"the load for {server} failed: {done.stderr.strip()[-500:]}")
    told: dict[str, float] = json.loads(done.stdout)
    told["cpu"] = max(told["user"] + told["system"], 0.01)
    told["efficiency"] = told["useful"] / told["cpu"]
    told["pace"] = seconds / told["wall"]
    return told


def line(name: str, told: dict[str, float]) -> None:
    print(
        f"{name:22} {told['efficiency'] / 1e6:8.2f} M useful/CPU-s  "
        f"{told['messages'] / max(told['useful'], 1):5.2f} delivered per useful  "
        f"CPU {told['user']:6.2f} s + {told['system']:5.2f} s system in {told['wall']:4.1f} s  "
        f"{100 * told['pace']:4.0f} % of the pace",
        flush=True,
    )


def compare(folder: Path, seconds: float) -> float:
    """Prints the table; how many publications a second redis has made, or we have without it."""
    print(f"{CLIENTS:,} clients x {RATE:g} Hz, {RECEIVERS} receivers each")
    with nearcast(folder, record=False) as (pid, port, _):
        ours = load("nearcast", pid, port, seconds)
    line("nearcast", ours)
    with nearcast(folder, record=True) as (pid, port, _):
        recorded = load("nearcast", pid, port, seconds)
    line("nearcast, recording", recorded)
    cost = 1 - recorded["efficiency"] / ours["efficiency"]
    theirs = {}
    for name, command in brokers(folder).items():
        if not found(name):
            print(f"{name:22} is not installed here: not measured")
            continue
        port = free_port()
        with broker(command(port)) as pid:
            theirs[name] = load(name, pid, port, seconds)
        line(name, theirs[name])
    draw_bars(
        "live-efficiency", "Useful deliveries per second of server CPU",
        {
            name: told["efficiency"]
            for name, told in {"Nearcast": ours, "Nearcast, recording": recorded, **theirs}.items()
        },
    )  # fmt: skip
    print(f"recording costs {100 * cost:.0f} % of the throughput (wanted: below 20 %)")
    for name, told in theirs.items():
        ratio = ours["efficiency"] / max(told["efficiency"], 1.0)
        print(f"nearcast / {name}: {ratio:.1f} (wanted: {WANTED[name]:g})")
    most = theirs.get("redis", ours)
    return most["published"] / most["wall"]


def latencies(folder: Path, seconds: float, capacity: float) -> None:
    """Of 50 of the clients, at parts of this many publications a second."""
    print(f"latency in ms: p50, p99 and p99.9 at parts of {capacity:,.0f} publications/s")
    for part in (0.25, 0.5, 1.0):
        more = {"rate": part * capacity / CLIENTS, "sample": 50}
        with nearcast(folder, record=False) as (pid, port, _):
            waits = {"Nearcast": load("nearcast", pid, port, seconds, **more)}
        wait_line("nearcast", part, waits["Nearcast"])
        for name, command in brokers(folder).items():
            if found(name):
                port = free_port()
                with broker(command(port)) as pid:
                    waits[name] = load(name, pid, port, seconds, **more)
                wait_line(name, part, waits[name])
        draw_bars(
            f"live-latency-{100 * part:03.0f}",
            f"p99 of latency in ms, at {100 * part:.0f} % of {capacity:,.0f} publications/s",
            {name: told["p99"] for name, told in waits.items()}, "{:,.1f} ms",
        )  # fmt: skip
    with nearcast(folder, record=False) as (pid, port, _):
        told = load("nearcast", pid, port, seconds, clients=2, receivers=2, rate=20.0, sample=2)
    wait_line("two clients alone", 0.0, told)


def wait_line(name: str, part: float, told: dict[str, float]) -> None:
    print(
        f"{name:22} {100 * part:4.0f} %  {told['p50']:7.1f} {told['p99']:8.1f} {told['p999']:8.1f}"
        f"  CPU {100 * told['cpu'] / told['wall']:4.0f} %  {100 * told['pace']:4.0f} % of the pace",
        flush=True,
    )


def rest(folder: Path, seconds: float) -> None:
    with nearcast(folder, record=True) as (_, _, ready):
        pass
    print(f"ready to serve {ready:.2f} s after its start (wanted: below 1.5 s)")
    with nearcast(folder, record=True) as (pid, port, _):
        told = load("nearcast", pid, port, seconds, clients=10_000, rate=1.0)
    print(
        f"10,000 clients at 1 Hz: {100 * told['cpu'] / told['wall']:.0f} % of one core,"
        f" {told['useful'] / max(told['published'], 1):.1f} useful deliveries per publication,"
        f" {100 * told['pace']:.0f} % of the pace"
    )


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    with tempfile.TemporaryDirectory() as name:
        capacity = compare(Path(name), seconds)
        latencies(Path(name), seconds, capacity)
        rest(Path(name), seconds)


if __name__ == "__main__":
    main()
