"""`nearcast sweep`: many scenarios, one simulation per Spark task.

A sweep is a scenario in which values may be lists; all combinations are run. A run is named by its
scenario's hash, and its trace gets that name only when it is complete. So a run that has a folder
is done, a sweep may be killed at any time, and starting it again runs only what is missing. A
simulation that fails leaves a file with the reason and does not affect others: each has a process
of its own, which may even run out of memory or crash.

A store cannot rename. There, a task uploads its complete trace, and a run that has a summary is
done. Every attempt at a task uploads the same files.

On a cluster, the result folder and the files that settings name must be URIs, or absolute paths
that are the same on all machines.
"""

import fcntl
import multiprocessing
import os
import tomllib
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import cache, partial
from itertools import product
from math import inf, isfinite, prod
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from time import monotonic, time
from typing import Any
from uuid import uuid4

import msgspec
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import asdict, replace
from pyspark.sql import SparkSession

from nearcast.errors import TraceError
from nearcast.pipeline.spark.storage import NOT_SHARED
from nearcast.pipeline.spark.tasks import map_each
from nearcast.scenario import Scenario, Setting, from_json, to_json
from nearcast.sim.run import simulate
from nearcast.sim.world import resolve
from nearcast.storage import (
    AnyPath,
    RemotePath,
    list_names,
    locate,
    map_files,
    remove_tree,
    write_whole,
)
from nearcast.trace.reader import files
from nearcast.trace.sinks import SCENARIO, SUMMARY, TABLE_ORDER

MAX_SCENARIOS = 100_000
POLL_S, POLL_STORE_S = 0.5, 5.0
JOB_TAG = "nearcast sweep"
UNFINISHED = ".unfinished"
NOT_IN_TIME = "ended because it was not complete"  # how a failure begins
NOT_BEGUN = "there was no time to begin it"
KEY_TYPES: dict[str, tuple[type, ...]] = {
    "protocol": (str,), "workload": (str,), "nodes": (int,), "seconds": (int, float),
    "seed": (int,), "record": (str,),
}  # fmt: skip
REQUIRED_KEYS = ("protocol", "workload", "nodes", "seconds")
SETTING_TYPES = (bool, int, float, str)


class SweepMember(Struct, frozen=True):
    """One resolved scenario of a sweep, with the values in which it differs from the others."""

    run: str
    values: dict[str, Setting]
    scenario: Scenario


class SweepProgress(Struct, frozen=True):
    """`done` and `failed` of `total`; `skipped` existed before. `left_s` is None at first."""

    total: int
    skipped: int
    done: int
    failed: int
    left_s: float | None


class SweepSummary(Struct, frozen=True):
    """The result of a sweep."""

    total: int
    done: int  # by this sweep
    skipped: int  # existed before
    failed: int
    runs: tuple[str, ...]  # those that have a trace, in the order of the file


class TaskOutcome(Struct, frozen=True):
    """What a task returns to the driver; an empty message means success."""

    run: str
    seconds: float
    message: str


OUTCOME_SCHEMA = pa.schema(
    [("run", pa.string()), ("seconds", pa.float64()), ("message", pa.string())]
)


# The file.


