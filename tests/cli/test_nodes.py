"""`nearcast nodes`: who of a cluster serves, and what a node that cannot answer says."""

import asyncio
import json
from pathlib import Path

import pytest

from nearcast.cli.main import main
from nearcast.cli.nodes import table_lines
from nearcast.monitor.server import LiveMonitor
from nearcast.server.config import ClusterSettings, Settings
from nearcast.server.server import Server


def run_against(settings: Settings, *flags: str) -> int:
    """The command, while a node with these settings serves."""

    async def story() -> int:
        async with Server(settings) as service:
            LiveMonitor(service)
            url = service.url.removesuffix("/ws")
            return await asyncio.to_thread(main, ["nodes", url, *flags])

    return asyncio.run(story())


def test_a_table_has_a_row_for_each_node_and_says_why() -> None:
    members = [
        {"url": "ws://a", "state": "active", "load": 0.456, "capacity": 20.0, "reason": ""},
        {"url": "ws://bb", "state": "standing by", "load": 0.0, "capacity": 1e5, "reason": "idle"},
    ]
    assert table_lines(members) == [
        "node     state        load  capacity  why",
        "ws://a   active       0.46        20",
        "ws://bb  standing by  0.00   100,000  idle",
    ]


def test_a_node_is_asked_for_its_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = ClusterSettings(key=str(tmp_path / "key"), capacity=7)
    assert run_against(Settings(port=0, record=False, cluster=cluster), "--json") == 0
    (member,) = json.loads(capsys.readouterr().out)
    assert (member["state"], member["own"], member["capacity"]) == ("active", True, 7.0)


def test_a_node_alone_a_wrong_address_and_a_refusal_are_one_line_each(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_against(Settings(port=0, record=False)) == 2
    assert "is in no cluster" in capsys.readouterr().err
    assert main(["nodes", "127.0.0.1:8470"]) == 2
    assert "is no address of a node" in capsys.readouterr().err
    monkeypatch.setenv("NEARCAST_TOKEN", "wrong")
    assert run_against(Settings(port=0, record=False, token="right" * 8)) == 1
    refusal = capsys.readouterr().err
    assert "refuses" in refusal and refusal.count("\n") == 1
