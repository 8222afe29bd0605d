"""The command line as a person meets it: results, clear errors, exit codes, nothing lost."""

import json
import resource
import signal
import subprocess
import sys
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError

from nearcast.cli.main import main, spark_ended
from nearcast.protocols import PROTOCOLS
from nearcast.trace import reader
from nearcast.workloads import WORKLOADS
from support.patience import PATIENCE_S

NEARCAST = [sys.executable, "-m", "nearcast.cli"]
# The same, but a trace's files are written after a few rows already.
WRITES_OFTEN = [
    sys.executable, "-c",
    "import sys; from nearcast.trace import recorder;"
    "recorder.Recorder.__init__.__kwdefaults__['limit'] = 2000;"
    "from nearcast.cli.main import main; sys.exit(main(sys.argv[1:]))",
]  # fmt: skip
SMALL = ["simulate", "client-server", "--nodes", "30", "--seconds", "1"]


def run_command(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as stop:
        code = int(stop.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def test_simulate_leaves_a_trace_that_validate_accepts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_command(capsys, *SMALL, "--trace", tmp_path / "t")
    assert (code, err) == (0, "")
    assert "30 entities" in out
    code, out, _ = run_command(capsys, "validate", tmp_path / "t")
    assert code == 0
    assert out.rstrip().endswith("nothing wrong")


def test_json_is_one_document_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run_command(capsys, *SMALL, "--trace", tmp_path / "t", "--json")
    summary = json.loads(out)
    assert (code, err) == (0, "")
    assert summary["rows"]["publications"] == reader.read(tmp_path / "t", "publications").num_rows
    assert summary["scenario"]["settings"]["latency_ms"] == 50.0
    code, out, err = run_command(capsys, "validate", tmp_path / "t", "--json")
    assert (code, json.loads(out)["problems"], err) == (0, [], "")


def test_the_same_arguments_give_the_same_run_and_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        assert run_command(capsys, *SMALL, "--seed", "5", "--trace", tmp_path / name)[0] == 0
    assert reader.digest(tmp_path / "a") == reader.digest(tmp_path / "b")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["simulate", "tree-server"], "no protocol 'tree-server'; there are client-server"),
        ([*SMALL, "--workload", "dance"], "no workload 'dance'"),
        ([*SMALL, "--set", "latncy_ms=3"], "did you mean latency_ms?"),
        ([*SMALL, "--set", "latency_ms=fast"], "latency_ms must be float, not 'fast'"),
        ([*SMALL, "--set", "latency_ms=-1"], "latency_ms"),
        ([*SMALL, "--set", "latency_ms=nan"], "latency_ms"),
        ([*SMALL, "--set", "loss=2"], "loss is a probability"),
        ([*SMALL, "--set", "radius=-5"], "radius"),
        ([*SMALL, "--set", "radius=nan"], "radius"),
        ([*SMALL, "--set", "radius"], "--set needs KEY=VALUE"),
        ([*SMALL, "--set", "matcher=magic"], "matcher must be one of scan, grid"),
        ([*SMALL, "--nodes", "0"], "nodes must be between"),
        ([*SMALL, "--seconds", "nan"], "seconds must be"),
        ([*SMALL, "--nodes", "many"], "invalid int value"),
        ([*SMALL, "--record", "most"], "record must be one of"),
        (["simulate", "client-server", "--workload", "recorded"], "file=PATH"),
        ([*SMALL, "--workload", "recorded", "--set", "file=/no/such.parquet"], "/no/such.parquet"),
        ([*SMALL, "--frob"], "--frob"),
        (["dance"], "dance"),
        ([], "COMMAND"),
    ],
)
def test_wrong_use_is_one_clear_line_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    trace = ["--trace", str(tmp_path / "t")] if arguments[:1] == ["simulate"] else []
    code, out, err = run_command(capsys, *arguments, *trace)
    assert code == 2, err
    assert says in err
    assert (err.count("\n"), out) == (1, "")
    assert not (tmp_path / "t").exists(), "a refused run must not leave a folder behind"


def test_an_argument_for_the_trace_folder_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run_command(capsys, *SMALL)
    assert (code, err) == (2, "nearcast: --trace DIR is needed: the folder for the trace\n")


def test_an_existing_trace_is_not_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_command(capsys, *SMALL, "--trace", tmp_path / "t")
    before = reader.digest(tmp_path / "t")
    code, _, err = run_command(capsys, *SMALL, "--seed", "2", "--trace", tmp_path / "t")
    assert (code, err) == (1, f"nearcast: {tmp_path / 't'} already holds a trace\n")
    assert reader.digest(tmp_path / "t") == before


