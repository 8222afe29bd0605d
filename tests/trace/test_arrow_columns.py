"""Columns made of buffers are those that pyarrow makes; and a node does not load pandas."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.trace.arrow_columns import number_column, text_column
from support.examples import examples

WITHOUT_PANDAS = """
import sys
from nearcast.server import server
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import TraceFolder
server.warm_up()
recorder = Recorder(TraceFolder(sys.argv[1], b"{}"))
for t in (2, 1):  # so that they are sorted
    recorder.note(t, 0, "fact")
recorder.close()
assert "pyarrow" in sys.modules
print("pandas" in sys.modules)
"""


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.float64, np.bool_])
@given(st.lists(st.tuples(st.integers(-100, 100), st.booleans()), max_size=40))
@examples(100)
def test_numbers_are_as_pyarrow_has_them(kind: type, rows: list[tuple[int, bool]]) -> None:
    values = np.array([value for value, _ in rows], np.int64).astype(kind)
    missing = np.array([is_missing for _, is_missing in rows], np.bool_)
    for mask in (None, missing):
        made = number_column(values, mask)
        made.validate(full=True)
        assert made == pa.array(values, mask=mask)


@given(st.lists(st.text(max_size=10), max_size=20))
@examples(100)
def test_texts_are_as_pyarrow_has_them(texts: list[str]) -> None:
    made = text_column(texts)
    made.validate(full=True)
    assert made == pa.array(texts, pa.string())


def test_a_node_starts_and_records_without_pandas(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_PANDAS, str(tmp_path / "trace")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "False"
