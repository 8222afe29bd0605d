"""The live service against redis-server, nats-server and mosquitto: useful deliveries per second of
server CPU, in one run, with the same clients walking the same ways (`benchmarks/live_load.py`).

Clients publish 64 bytes to about twenty others within 50 units: 1,000 of them twenty times a
second, and 200, and 5,000 four times a second. They do so in twenty groups, one after the other.
Nearcast gets areas; the brokers get one topic per grid cell of 50 units, as a user would emulate
areas with them. A delivery is useful if it comes from within the radius. CPU is the server's own,
user and system, all threads, until all has been heard; every server runs alone, with defaults,
persistence off. What a client does with a message is not measured. Four rows are ours: with
defaults, with everything recorded, with half of the default's share of a core for flushes
(`prompt = 0.3`), and gathering always (`prompt = 0`): the less share, the later and the cheaper.

"limit in C" (`benchmarks/limit.c`) is no server for anybody: it takes the same requests, reads all
sockets and writes the same bytes once per client and 50 ms, and checks nothing. Nobody who does so
can need much less: nearly all of it is the kernel's.

A server that is not installed is named and left out. Load and server share the machine: where it is
too small or busy, publications are made at a slower pace, and it says so.

Run: python benchmarks/live.py [seconds] [clients ...]
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
WORLDS = (CLIENTS, RATE), (200, RATE), (5_000, 4.0)  # clients, and publications of each a second
WANTED = {"redis": 2.5, "nats": 8.0, "mosquitto": 40.0}  # times as many useful deliveries
LOAD = Path(__file__).with_name("live_load.py")
LIMIT = Path(__file__).with_name("limit.c")
LIMIT_FLUSH_MS = 50
NODE = """
import json
import sys
from nearcast.server.config import LimitSettings, Settings
from nearcast.server.server import serve
settings = Settings(port=0, limits=LimitSettings(clients=12_000), **json.loads(sys.argv[1]))
serve(settings, lambda node: print(node.port, flush=True))
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
def nearcast(folder: Path, **settings: Any) -> Iterator[tuple[int, int, float]]:
    """A node's process, its port, and how many seconds it took to be ready."""
    settings["trace"] = str(folder / f"trace-{monotonic()}")
    began = monotonic()
    command = [sys.executable, "-c", NODE, json.dumps(settings)]
    node = subprocess.Popen(command, stdout=subprocess.PIPE)
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


def limit_in_c(folder: Path) -> Callable[[int], list[str]] | None:
    """How it is started on a port; None without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    program = folder / "limit"
    subprocess.run([compiler, "-O2", "-o", str(program), str(LIMIT), "-lm"], check=True)
    return lambda port: [str(program), str(port), str(LIMIT_FLUSH_MS)]


Measured = dict[str, float]
Measure = Callable[..., Measured]  # seconds, and what else `live_load` is asked


def node(folder: Path, **settings: Any) -> Measure:
    """Starts a node with these settings, loads it, and ends it."""

    def measure(seconds: float, **more: Any) -> Measured:
        with nearcast(folder, **settings) as (pid, port, _):
            return load("nearcast", pid, port, seconds, **more)

    return measure


def contestants(folder: Path) -> dict[str, Measure]:
    """Each starts its server, loads it, and ends it."""

    def server(speech: str, command: Callable[[int], list[str]]) -> Measure:
        def measure(seconds: float, **more: Any) -> Measured:
            port = free_port()
            with broker(command(port)) as pid:
                return load(speech, pid, port, seconds, **more)

        return measure

    found_here = {
        OURS: node(folder, record=False), RECORDING: node(folder, record=True),
        THRIFTY: node(folder, record=False, prompt=0.3),
        GATHERING: node(folder, record=False, prompt=0.0),
    }  # fmt: skip
    for name, command in brokers(folder).items():
        if found(name):
            found_here[name] = server(name, command)
        else:
            print(f"{name:22} is not installed here: not measured")
    limit = limit_in_c(folder)
    if limit is None:
        print(f"{LEAST:22} there is no C compiler here: not measured")
    else:
        found_here[LEAST] = server("nearcast", limit)
    return found_here


OURS, RECORDING = "nearcast", "nearcast, recording"
THRIFTY, GATHERING = "nearcast, prompt 0.3", "nearcast, gathering"
LEAST = "limit in C"


def load(server: str, pid: int, port: int, seconds: float, **more: Any) -> Measured:
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
    told: Measured = json.loads(done.stdout)
    told["cpu"] = max(told["user"] + told["system"], 0.01)
    told["efficiency"] = told["useful"] / told["cpu"]
    told["pace"] = seconds / told["wall"]
    return told


def line(name: str, told: Measured) -> None:
    print(
        f"{name:22} {told['efficiency'] / 1e6:8.2f} M useful/CPU-s  "
        f"{told['messages'] / max(told['useful'], 1):5.2f} delivered and "
        f"{told['bytes'] / max(told['useful'], 1):4.0f} bytes per useful  "
        f"{told['useful'] / max(told['published'], 1):5.1f} useful per publication  "
        f"CPU {told['user']:6.2f} s + {told['system']:5.2f} s system in {told['wall']:4.1f} s  "
        f"{100 * told['pace']:4.0f} % of the pace",
        flush=True,
    )


def compare(measures: dict[str, Measure], clients: int, rate: float, seconds: float) -> None:
    print(f"{clients:,} clients x {rate:g} Hz, {RECEIVERS} receivers each")
    told = {}
    for name, measure in measures.items():
        told[name] = measure(seconds, clients=clients, rate=rate)
        line(name, told[name])
    draw_bars(
        f"live-efficiency-{clients:04}",
        f"Useful deliveries per second of server CPU, {clients:,} clients",
        {name: one["efficiency"] for name, one in told.items()},
    )
    cost = 1 - told[RECORDING]["efficiency"] / told[OURS]["efficiency"]
    print(f"recording costs {100 * cost:.0f} % of the throughput (wanted: below 20 %)")
    for name in (*WANTED, LEAST):
        if name in told:
            by_default, thrifty, gathering = (
                told[one]["efficiency"] / max(told[name]["efficiency"], 1.0)
                for one in (OURS, THRIFTY, GATHERING)
            )
            wanted = f" (wanted: {WANTED[name]:g})" if name in WANTED else ""
            print(
                f"nearcast / {name}: {by_default:.2f}, prompt 0.3 {thrifty:.2f},"
                f" gathering {gathering:.2f}{wanted}"
            )
    kernel_line(told)


def kernel_line(told: dict[str, Measured]) -> None:
    """What nobody could exceed who reads and writes as often."""
    ours = told[GATHERING]
    most = ours["useful"] / max(ours["system"], 0.01)
    times = ", ".join(
        f"{most / max(told[name]['efficiency'], 1.0):.1f} times {name}"
        for name in WANTED
        if name in told
    )
    print(
        f"gathering, the kernel takes {100 * ours['system'] / ours['cpu']:.0f} % of our CPU: with"
        f" no other work it would be {most / 1e6:.2f} M useful/CPU-s; {times}"
    )


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 4.0
    asked = [int(number) for number in sys.argv[2:]]
    with tempfile.TemporaryDirectory() as name:
        measures = contestants(Path(name))
        for clients, rate in WORLDS:
            if not asked or clients in asked:
                compare(measures, clients, rate, seconds)


if __name__ == "__main__":
    main()
