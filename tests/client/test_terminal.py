"""The live service from a terminal: node, listen, say, config."""

import asyncio
import json
import os
import signal
import socket
import subprocess
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any
from unittest.mock import patch
from urllib.request import urlopen

import pytest

from nearcast.cli import terminal
from nearcast.cli.clients import area_of
from nearcast.cli.main import main
from nearcast.client import websocket
from nearcast.server.config import Settings, default_file
from nearcast.server.server import Server
from nearcast.space.shapes import point
from nearcast.trace import reader
from nearcast.trace.validate import validate
from support.fork_server import fork_server
from support.patience import PATIENCE_S
from support.ports import free_port


def environment(**more: str) -> dict[str, str]:
    ours = {name: text for name, text in os.environ.items() if not name.startswith("NEARCAST_")}
    return {**ours, **more}


@contextmanager
def program(
    *arguments: object, folder: Path, stop: int = signal.SIGTERM, **more: str
) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [fork_server(), *map(str, arguments)], cwd=folder, env=environment(**more),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(stop)
        try:
            process.wait(PATIENCE_S)
        finally:
            process.kill()


def document(process: "subprocess.Popen[str]") -> Any:
    """One indented JSON document from its output."""
    assert process.stdout is not None
    lines = []
    while (line := process.stdout.readline()) not in ("}\n", ""):
        lines.append(line)
    return json.loads("".join([*lines, line]))