def read_sweep(file: AnyPath) -> list[SweepMember]:
    """All scenarios of a sweep file, each once, and checked."""
    try:
        given = tomllib.loads(file.read_bytes().decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not a TOML file: {error}") from None
    settings = given.pop("settings", {})
    if not isinstance(settings, dict):
        raise ValueError(f"settings must be a table of settings, not {settings!r}")
    for name in given:
        if name not in KEY_TYPES:
            raise ValueError(f"no key {name!r}; there are {', '.join(KEY_TYPES)} and settings")
    for name in REQUIRED_KEYS:
        if name not in given:
            raise ValueError(f"{file} has no {name}")
    choices = {name: check_values(name, value, KEY_TYPES[name]) for name, value in given.items()}
    choices |= {
        f"settings.{name}": check_values(f"settings.{name}", value, SETTING_TYPES)
        for name, value in settings.items()
    }
    count = prod(map(len, choices.values()))
    if count > MAX_SCENARIOS:
        varied = " × ".join(f"{len(c):,} {name}" for name, c in choices.items() if len(c) > 1)
        raise ValueError(
            f"{varied} make {count:,} scenarios; a sweep has at most {MAX_SCENARIOS:,}"
        )
    members = (make_member(choices, values) for values in product(*choices.values()))
    return list({each.run: each for each in members}.values())


def check_values(name: str, value: Any, kinds: tuple[type, ...]) -> list[Any]:
    """The values of a key as a list; an error if one has the wrong type."""
    values = value if isinstance(value, list) else [value]
    if not values:
        raise ValueError(f"{name} is an empty list; nothing would be run")
    for each in values:
        if type(each) not in kinds:  # no subclasses: true is not a number here
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise ValueError(f"{name} must be {wanted} or a list of those, not {each!r}")
        too_large = type(each) is int and not -(2**63) <= each < 2**63
        if too_large or (type(each) is float and not isfinite(each)):
            raise ValueError(f"{name} must be a finite number of at most 64 bits, not {each!r}")
    return values


def make_member(choices: dict[str, list[Any]], values: Sequence[Any]) -> SweepMember:
    """The scenario of one combination of values, resolved."""
    chosen = dict(zip(choices, values, strict=True))
    plain = {name: value for name, value in chosen.items() if name in KEY_TYPES}
    settings = {
        name.removeprefix("settings."): value for name, value in chosen.items() if name not in plain
    }
    scenario, _ = resolve(Scenario(**plain, settings=settings))
    varied = {
        name.removeprefix("settings."): value
        for name, value in chosen.items()
        if len(choices[name]) > 1
    }
    return SweepMember(scenario.run, varied, scenario)


# The sweep.


def sweep(
    spark: SparkSession,
    file: AnyPath,
    out: AnyPath,
    show: Callable[[SweepProgress], None] | None = None,
) -> SweepSummary:
    """Run all scenarios of a sweep file (see `run_members`)."""
    return run_members(spark, read_sweep(file), file.name, out, show)


def run_members(
    spark: SparkSession,
    members: Sequence[SweepMember],
    name: str,
    out: AnyPath,
    show: Callable[[SweepProgress], None] | None = None,
    until: float = inf,
) -> SweepSummary:
    """Run what is missing; write OUT/sweep.json, OUT/traces/<run>/ and OUT/failures/<run>.json.

    A run that is not complete at the time `until` (seconds, Unix time) is ended and has failed.
    """
    out = out.absolute()
    traces, failures = out / "traces", out / "failures"
    for folder in (traces, failures):
        folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(out):
        listed = [{"run": each.run, "values": each.values} for each in members]
        write_json(out / "sweep.json", {"file": name, "scenarios": listed})
        remove_unfinished(traces)
        there = complete_runs(traces)
        missing = [each for each in members if each.run not in there]
        for each in missing:
            failure_file(out, each.run).unlink(missing_ok=True)
            remove_tree(traces / each.run)  # what a killed sweep has uploaded of it
        began = monotonic()

        def report() -> None:
            if show is not None:
                show(count_progress(members, missing, out, monotonic() - began))

        report()
        outcomes = run_scenarios(spark, [each.scenario for each in missing], out, report, until)
        report()
        remove_unfinished(traces)
    failed = {outcome.run for outcome in outcomes if outcome.message}
    if lost := [each.run for each in missing if each.run not in failed | complete_runs(traces)]:
        raise TraceError(
            f"{traces / lost[0]} was written by a worker, but is not here: {NOT_SHARED}"
        )
    return SweepSummary(
        total=len(members),
        done=len(missing) - len(failed),
        skipped=len(members) - len(missing),
        failed=len(failed),
        runs=tuple(each.run for each in members if each.run not in failed),
    )


@contextmanager
def lock_folder(out: AnyPath) -> Iterator[None]:
    """Lock the folder: a second sweep in it would delete the unfinished runs of the first.

    In a store there are none.
    """
    if isinstance(out, RemotePath):
        yield
        return
    with open(out / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # released when the process ends
        except BlockingIOError:
            raise ValueError(f"another sweep is running in {out}") from None
        yield


def complete_runs(traces: AnyPath) -> set[str]:
    """The runs whose traces are complete."""
    names = list_names(traces)
    if isinstance(traces, RemotePath):
        ended = map_files(lambda summary: summary.exists(), [traces / n / SUMMARY for n in names])
        return {name for name, has_ended in zip(names, ended, strict=True) if has_ended}
    return set(names)


def remove_unfinished(traces: AnyPath) -> None:
    """Remove unfinished traces of killed sweeps and lost executors.

    A worker may outlive its sweep for a moment. What is being removed has another name, so that the
    worker cannot give it that of a complete trace.
    """
    for name in list_names(traces):
        if name.startswith(".") and name.endswith(UNFINISHED):
            folder = traces / name
            if isinstance(folder, Path):
                with suppress(FileNotFoundError):  # it is complete meanwhile
                    folder = folder.rename(folder.with_name(f".{uuid4().hex}{UNFINISHED}"))
            remove_tree(folder)


def count_progress(
    members: Sequence[SweepMember], missing: Sequence[SweepMember], out: AnyPath, took_s: float
) -> SweepProgress:
    """Count finished and failed runs by their files, whichever machine has written them."""
    wanted = {each.run for each in missing}
    done = len(wanted.intersection(list_names(out / "traces")))
    failed = len(wanted.intersection(name.split(".")[0] for name in list_names(out / "failures")))
    ended = done + failed
    return SweepProgress(
        total=len(members),
        skipped=len(members) - len(missing),
        done=done,
        failed=failed,
        left_s=took_s / ended * (len(missing) - ended) if ended else None,
    )


def run_scenarios(
    spark: SparkSession,
    scenarios: Sequence[Scenario],
    out: AnyPath,
    report: Callable[[], None],
    until: float = inf,
) -> list[TaskOutcome]:
    """One task for each scenario. A task writes its trace and returns only its outcome."""
    if not scenarios:
        return []
    texts = [to_json(scenario) for scenario in scenarios]
    work = partial(scenario_outcome, out=str(out), until=until)
    poll_s = POLL_S if isinstance(out, Path) else POLL_STORE_S

    def collect() -> list[TaskOutcome]:
        """One small row for each scenario of the file, so at most MAX_SCENARIOS."""
        spark.addTag(JOB_TAG)
        rows = map_each(spark, texts, work, OUTCOME_SCHEMA).toArrow()
        return msgspec.convert(rows.to_pylist(), list[TaskOutcome])

    with ThreadPoolExecutor(1) as pool:
        outcomes = pool.submit(collect)
        try:
            while not wait([outcomes], poll_s).done:
                report()
        except BaseException:  # also an interrupt: nobody waits for the other tasks any more
            spark.interruptTag(JOB_TAG)
            raise
        return outcomes.result()


# Inside a task.


def scenario_outcome(text: bytes, out: str, until: float) -> Iterator[pa.RecordBatch]:
    outcome = asdict(run_scenario(text, out, until))
    yield pa.RecordBatch.from_pylist([outcome], schema=OUTCOME_SCHEMA)


def run_scenario(text: bytes, out: str, until: float = inf) -> TaskOutcome:
    """Simulate a scenario in a process of its own; a failure is written to a file."""
    began = monotonic()
    warm_up()
    scenario, folder = from_json(text), locate(out)
    traces = folder / "traces"
    with TemporaryDirectory(prefix="nearcast-sweep-") as scratch:
        here = traces if isinstance(traces, Path) else Path(scratch)
        unfinished = here / f".{scenario.run}.{uuid4().hex}{UNFINISHED}"
        try:
            message, where = run_in_process(scenario, unfinished, traces / scenario.run, until)
            if not message and isinstance(traces, RemotePath):
                upload_trace(unfinished, traces / scenario.run)
        finally:
            remove_tree(unfinished)
    if message:
        write_json(
            failure_file(folder, scenario.run),
            {"run": scenario.run, "seed": scenario.seed, "message": message,
             "traceback": where, "took_s": monotonic() - began, "scenario": scenario},
        )  # fmt: skip
    return TaskOutcome(scenario.run, monotonic() - began, message)


@cache
def warm_up() -> None:
    """Load the simulator and its kernels once for all simulations of this worker.

    Each is a process forked from it. By itself it would take up to 0.3 s of CPU time to load them.
    """
    dense: dict[str, Setting] = {"size": 100.0}
    small = Scenario(
        protocol="client-server", workload="waypoint", nodes=12, seconds=1.0, settings=dense
    )
    with TemporaryDirectory(prefix="nearcast-sweep-") as scratch:
        simulate(small, Path(scratch, "trace"), flush_every_s=inf)


def upload_trace(unfinished: Path, trace: RemotePath) -> None:
    """Upload the files of a trace in their order, the summary last: then the run is done."""
    write_whole(trace / SCENARIO, (unfinished / SCENARIO).read_bytes())
    for table in TABLE_ORDER:
        for part in files(unfinished, table):
            write_whole(trace / table / part.name, part.read_bytes())
    write_whole(trace / SUMMARY, (unfinished / SUMMARY).read_bytes())


def run_in_process(
    scenario: Scenario, unfinished: Path, trace: AnyPath, until: float = inf
) -> tuple[str, str]:
    """The error message and the traceback; both are empty on success.

    A child process may run out of memory or crash without affecting the task. It ends when this
    process does, also if that is killed, and at the time `until`.
    """
    began = time()
    if began >= until:
        return NOT_BEGUN, ""
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    lives, held = fork.Pipe(duplex=False)  # `held` is closed when this process ends
    child = fork.Process(
        target=simulate_in_child,
        args=(scenario, unfinished, trace, sender, lives, held),
        daemon=True,
    )
    child.start()
    sender.close()
    lives.close()
    try:
        if not receiver.poll(None if until == inf else max(0.0, until - time())):
            child.kill()
            answer = f"{NOT_IN_TIME} after {time() - began:.0f} s", ""
        else:
            answer = receiver.recv()
    except EOFError:
        child.join()
        answer = f"the process of the simulation died with exit code {child.exitcode}", ""
    child.join()
    receiver.close()
    held.close()
    return answer


def simulate_in_child(
    scenario: Scenario, unfinished: Path, trace: AnyPath,
    sender: Connection, parent_lives: Connection, held: Connection,
) -> None:  # fmt: skip
    """Simulate while the parent process lives: nobody else would end this one."""
    held.close()

    def end_with_parent() -> None:
        with suppress(EOFError, OSError):
            parent_lives.recv()
        os._exit(1)

    Thread(target=end_with_parent, daemon=True).start()
    simulate_and_report(scenario, unfinished, trace, sender)


def simulate_and_report(
    scenario: Scenario, unfinished: Path, trace: AnyPath, sender: Connection
) -> None:
    """Simulate, give the complete trace its name, and send the outcome to the parent process.

    Nothing is flushed by the clock, so that every attempt leaves the same files.
    """
    try:
        summary = simulate(scenario, unfinished, flush_every_s=inf)
        assert summary.run == scenario.run, "a resolved scenario resolves to itself"
        write_json(unfinished / SUMMARY, asdict(replace(summary, trace=str(trace))))
        if isinstance(trace, Path):
            try:
                unfinished.rename(trace)
            except OSError:
                if not trace.is_dir():  # or another attempt at this task was faster
                    raise
        sender.send(("", ""))
    except Exception as error:
        sender.send((f"{type(error).__name__}: {error}", traceback.format_exc()))


def failure_file(out: AnyPath, run: str) -> AnyPath:
    return out / "failures" / f"{run}.json"


def write_json(file: AnyPath, value: Any) -> None:
    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    write_whole(file, text, attempt=uuid4().hex)