@pytest.mark.parametrize("what", ["missing", "file", "empty", "garbage"])
def test_validate_names_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    trace = tmp_path / "t"
    if what == "file":
        trace.write_text("hello")
    elif what == "empty":
        trace.mkdir()
    elif what == "garbage":
        run_command(capsys, *SMALL, "--trace", trace)
        (trace / "deliveries" / "part-00000.parquet").write_bytes(b"PAR1 not at all")
    code, out, err = run_command(capsys, "validate", trace)
    assert code == 1
    if what == "garbage":
        assert "deliveries/part-00000.parquet" in out
        assert "1 problems" in out
    else:
        assert err.count("\n") == 1
        assert str(trace) in err


@pytest.mark.parametrize(
    ("protocol", "workload", "some"),
    [
        *((name, "waypoint", {"crash"}) for name in PROTOCOLS),
        *(("client-server", name, {"churn_rate"}) for name in WORKLOADS if name != "recorded"),
        ("client-server", "waypoint", {"latency_ms", "radius", "matcher"}),
        ("bubblestorm", "waypoint", {"lambda", "beat_s", "dead_s"}),
    ],
)
def test_settings_explains_every_setting(
    capsys: pytest.CaptureFixture[str], protocol: str, workload: str, some: set[str]
) -> None:
    arguments = ("simulate", protocol, "--workload", workload, "--settings", "--json")
    code, out, _ = run_command(capsys, *arguments)
    printed = json.loads(out)
    assert code == 0
    assert some <= {row["name"] for rows in printed.values() for row in rows}
    assert all(row["meaning"] for rows in printed.values() for row in rows)


def test_doctor_finds_this_machine_fit(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run_command(capsys, "doctor", "--json")
    findings = json.loads(out)
    assert code == 0
    assert all(finding["good"] for finding in findings)


def test_help_starts_without_the_heavy_libraries() -> None:
    program = (
        "import sys; from nearcast.cli.main import parser; parser().format_help();"
        "heavy = ('numba', 'numpy', 'pyarrow', 'msgspec', 'nearcast_papers');"
        "print([m for m in heavy if m in sys.modules])"
    )
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("after_s", [0.4, 1.0, 1.6, 2.5])
def test_a_killed_run_leaves_a_trace_that_validate_accepts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], after_s: float
) -> None:
    """Whenever the kill comes: before the first file, between files, while writing."""
    trace = tmp_path / "t"
    arguments = ["simulate", "client-server", "--nodes", "200", "--seconds", "1000"]
    process = subprocess.Popen(
        [*WRITES_OFTEN, *arguments, "--set", "matcher=scan", "--trace", str(trace)],
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + PATIENCE_S
    while not (trace / "scenario.json").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(after_s)
    process.send_signal(signal.SIGKILL)
    process.wait()
    code, out, err = run_command(capsys, "validate", trace)
    assert code == 0, out + err
    assert "the run did not end by itself" in out


def test_an_interrupted_run_keeps_what_it_recorded(tmp_path: Path) -> None:
    trace = tmp_path / "t"
    process = subprocess.Popen(
        [*WRITES_OFTEN, "simulate", "client-server", "--nodes", "200", "--seconds", "100000",
         "--trace", str(trace)],
        stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    deadline = time.monotonic() + PATIENCE_S
    while not any(trace.glob("messages/*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.02)
    # Python drops an interrupt that comes in a finaliser: then press again, but not while the first
    # one is being handled.
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_S)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert err == f"nearcast: interrupted; {trace} holds what was recorded\n"
    assert reader.read(trace, "messages").num_rows > 0


def test_a_full_disk_is_one_clear_line_and_loses_nothing_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A limit on file size stands in for the disk: the kernel refuses the write all the same."""
    trace = tmp_path / "t"  # the subscriptions of its beginning are too many for one file

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    ended = subprocess.run(
        [*NEARCAST, "simulate", "client-server", "--nodes", "600", "--seconds", "2",
         "--set", "matcher=scan", "--trace", str(trace)],
        capture_output=True, text=True, preexec_fn=limit, timeout=PATIENCE_S,
    )  # fmt: skip
    assert ended.returncode == 1
    assert ended.stderr.count("\n") == 1, ended.stderr
    assert "cannot write" in ended.stderr
    assert "stays readable" in ended.stderr
    assert run_command(capsys, "validate", trace)[0] == 0


def test_only_errors_of_spark_are_reported_as_the_end_of_spark() -> None:
    def raised(*several: Exception) -> Exception:
        """The last of them, which came while the others were handled."""
        for earlier, later in pairwise(several):
            later.__context__ = earlier
        return several[-1]

    ended = Py4JNetworkError("Answer from Java side is empty")
    assert spark_ended(ended)
    assert spark_ended(raised(ended, ConnectionRefusedError(111, "Connection refused")))
    assert not spark_ended(ConnectionRefusedError(111, "Connection refused"))
    assert not spark_ended(raised(ValueError("wrong"), OSError("full")))


def test_help_of_simulate_lists_every_protocol_and_workload(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["simulate", "--help"])
    words = capsys.readouterr().out.replace(",", " ").split()
    assert {*PROTOCOLS, *WORKLOADS} <= set(words)