def run(*arguments: object, **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [fork_server(), *map(str, arguments)],
        env=environment(**more), capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_what_is_published_in_one_terminal_is_delivered_in_another(
    tmp_path: Path, stop: int
) -> None:
    with program("node", "--port", 0, "--trace", "t", "--json", folder=tmp_path, stop=stop) as node:
        told = document(node)
        url = told["url"]
        assert (url, told["trace"]) == (f"ws://127.0.0.1:{told['port']}", "t")
        where = ("--x", "-5", "--y", "0", "--r", "50")
        with program("listen", url, *where, "--count", "2", folder=tmp_path) as listener:
            assert listener.stdout is not None and listener.stderr is not None
            assert listener.stderr.readline() == "listening (stop with Ctrl-C)\n"
            assert run("say", url, "--x", "3", "--y", "4", "hello").returncode == 0
            assert run("say", url, "--x", "900", "--y", "4", "far away").returncode == 0
            last = run("say", url, "--x", "60", "--y", "0", "--r", "20", "two words", "--json")
            assert json.loads(last.stdout) == {"publication": 3}
            assert listener.stdout.read() == "2 at (3, 4): hello\n4 at (60, 0): two words\n"
            assert listener.wait(PATIENCE_S) == 0
    assert node.returncode == 0
    assert not validate(tmp_path / "t").problems
    assert reader.read(tmp_path / "t", "deliveries").num_rows == 2


def test_listening_can_watch_and_speak_json(tmp_path: Path) -> None:
    with program("node", "--port", 0, "--no-record", "--json", folder=tmp_path) as node:
        url = document(node)["url"]
        arguments = ("listen", url, "--watch", "--json", "--count", "3")
        with program(*arguments, folder=tmp_path) as listener:
            assert listener.stdout is not None and listener.stderr is not None
            listener.stderr.readline()
            body = json.dumps({"x": 1, "y": 2, "payload": {"hp": 3}, "retain": True})
            publish = url.replace("ws://", "http://") + "/publish?name=anna"
            urlopen(publish, body.encode()).close()
            seen = [json.loads(listener.stdout.readline()) for _ in range(2)]
            run("say", url, "--x", 0, "--y", 0, "bye")
            last = json.loads(listener.stdout.readline())
    by_kind = {next(iter(line)): line for line in seen}
    assert set(by_kind) == {"message", "enter"}, "a state is said, and somebody is there"
    entered, message = by_kind["enter"], by_kind["message"]
    assert (entered["name"], entered["x"], entered["payload"]) == ("anna", 1, {"hp": 3})
    assert (message["from"], message["payload"]) == (entered["enter"], {"hp": 3})
    assert last["payload"] == "bye"
    assert not (tmp_path / "traces").exists()


def test_who_listens_is_told_of_a_node_that_stops_and_comes_back(tmp_path: Path) -> None:
    port = free_port()
    with program("node", "--port", port, "--no-record", "--json", folder=tmp_path) as node:
        told = document(node)
        with program("listen", told["url"], "--count", "1", folder=tmp_path) as listener:
            assert listener.stdout is not None and listener.stderr is not None
            assert listener.stderr.readline() == "listening (stop with Ctrl-C)\n"
            node.send_signal(signal.SIGTERM)
            assert listener.stderr.readline() == "disconnected: the node stops\n"
            again = ("node", "--port", port, "--no-record", "--json")
            with program(*again, folder=tmp_path):
                assert listener.stderr.readline() == "listening again\n"
                run("say", told["url"], "--x", 0, "--y", 0, "still there?")
                assert listener.stdout.readline() == "2 at (0, 0): still there?\n"


def test_a_node_obeys_its_file_then_the_environment_then_its_flags(tmp_path: Path) -> None:
    (tmp_path / "nearcast.toml").write_text("port = 1\nrecord = false\ntoken = 'from the file'\n")
    word = "open sesame"
    with program("node", "--port", 0, "--json", folder=tmp_path, NEARCAST_TOKEN=word) as node:
        told = document(node)
        assert told["trace"] is None
        wrong = run("say", told["url"], "--x", 0, "--y", 0, "hi", NEARCAST_TOKEN="from the file")
        assert (wrong.returncode, wrong.stderr) == (2, "nearcast: this token is not known here\n")
        assert (
            run("say", told["url"], "--x", 0, "--y", 0, "hi", NEARCAST_TOKEN=word).returncode == 0
        )


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["node", "--host", "0.0.0.0"], 2, "--host: host '0.0.0.0' can be reached from elsewhere"),
        (["node", "--port", "70000"], 2, "--port: port = 70000: expected int <= 65535"),
        (["node", "--config", "no.toml"], 2, "there is no no.toml"),
        (["node", "--tls-key", "k"], 2, "tls_certificate and tls_key go together"),
        (
            ["node", "--join", "here"],
            2,
            "--join: cluster.join and cluster.port need a cluster",
        ),
        (["up", "--bots", "-1"], 2, "bots must be 0 or more, not -1"),
        (["monitor", "t", "--port", "99999"], 2, "a port is from 0 to 65535, not '99999'"),
        (["listen", "ws://127.0.0.1:1", "--count", "0"], 2, "--count must be 1 or more, not 0"),
        (["listen", "ws://127.0.0.1:1"], 1, "cannot connect to ws://127.0.0.1:1"),
        (["listen", "ws://127.0.0.1:1", "--x", "3"], 2, "give both --x and --y"),
        (["say", "ws://127.0.0.1:1", "--x", "1", "--y", "1"], 2, "TEXT"),
        (["say", "ws://127.0.0.1:1", "hi"], 2, "give --x and --y, or --lon and --lat"),
        (["listen", "ws://127.0.0.1:1", "--lon", "3"], 2, "give both --lon and --lat"),
        (["say", "ws://127.0.0.1:1", "--lon", "3", "--lat", "4", "--x", "5", "hi"], 2, "not both"),
        (["say", "ws://127.0.0.1:1", "--to", "a", "--x", "1", "--y", "2", "hi"], 2, "neither a pl"),
    ],
)
def test_wrong_use_is_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    arguments: list[str], code: int, says: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(terminal, "NODE_WAIT_S", 0.0)
    try:
        found = main(arguments)
    except SystemExit as stop:
        found = int(stop.code or 0)
    err = capsys.readouterr().err
    assert (found, err.count("\n")) == (code, 1)
    assert says in err


def test_on_earth_places_are_longitude_and_latitude() -> None:
    async def story() -> list[dict[str, Any]]:
        shown: list[dict[str, Any]] = []
        async with Server(Settings(port=0, record=False, geometry="earth")) as node:
            url, listens = f"ws://127.0.0.1:{node.port}", asyncio.Event()
            around = area_of(Namespace(lon=8.5, lat=47.4, r=500.0, x=None, y=None))
            listening = asyncio.create_task(
                terminal.listen(url, around, shown.append, most=1, report=lambda _: listens.set())
            )
            await listens.wait()
            for lat in (47.41, 47.402):
                place = area_of(Namespace(lon=8.5, lat=lat, r=None, x=None, y=None))
                await terminal.publish(url, place, "hi")
            await listening
        return shown

    (shown,) = asyncio.run(story())
    assert (shown["lon"], shown["lat"]) == (8.5, 47.402)
    assert terminal.summary_line(shown).endswith("at (8.500000, 47.402000): hi")


