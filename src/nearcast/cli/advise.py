"""`nearcast advise`: which overlay suits recorded movement and interests, and what it costs."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from nearcast.cli.common import (
    Parser,
    add_spark_options,
    path_argument,
    start_spark,
    write_json,
    write_lines,
)
from nearcast.extras import keep_pandas_out

if TYPE_CHECKING:
    from nearcast.pipeline.advise.advise import Advice, AdviceOptions
    from nearcast.storage import AnyPath

DESCRIPTION = """\
Simulate a recorded world with every overlay, on Spark, and say which one to run. SOURCE is a trace,
whose subscriptions and publications are replayed as they are, or a file of fixes (CSV or Parquet
with t, entity, x, y and perhaps z), where everybody wants what is within --radius. The busiest
minute is replayed by all overlays, then by those that are within the limits with 2, 5 and 10 times
as many entities, then with other parameters, as far as --budget allows. OUT gets advice.html,
advice.json and all traces. Interrupted, it leaves the report of what was done; started again with
the same --out, it goes on.
"""
EXAMPLES = """\
examples:
  nearcast simulate client-server --nodes 40 --seconds 20 --trace world
  nearcast advise world --budget 5
  nearcast advise buses.csv --radius 2000 --latency-ms 1000 --no-server
"""


def add_advise(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "advise",
        help="which overlay suits a recorded world, and what it costs",
        description=DESCRIPTION,
        epilog=EXAMPLES,
    )
    add = command.add_argument
    add("source", type=path_argument, metavar="SOURCE", help="a trace or a file of fixes, or a URI")
    add("--budget", type=float, default=10.0, metavar="MINUTES", help="in all (default 10)")
    add(
        "--out",
        type=path_argument,
        metavar="DIR",
        help="a folder or a URI (default: SOURCE-advice)",
    )
    add("--seconds", type=float, metavar="S",
        help="of the recording to replay (default 60, or half of a shorter one)")  # fmt: skip
    add("--start", type=float, metavar="S", help="where they begin (default: where most happens)")
    add("--radius", type=float, metavar="R",
        help="fixes: how far everybody looks (default: a hundredth of the world)")  # fmt: skip
    add(
        "--payload",
        type=int,
        default=64,
        metavar="B",
        help="fixes: bytes of a publication (default 64)",
    )
    add("--faster", type=float, default=1.0, metavar="K",
        help="fixes: K recorded seconds in one; rates and speeds grow (default 1)")  # fmt: skip
    add("--crowds", default="2,5,10", metavar="K,...",
        help="times the recorded crowd, denser in the same space (default 2,5,10)")  # fmt: skip
    add("--recall", type=float, default=0.99, metavar="SHARE",
        help="of deliveries that must arrive (default 0.99)")  # fmt: skip
    add("--latency-ms", type=float, default=150.0, metavar="MS",
        help="how late p99 may be (default 150: three messages)")  # fmt: skip
    add("--one-way-ms", type=float, default=50.0, metavar="MS",
        help="what a message takes; 1 ms between servers (default 50)")  # fmt: skip
    add("--uplink-kbit", type=float, default=1000.0, metavar="K",
        help="what a peer can send (default 1000)")  # fmt: skip
    add("--server-mbit", type=float, default=100.0, metavar="M",
        help="what a server can send (default 100)")  # fmt: skip
    add("--no-server", action="store_true", help="recommend overlays without servers only")
    add("--only", default="", metavar="NAME,...", help="try these only, as the report names them")
    add("--seed", type=int, default=1, metavar="K", help="of copies and protocols (default 1)")
    add_spark_options(command)
    command.set_defaults(run=run_advise)
    return command


def run_advise(arguments: argparse.Namespace) -> int:
    keep_pandas_out()
    from time import time

    began = time()
    options = read_options(arguments)
    source = arguments.source
    out = (arguments.out or source.with_name(f"{source.resolve().name}-advice")).absolute()

    from nearcast.pipeline.advise.advise import Adviser, select_candidates
    from nearcast.pipeline.advise.world import prepare_world

    def tell(text: str) -> None:
        minutes, seconds = divmod(round(time() - began), 60)
        sys.stderr.write(f"{minutes}:{seconds:02} {text}\n")
        sys.stderr.flush()

    facts, world = prepare_world(source, out, options.world)
    select_candidates(facts, options)  # before Spark starts: a wrong name should not wait
    tell(
        f"{facts.entities:,} entities and {facts.publications:,} publications in"
        f" {facts.seconds:g} s from second {facts.window_at_s:,.6g} of it; starting Spark"
    )

    from nearcast.cli.progress import StepMeter
    from nearcast.pipeline.advise.runs import SparkRuns
    from nearcast.pipeline.spark.session import silence

    step = StepMeter()
    spark = start_spark(arguments, lean=True)
    try:
        left = options.budget_s - (time() - began)
        runs = SparkRuns(spark, out, step.of_sweep)
        adviser = Adviser(runs, facts, world, options, left, tell)
        advice = adviser.run(lambda found: write_advice(found, out))
        if advice.interrupted:
            silence(spark)  # tasks that are ended in the middle complain
    finally:
        spark.stop()
        step.clear()
    if arguments.json:
        write_json(advice)
    else:
        from nearcast.pipeline.advise.texts import advice_lines

        write_lines(*advice_lines(advice), f"look at {out / 'advice.html'}")
    return 0


def read_options(arguments: argparse.Namespace) -> "AdviceOptions":
    """What was asked for; ValueError if it cannot be."""
    from nearcast.pipeline.advise.advise import AdviceOptions
    from nearcast.pipeline.advise.recommendation import AdviceLimits
    from nearcast.pipeline.advise.world import WorldOptions

    if not 0 < arguments.budget <= 1e5:
        raise ValueError(f"--budget must be above 0 and at most 100,000, not {arguments.budget}")
    return AdviceOptions(
        budget_s=arguments.budget * 60,
        limits=AdviceLimits(
            recall=arguments.recall, latency_ms=arguments.latency_ms,
            uplink_kbit=arguments.uplink_kbit, server_mbit=arguments.server_mbit,
        ),
        one_way_ms=arguments.one_way_ms,
        with_server=not arguments.no_server,
        crowds=read_crowds(arguments.crowds),
        only=tuple(name.strip() for name in arguments.only.split(",") if name.strip()),
        seed=arguments.seed,
        world=WorldOptions(
            seconds=arguments.seconds, start_s=arguments.start, radius=arguments.radius,
            payload=arguments.payload, faster=arguments.faster,
        ),
    )  # fmt: skip


def read_crowds(text: str) -> tuple[float, ...]:
    try:
        crowds = tuple(sorted({float(part) for part in text.split(",") if part.strip()}))
    except ValueError:
        raise ValueError(f"--crowds takes numbers with commas between them, not {text!r}") from None
    if any(not 1 < crowd <= 1000 for crowd in crowds):
        raise ValueError(f"--crowds takes numbers above 1 and up to 1,000, not {text!r}")
    return crowds


def write_advice(advice: "Advice", out: "AnyPath") -> None:
    """advice.json and advice.html, and nearcast.toml if nodes need one."""
    import msgspec

    from nearcast.pipeline.advise.page import advice_page
    from nearcast.storage import write_whole

    text = msgspec.json.format(msgspec.json.encode(advice), indent=2)
    write_whole(out / "advice.json", text)
    write_whole(out / "advice.html", advice_page(advice).encode())
    how = advice.deployment
    if how is not None and how.settings_file:
        write_whole(out / "nearcast.toml", how.settings_file.encode())
