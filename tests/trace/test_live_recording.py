"""A live run leaves a sound trace, whatever happens to the disk or to the process."""

import asyncio
import shutil
from pathlib import Path
from threading import Event
from typing import Any

import pyarrow as pa
import pytest

from nearcast import scenario
from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area
from nearcast.server import gateway
from nearcast.storage import RemotePath, list_names
from nearcast.trace.live_recording import BackgroundWriter, LiveRecording, MessageSums
from nearcast.trace.reader import read
from nearcast.trace.schema import TABLES
from nearcast.trace.sinks import SCENARIO, SUMMARY, TraceFolder
from nearcast.trace.validate import validate
from support.live_clients import join_client, run, service
from support.object_store import Fault, FaultyProxy, in_bucket
from support.patience import PATIENCE_S

SECOND = 1_000_000


def notes(count: int, at: int = 0) -> dict[str, pa.Table]:
    rows = [{"t": at + n, "node": 1, "fact": "f", "about": n, "value": 0.5} for n in range(count)]
    return {"notes": pa.Table.from_pylist(rows, TABLES["notes"])}


class Stuck(TraceFolder):
    """A disk that takes its time."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, b'{"schema":1}')
        self.go = Event()

    def write(self, tables: Any) -> None:
        self.go.wait()
        super().write(tables)


def test_everything_handed_over_is_written_before_closing_ends(tmp_path: Path) -> None:
    writer = BackgroundWriter(TraceFolder(tmp_path / "t", b'{"schema":1}'))
    for n in range(5):
        writer.write(notes(10, n * 10))
    writer.close()
    assert read(tmp_path / "t", "notes").num_rows == 50
    assert (writer.failure, writer.lost) == ("", 0)


def test_a_slow_disk_ends_the_recording_with_bounded_memory_and_a_sound_trace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    size = notes(100)["notes"].nbytes
    folder = Stuck(tmp_path / "t")
    writer = BackgroundWriter(folder, waiting=5 * size)
    for n in range(50):
        writer.write(notes(100, n * 100))
    assert "too slowly" in writer.failure
    assert writer.lost == 4_500
    folder.go.set()
    writer.write(notes(100, 9_000))
    writer.close()
    kept = read(tmp_path / "t", "notes")["t"].to_pylist()
    assert kept == list(range(500)), "a beginning without holes, and nothing after it"
    assert writer.lost == 4_600
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_a_failing_disk_ends_the_recording_and_not_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "ROTATE_S", 0.0)
    trace = tmp_path / "t"

    async def story() -> int:
        async with service(trace) as node:
            shutil.rmtree(trace)
            ann = await join_client(node, "ann")
            async with asyncio.timeout(PATIENCE_S):
                while not node.gateway.metrics.unrecorded:
                    await ann.ask(messages.PublishRequest, 1.0, 1.0)
                    await asyncio.sleep(0.05)
            await ann.ask(messages.PublishRequest, 1.0, 1.0)
            return node.gateway.metrics.unrecorded

    assert run(story()) > 0
    assert not (trace / SUMMARY).exists()


def test_a_node_records_into_s3(remote: RemotePath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "ROTATE_S", 0.0)

    async def story() -> None:
        async with service(remote) as node:
            assert node.recording is not None and node.recording.path == remote
            ann = await join_client(node, "ann")
            await ann.ask(messages.SubscribeRequest, 1, Area(x=0.0, y=0.0, r=5.0))
            for _ in range(5):
                await ann.ask(messages.PublishRequest, 1.0, 1.0)
        async with service(remote) as again:  # as after a kill
            assert again.recording is not None
            assert again.recording.path == remote.with_name(f"{remote.name}-2")

    run(story())
    report = validate(remote)
    assert report.problems == () and report.finished
    assert report.tables["publications"].rows == 5


@pytest.mark.parametrize("fault", ["error", "silence", "away"])
def test_a_store_that_fails_is_slow_or_goes_away_does_not_disturb_the_service(
    endpoint: str,
    remote: RemotePath,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: Fault,
) -> None:
    monkeypatch.setattr(gateway, "ROTATE_S", 0.0)
    monkeypatch.setenv("NEARCAST_STORAGE_TIMEOUT_S", "3")
    monkeypatch.setenv("NEARCAST_STORAGE_ATTEMPTS", "1")
    proxy = FaultyProxy(endpoint)

    async def story() -> int:
        async with service(in_bucket(proxy.endpoint, remote.key)) as node:
            ann = await join_client(node, "ann")
            await ann.ask(messages.PublishRequest, 1.0, 1.0)
            while not list_names(remote / "publications"):
                await asyncio.sleep(0.01)
            proxy.break_with(fault)
            while not node.gateway.metrics.unrecorded:
                await ann.ask(messages.PublishRequest, 1.0, 1.0)
                await asyncio.sleep(0.01)
            await ann.ask(messages.PublishRequest, 1.0, 1.0)
            return node.gateway.metrics.unrecorded

    assert run(story()) > 0
    ended = [record for record in caplog.records if "recording has ended" in record.message]
    assert len(ended) == 1 and f"cannot write s3://nearcast/{remote.key}" in ended[0].message
    report = validate(remote)
    assert report.problems == () and not report.finished
    assert report.tables["publications"].rows >= 1


def test_messages_are_summed_up_by_second_client_and_kind() -> None:
    sums = MessageSums()
    sums.add(3 * SECOND + 5, 0, 7, "notice", 300, 2)
    sums.add(3 * SECOND + 5, 7, 0, "publish", 0, 0)
    table = sums.take()["messages"]
    assert table.schema.equals(TABLES["messages"])
    (row,) = table.to_pylist()
    assert (row["t"], row["to"], row["bytes"], row["copies"]) == (3 * SECOND, 7, 300, 2)
    assert sums.take() == {}


def test_a_live_trace_names_its_run_and_says_what_happened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway, "ROTATE_S", 1.0)
    trace = tmp_path / "t"

    async def story() -> tuple[int, dict[str, int]]:
        async with service(trace, name="here") as node:
            ann, bob = (
                await join_client(node, "ann"),
                await join_client(node, "bob", messages.MSGPACK),
            )
            await ann.ask(messages.SubscribeRequest, 1, Area(x=0.0, y=0.0, r=5.0))
            for n in range(24):
                bob.send_request(
                    messages.PublishRequest(
                        n / 10, 1.0, messages.MSGPACK.encode_payload("hi"), n % 2 == 0
                    )
                )
                await asyncio.sleep(0.1)
            await bob.ask(messages.PublishRequest, 2.5, 1.0, retain=True)
        return bob.entity, node.gateway.metrics.snapshot()

    bob, counters = run(story())
    assert validate(trace).problems == ()
    assert validate(trace).finished
    ran = scenario.from_json((trace / SCENARIO).read_bytes())
    assert (ran.protocol, ran.workload, ran.settings["name"]) == ("live", "live", "here")
    rows = {name: read(trace, name).to_pylist() for name in TABLES}
    assert counters["publications"] == len(rows["publications"]) == 25
    assert counters["deliveries"] == len(rows["deliveries"]) == 25
    assert [row["x"] for row in rows["positions"]] == sorted(row["x"] for row in rows["positions"])
    assert {row["node"] for row in rows["positions"]} == {bob}
    assert len(rows["positions"]) >= 2
    published = [row for row in rows["messages"] if row["kind"] == "publish"]
    assert sum(row["copies"] for row in published) == 25
    assert sum(row["bytes"] for row in rows["messages"] if row["to"] == 0) == counters["bytes_in"]
    assert (
        sum(row["bytes"] for row in rows["messages"] if row["node"] == 0) <= (counters["bytes_out"])
    )
    assert len(list((trace / "deliveries").iterdir())) >= 2, "files change while the run goes on"
    assert {row["fact"] for row in rows["notes"]} == {"joined", "left"}


def test_two_runs_in_one_folder_are_refused(tmp_path: Path) -> None:
    first = LiveRecording(tmp_path / "t", 5, {})
    first.close({})
    with pytest.raises(Exception, match="already holds a trace"):
        LiveRecording(tmp_path / "t", 6, {})


def test_a_node_that_does_not_record_leaves_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with service() as node:
            ann = await join_client(node, "ann")
            await ann.ask(messages.PublishRequest, 1.0, 1.0)

    run(story())
    assert list(tmp_path.iterdir()) == []
