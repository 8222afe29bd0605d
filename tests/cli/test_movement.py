"""`nearcast import` and `export` as processes, from files of others to files for others."""

import json
import subprocess
from pathlib import Path

import geopandas
import pytest

from nearcast.cli.main import main
from nearcast.pipeline.movement.files import READERS
from support.fork_server import fork_server

NOON = 1641211200
CSV = "mmsi,timestamp,lat,lon\n" + "".join(
    f"{ship},{NOON + 10 * step},{50 + ship / 100},{1 + step / 1000}\n"
    for ship in range(3)
    for step in range(5)
)


def nearcast(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([fork_server(), *words], cwd=folder, capture_output=True, text=True)


def test_movement_on_earth_comes_in_and_goes_out(tmp_path: Path) -> None:
    (tmp_path / "ships.csv").write_text(CSV + "9,noon,1,2\n9,,1,2\n")
    done = nearcast(tmp_path, "import", "ships.csv", "--trace", "ships", "--radius", "2000")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "on Earth: 15 fixes of 3 entities in 40 s, from 2022-01-03T12:00:00Z"
    assert lines[1] == "2 rows skipped; the first: row 16 has timestamp = 'noon', not a time"
    assert lines[-1] == "nothing wrong"
    for form in ("parquet", "geojson", "csv"):
        done = nearcast(tmp_path, "export", "ships", f"out.{form}")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"15 fixes in out.{form}: longitude and latitude\n"
    assert len(geopandas.read_parquet(tmp_path / "out.parquet")) == 15
    assert len(geopandas.read_file(tmp_path / "out.geojson")) == 3


def test_json_says_what_was_skipped_and_written(tmp_path: Path) -> None:
    (tmp_path / "ships.csv").write_text(CSV + "9,noon,1,2\n")
    done = nearcast(tmp_path, "import", "ships.csv", "--trace", "ships", "--json")
    told = json.loads(done.stdout)
    assert (told["problems"], told["tables"]["publications"]["rows"]) == ([], 15)
    assert (told["imported"]["geometry"], told["imported"]["skipped"]) == ("earth", 1)
    told = json.loads(nearcast(tmp_path, "export", "ships", "out.csv", "--json").stdout)
    assert (told["rows"], told["geometry"], told["calendar"]) == (15, "earth", True)


def test_a_plane_says_what_its_numbers_are_not(tmp_path: Path) -> None:
    (tmp_path / "walk.csv").write_text("t,entity,x,y\n0,a,1,2\n1,a,2,2\n")
    done = nearcast(tmp_path, "import", "walk.csv", "--trace", "walk")
    assert done.stdout.startswith("table ")
    done = nearcast(tmp_path, "export", "walk", "out.geojson")
    assert done.stdout.splitlines() == [
        "2 fixes in out.geojson: x and y of a plane, without a reference system",
        "most programs take the numbers of GeoJSON for degrees all the same",
        "the trace has no calendar: its times count from 1970-01-01T00:00:00Z",
    ]
    done = nearcast(tmp_path, "export", "walk", "out.csv")
    assert done.stdout.splitlines()[1] == "the trace has no calendar: its times are seconds"


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("log.nmea", "!AIVDM,1,1,,A,13P80vOP0jOrAjPMMw800001P000,0*17\n", "line 1 has no time"),
        ("walk.gpx", "<!DOCTYPE gpx []><gpx/>", "has a document type"),
        ("states.json", "{}", "has no state vectors"),
        ("walk.csv", "lat,lon,t,id\nx,1,2,3\n", "row 1 has lat = 'x', not a number"),
        ("walk.parquet", "PAR1", "is not a readable Parquet file"),
    ],
)
def test_what_cannot_be_imported_gets_one_line(
    tmp_path: Path, name: str, text: str, why: str
) -> None:
    (tmp_path / name).write_text(text)
    done = nearcast(tmp_path, "import", name, "--trace", "out")
    assert done.returncode == 2
    assert done.stdout == ""
    assert why in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_exported_gets_one_line(tmp_path: Path) -> None:
    (tmp_path / "ships.csv").write_text(CSV)
    assert nearcast(tmp_path, "import", "ships.csv", "--trace", "ships").returncode == 0
    for words, code, why in (
        (("ships", "out.shp"), 2, "out.shp must end with .parquet, .geojson, .csv"),
        (("ships", "ships.csv"), 2, "ships.csv exists already"),
        (("nowhere", "out.csv"), 1, "there is no trace at nowhere"),
        (("ships", "nowhere/out.csv"), 2, "there is no nowhere"),
    ):
        done = nearcast(tmp_path, "export", *words)
        assert (done.returncode, done.stdout) == (code, "")
        assert why in done.stderr
        assert done.stderr.count("\n") == 1


def test_the_help_names_every_kind_of_file_that_can_be_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["import", "--help"])
    said = capsys.readouterr().out
    assert [name for name in READERS if f"{name}," not in said and f"{name})" not in said] == []
