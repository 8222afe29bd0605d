"""What clients recorded themselves, put into their node's trace: a run judged from end to end."""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import nearcast
from nearcast.cli.main import main
from nearcast.server.config import load_settings
from nearcast.server.server import Server
from nearcast.space.shapes import disc, point
from nearcast.trace import reader
from nearcast.trace.merge import merge
from support.brute_force import expected
from support.join_targets import address, run


async def talk(folder: Path) -> None:
    """Three clients with two areas each move and publish; two of them record what they receive."""
    chance = random.Random(3)
    chosen = load_settings(flags={"port": 0, "trace": str(folder / "node")})
    async with Server(chosen) as service:
        clients = [
            nearcast.connect(
                address(service), name=name, trace=folder / name if name != "carol" else None
            )
            for name in ("alice", "bob", "carol")
        ]
        async with clients[0], clients[1], clients[2]:
            places = [
                await client.subscribe(disc(*chance.choices(range(20), k=2), 8), echo=True)
                for client in clients
                for _ in range(2)
            ]
            for _ in range(40):
                await chance.choice(places).move(disc(*chance.choices(range(20), k=2), 8))
                await chance.choice(clients).publish(point(*chance.choices(range(20), k=2)))
            for place in places:
                await place.move(disc(10, 10, 40))
            last = await clients[0].publish(point(10, 10))
            for place in places:  # the last message may come after the last answer
                while (await anext(place)).publication != last:
                    pass


def pairs(trace: Path) -> list[tuple[int, int]]:
    rows = reader.read(trace, "deliveries").to_pylist()
    return sorted((row["publication"], row["subscription"]) for row in rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    run(talk(folder))
    return folder


def test_clients_received_exactly_what_they_should_have_received(folder: Path) -> None:
    code = main(
        ["merge", str(folder / "node"), str(folder / "alice"), str(folder / "bob"),
         "--trace", str(folder / "merged")]
    )  # fmt: skip
    assert code == 0
    interests, said = (reader.read(folder / "merged", n) for n in ("interests", "publications"))
    should = sorted(expected(interests, said))
    assert len(should) > 40
    assert pairs(folder / "merged") == should


def test_what_did_not_arrive_is_missing_though_the_node_has_sent_it(
    folder: Path, tmp_path: Path
) -> None:
    client_trace = tmp_path / "alice"
    for part in sorted((folder / "alice").rglob("*")):
        if part.is_file():
            copy = client_trace / part.relative_to(folder / "alice")
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(part.read_bytes())
    first = reader.files(client_trace, "deliveries")[0]
    heard = pq.read_table(first)
    pq.write_table(heard.slice(1), first)
    summary = merge(folder / "node", [client_trace], tmp_path / "merged")
    lost = heard.slice(0, 1).to_pylist()[0]
    assert summary["clients"] == 1
    assert sorted([*pairs(tmp_path / "merged"), (lost["publication"], lost["subscription"])]) == (
        pairs(folder / "node")
    )


def test_what_is_no_client_trace_is_refused_and_nothing_is_written(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pa.table({"t": [1]})
    (tmp_path / "other" / "notes").mkdir(parents=True)
    pq.write_table(table, tmp_path / "other" / "notes" / "part-00000.parquet")
    for no_trace in (tmp_path / "other", tmp_path / "nowhere"):
        code = main(
            ["merge", str(folder / "node"), str(no_trace), "--trace", str(tmp_path / "merged")]
        )
        assert code == 1
        assert str(no_trace) in capsys.readouterr().err
        assert not (tmp_path / "merged").exists()