def test_a_text_is_sent_to_who_listens() -> None:
    async def story() -> list[dict[str, Any]]:
        shown: list[dict[str, Any]] = []
        async with Server(Settings(port=0, record=False)) as node:
            url, listens = f"ws://127.0.0.1:{node.port}", asyncio.Event()
            nowhere = point(9, 9)
            listening = asyncio.create_task(
                terminal.listen(
                    url, nowhere, shown.append, name="bo", most=1, report=lambda _: listens.set()
                )
            )
            await listens.wait()
            number = await terminal.send(url, "bo", "psst", name="ann")
            await listening
            assert shown[0]["direct"] == number
        return shown

    (shown,) = asyncio.run(story())
    assert terminal.summary_line(shown) == "ann to you alone: psst"


def test_a_client_waits_for_a_node_that_is_just_starting() -> None:
    """Nobody listens there until the client has said that it waits."""

    async def story() -> int:
        reports: list[str] = []
        waits = asyncio.Event()

        def report(text: str) -> None:
            reports.append(text)
            waits.set()

        port = free_port()
        url = f"ws://127.0.0.1:{port}"
        publishing = asyncio.create_task(terminal.publish(url, point(0, 0), "hi", report=report))
        await waits.wait()
        async with Server(Settings(port=port, record=False)):
            number = await publishing
        assert reports == [f"waiting for a node at {url}"]
        return number

    with patch.multiple(terminal, NODE_WAIT_S=PATIENCE_S, REPORT_AFTER_S=0.0):
        assert asyncio.run(story()) == 1


def test_a_client_does_not_wait_for_ever(capfd: pytest.CaptureFixture[str]) -> None:
    with patch.multiple(terminal, NODE_WAIT_S=0.3, REPORT_AFTER_S=0.0):
        assert main(["say", "ws://127.0.0.1:1", "--x", "1", "--y", "1", "hi"]) == 1
    waiting, end = capfd.readouterr().err.splitlines()
    assert waiting == "waiting for a node at ws://127.0.0.1:1"
    assert end.startswith("nearcast: cannot connect to ws://127.0.0.1:1: ")
    assert end.endswith(" (tried for 0.3 seconds)")


def hang_up(connection: socket.socket) -> None:
    connection.recv(10_000)


def refuse(connection: socket.socket) -> None:
    connection.recv(10_000)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")


def wait(_: socket.socket) -> None:
    """Until the end of the test."""


@pytest.mark.parametrize(
    ("scheme", "answer", "says"),
    [
        ("ws", hang_up, "it has hung up (a node with TLS has a wss:// address)"),
        ("wss", hang_up, "it has hung up (a node without TLS has a ws:// address)"),
        ("ws", refuse, "received 400"),
        ("wss", refuse, "wrong version number"),
        ("wss", refuse, "(a node without TLS has a ws:// address)"),
        ("ws", wait, "no answer within 0.5 seconds (a node with TLS has a wss:// address)"),
        ("wss", wait, "no answer within 0.5 seconds (a node without TLS has a ws:// address)"),
    ],
)
@pytest.mark.parametrize("command", ["say", "listen"])
def test_who_does_not_answer_as_a_node_is_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
    command: str, scheme: str, answer: Callable[[socket.socket], None], says: str,
) -> None:  # fmt: skip
    if answer is wait:
        monkeypatch.setattr(websocket, "CONNECT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"{scheme}://127.0.0.1:{server.getsockname()[1]}"

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                answer(connection)
                if answer is wait:
                    over.wait()

        over = Event()
        thread = Thread(target=serve)
        thread.start()
        assert main([command, url, "--x", "1", "--y", "1", *["hi"] * (command == "say")]) == 1
        over.set()
        thread.join()
    err = capfd.readouterr().err
    assert err.count("\n") == 1, err
    assert err.startswith(f"nearcast: cannot connect to {url}: ")
    assert says in err


def test_config_prints_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config"]) == 0
    assert capsys.readouterr().out == default_file()
    assert main(["config", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["limits"]["subscriptions"] == 64
