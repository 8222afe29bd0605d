"""The two commands, from their start to their end."""

import json
import os
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from nearcast.cli.main import main
from nearcast.trace.validate import validate
from support.fork_server import fork_server
from support.monitor_processes import started
from support.patience import PATIENCE_S
from support.snapshot_reader import read


def fetched(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=PATIENCE_S) as answer:
        return bytes(answer.read())


def children(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(child) for child in listed.split()]


def test_up_opens_a_world_and_leaves_a_sound_trace_when_interrupted(tmp_path: Path) -> None:
    trace = tmp_path / "world"
    with started("up", "--port", "0", "--bots", "8", "--trace", trace) as world:
        assert world.said["trace"] == str(trace)
        assert b"<canvas" in fetched(world.page)
        assert b"export" in fetched(f"{world.page}nearcast.js")
        assert b"import" in fetched(f"{world.page}monitor/page.js")
        with pytest.raises(urllib.error.HTTPError):
            fetched(f"{world.page}monitor/../server.py")
        entities: list[tuple[float, ...]] = []
        while len(entities) < 8:
            _, entities, _, _ = read(fetched(f"{world.page}monitor/world"))
        bots = children(world.process.pid)
        assert bots
        world.process.send_signal(signal.SIGINT)
        assert world.process.wait(PATIENCE_S) == 0
        assert not any(Path(f"/proc/{bot}").exists() for bot in bots)
    report = validate(trace)
    assert not report.problems and report.finished
    assert report.tables["interests"].rows >= 8


def test_up_without_bots_is_a_node_with_a_page(tmp_path: Path) -> None:
    with started("up", "--port", "0", "--bots", "0", "--trace", tmp_path / "t") as world:
        assert children(world.process.pid) == []
        assert b'"game":false' in fetched(f"{world.page}monitor/about")


@pytest.mark.parametrize(
    ("overlay", "link"),
    [
        ("psense", "tls"), ("von", "quic"), ("vso", "tls"), ("client-server", "tls"),
        ("drtree", "tls"), ("brokers", "tls"), ("relays", "tls"),
    ],
)  # fmt: skip
def test_planetpi4_is_flown_in_any_overlay_and_each_peer_knows_who_is_in_sight(
    overlay: str, link: str
) -> None:
    with started(
        "up", "--game", "planetpi4", "--overlay", overlay, "--link", link, "--port", "0",
        "--bots", "5",
    ) as world:  # fmt: skip
        assert world.said["overlay"] == overlay
        about = json.loads(fetched(f"{world.page}monitor/about"))
        assert (about["overlay"], about["servers"] > 0) == (
            overlay, overlay in ("client-server", "brokers"),
        )  # fmt: skip
        known = 0
        while not known:  # a peer knows a ship that it sees
            ships = json.loads(fetched(f"{world.page}monitor/ships"))
            seen = ships["awareness"].values()
            assert all(one <= of and of + wrong <= all_ for one, of, wrong, all_ in seen)
            known = sum(one for one, *_ in seen)
        assert 0 < ships["aware"] <= 1 and 0 <= ships["accuracy"] <= 1


def test_walkers_play_on_a_node_and_in_no_overlay(capsys: pytest.CaptureFixture[str]) -> None:
    for option, value in (("--overlay", "psense"), ("--link", "quic")):
        assert main(["up", option, value]) == 2
        assert f"{option} is for --game planetpi4" in capsys.readouterr().err


def test_a_port_that_is_taken_is_reported_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ended = subprocess.run(
            [fork_server(), "up", "--port", port, "--trace", tmp_path / "t"],
            capture_output=True, text=True, timeout=PATIENCE_S,
            env={**os.environ, "NEARCAST_DEBUG": ""},
        )  # fmt: skip
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1 and "in use" in ended.stderr


def test_a_missing_trace_is_reported_in_one_line(tmp_path: Path) -> None:
    ended = subprocess.run(
        [fork_server(), "monitor", tmp_path / "nowhere"],
        capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1 and "nowhere" in ended.stderr
