"""The example scripts do what they say."""

import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.small_traces import delivery, message, position, publication, write_trace

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_three_questions_are_answered(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    trace = write_trace(
        tmp_path / "walk",
        {
            "publications": [publication(1_000_000, 1, x=0.0, y=0.0, z=0.0)],
            "positions": [
                position(0, 1, x=50.0, y=0.0, z=0.0),
                position(1_000_000, 1, x=3.0, y=4.0, z=0.0),
                position(0, 2, x=0.0, y=80.0, z=0.0),
                position(2_000_000, 2, x=0.0, y=0.0, z=0.0),
            ],
            "deliveries": [
                delivery(1_010_000, 1, 1, node=1),
                delivery(1_030_000, 1, 2, node=1),
                delivery(1_090_000, 1, 3, node=2),
                delivery(1_090_000, 1, 4, node=3),  # nobody knows where that is
            ],
            "messages": [
                message(999_999, kind="ping", bytes=100),
                message(1_000_000, kind="ping", bytes=30),
                message(1_999_999, kind="notice", bytes=60, copies=3),
                message(1_500_000, kind="notice", bytes=60),
            ],
        },
    )
    monkeypatch.setattr("nearcast.pipeline.spark.session.start", lambda: spark)
    main = runpy.run_path(str(EXAMPLES / "questions.py"))["main"]
    main(["--trace", str(trace)])
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|walk")]
    assert [line.replace(" ", "") for line in told] == [
        "|walk|1|2|1|",
        "|walk|2|1|1|",
        "|walk|3|1|1|",
        "|walk|0.0|10.0|2|20.0|30.0|",
        "|walk|70.0|80.0|1|90.0|90.0|",
        "|walk|1|notice|4|120|",
        "|walk|1|ping|1|30|",
    ]
    with pytest.raises(SystemExit):
        main(["--trace", "/nowhere"])
    assert "there is no trace at /nowhere" in capsys.readouterr().err
