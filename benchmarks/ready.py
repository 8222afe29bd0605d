"""How soon Nearcast is ready, and what an idle node takes, against redis-server and nats-server.

- Start: seconds from the start of the command (`nearcast node`, as a user types it) until a client
  has joined; brokers until they answer. "Warm" is the fastest of the turns and their median;
  "first" is after all files of the environment have been dropped from the page cache, as after
  set-up on a machine that has been restarted.
- Memory: resident megabytes of an idle node (`VmRSS`) some seconds after it is ready, recording
  and not; and how many of them are anonymous (`RssAnon`): the others are pages of files, which the
  system reads again if they are needed.
- Peers: sixteen peers of an overlay, each with its own key, port and links, as `nearcast.join`
  makes them, all in one program on this machine and with the overlay's default settings, but that
  pSense may send as much as fifteen others in view need: its usual limit is enough for a dozen.
  They join one after the other by the first one's address and subscribe to the same disc; then each
  publishes every quarter of a second. An overlay is ready at the first turn of publications of
  which every peer hears all fifteen others'. Seconds are since the first join began, and since the
  last ended.

Run: python benchmarks/ready.py [--turns 5] [--peers 16] [--only start,memory,OVERLAY,...]
"""

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from statistics import median
from time import monotonic, sleep

from live import brokers, ended, found, free_port

import nearcast
from nearcast import disc, point
from nearcast.client.client import Client
from nearcast.client.subscription import Subscription
from nearcast.peer.bootstrap import BOOTSTRAPS
from nearcast.peer.host import run

WANTED_START_S, WANTED_PEERS_S, WANTED_MB = 1.5, 10.0, 150
IDLE_S = 5.0
TURN_S = 0.25
PATIENCE_S = 120.0
SETTINGS = {"psense": {"limit": 20_000}}  # bytes a round


@contextmanager
def node(folder: str, record: bool) -> Iterator[tuple[int, float]]:
    """A node's process, and how many seconds it took until a client had joined."""
    port = free_port()
    command = [sys.executable, "-m", "nearcast.cli", "node", "--port", str(port)]
    command += ["--trace", f"{folder}/{monotonic()}"] if record else ["--no-record"]
    began = monotonic()
    with ended(subprocess.Popen(command, stdout=subprocess.DEVNULL)) as process:
        until_connected(port, process)
        asyncio.run(join(port))
        yield process.pid, monotonic() - began


@contextmanager
def broker(command: list[str], port: int) -> Iterator[tuple[int, float]]:
    began, quiet = monotonic(), subprocess.DEVNULL
    with ended(subprocess.Popen(command, stdout=quiet, stderr=quiet)) as process:
        until_connected(port, process)
        yield process.pid, monotonic() - began


def until_connected(port: int, process: "subprocess.Popen[bytes]") -> None:
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            sleep(0.002)
        else:
            return
    raise SystemExit(f"a server has ended with {process.returncode}")


async def join(port: int) -> None:
    async with nearcast.connect(f"ws://127.0.0.1:{port}"):
        pass


def resident(pid: int) -> str:
    """Its resident memory, and what of it nobody else can have."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    values = dict(line.split(":", 1) for line in lines)
    whole, own = (int(values[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon"))
    return f"{whole:.0f} MB, {own:.0f} of them anonymous"


def drop_from_page_cache() -> None:
    """All files of this Python and its packages, as far as nobody else has them mapped."""
    for root in {sys.prefix, sys.base_prefix, str(Path(nearcast.__file__).parents[2])}:
        for path in Path(root).rglob("*"):
            if path.is_file() and not path.is_symlink():
                with path.open("rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def start(folder: str, turns: int) -> None:
    drop_from_page_cache()
    with node(folder, record=True) as (_, first):
        pass
    warm = []
    for _ in range(turns):
        with node(folder, record=True) as (_, seconds):
            warm.append(seconds)
    print(
        f"nearcast node, first {first:6.2f} s, warm {min(warm):.2f} s (median {median(warm):.2f})"
        f"; wanted: below {WANTED_START_S:g} s",
        flush=True,
    )
    for name, command in brokers(Path(folder)).items():
        if found(name):
            port = free_port()
            with broker(command(port), port) as (_, seconds):
                print(f"{name:20} {seconds:6.2f} s", flush=True)


def memory(folder: str) -> None:
    for what, record in (("recording", True), ("not recording", False)):
        with node(folder, record) as (pid, _):
            sleep(IDLE_S)
            print(f"idle node, {what}: {resident(pid)}; wanted: below {WANTED_MB} MB", flush=True)
    for name, command in brokers(Path(folder)).items():
        if found(name):
            port = free_port()
            with broker(command(port), port) as (pid, _):
                sleep(1.0)
                print(f"idle {name}: {resident(pid)}", flush=True)


class Listener:
    """One peer, and the last turn that it has heard of each other one."""

    def __init__(self, peer: Client, here: Subscription) -> None:
        self.peer = peer
        self.heard: dict[int, int] = {}  # by turn: how many others
        self._task = asyncio.ensure_future(self._listen(here))

    async def _listen(self, here: Subscription) -> None:
        async for message in here:
            self.heard[message.payload] = self.heard.get(message.payload, 0) + 1

    async def end(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])


async def peers(overlay: str, number: int) -> tuple[float, float] | None:
    """Seconds until they are ready; None if they are not within our patience."""
    began = monotonic()
    async with AsyncExitStack() as stack:
        listeners: list[Listener] = []
        contact = None
        for _ in range(number):
            if contact is None:
                made = nearcast.join(overlay, **SETTINGS.get(overlay, {}))
            else:
                made = nearcast.join(contact=contact)
            peer = await stack.enter_async_context(made)
            contact = contact or peer.node
            listeners.append(Listener(peer, await peer.subscribe(disc(0, 0, 50))))
            stack.push_async_callback(listeners[-1].end)
        joined = monotonic()
        turn = 0
        while monotonic() - joined < PATIENCE_S:
            turn += 1
            for place, listener in enumerate(listeners):
                await listener.peer.publish(point(place, 0), turn)
            end = monotonic() + TURN_S
            while monotonic() < end:
                await asyncio.sleep(0.01)
                complete = [
                    one
                    for one in range(1, turn + 1)
                    if all(listener.heard.get(one) == number - 1 for listener in listeners)
                ]
                if complete:
                    now = monotonic()
                    return now - began, now - joined
    return None


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    options.add_argument("--turns", type=int, default=5)
    options.add_argument("--peers", type=int, default=16)
    options.add_argument("--only", default="")
    asked = options.parse_args()
    only = set(filter(None, asked.only.split(",")))
    parts: dict[str, Callable[[str], None]] = {
        "start": lambda folder: start(folder, asked.turns),
        "memory": memory,
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, part in parts.items():
            if not only or name in only:
                part(folder)
    for overlay in BOOTSTRAPS:
        if only and overlay not in only:
            continue
        seconds = run(peers(overlay, asked.peers))
        told = "not ready within our patience" if seconds is None else (
            f"ready after {seconds[0]:5.1f} s, {seconds[1]:5.1f} s after the last joined"
        )  # fmt: skip
        print(
            f"{asked.peers} peers of {overlay:14} {told}; wanted: below {WANTED_PEERS_S:g} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
