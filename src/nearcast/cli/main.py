"""The command line: what may be typed, exit codes, errors. `commands` does what is asked.

Exit codes: 0 success, 1 failure, 2 wrong use. Errors are one line on standard error. With --json,
standard output is one JSON document and nothing else.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from traceback import extract_tb
from typing import Any, NoReturn

from nearcast import __version__
from nearcast.cli import commands as commands_
from nearcast.cli import live_commands
from nearcast.errors import Refused
from nearcast.extras import missing

EXAMPLES = """\
examples:
  nearcast simulate client-server --nodes 2000 --seconds 10 --trace world
  nearcast simulate client-server --workload hotspots --set hotspots=burning --trace burning
  nearcast simulate client-server --set loss=0.02 --set jitter_ms=5 --trace lossy
  nearcast simulate client-server --workload clustering --settings
  nearcast validate world
"""


MASTER = "a Spark master (default: local[*], all cores of this machine)"


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parser() -> Parser:
    top = Parser(
        prog="nearcast",
        description="Spatial publish/subscribe: everyone whose area a message touches hears it.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"nearcast {__version__}")
    commands = top.add_subparsers(
        dest="command", required=True, metavar="COMMAND", title="commands"
    )
    adders = (
        add_simulate, add_validate, add_analyse, add_import, add_sweep, add_reproduce, add_doctor,
        add_up, add_monitor, *live_commands.ADDERS
    )  # fmt: skip
    for command in [add(commands) for add in adders]:
        command.add_argument(
            "--json", action="store_true", help="one JSON document on standard output"
        )
    return top


def add_simulate(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "simulate",
        help="run a protocol in a simulated world and leave a trace",
        description="Run a protocol in a simulated world. Same arguments, same trace, always.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = command.add_argument
    add("protocol", metavar="PROTOCOL", help="client-server, drtree, brokers")
    add(
        "--workload",
        metavar="NAME",
        help="who does what: waypoint (default), hotspots (default of drtree), clustering, mammoth,"
        " trading, recorded (--set file=PATH)",
    )
    add(
        "--nodes",
        type=int,
        metavar="N",
        help="entities (default 1000; recorded: all in the file); with more, the world is as much"
        " larger, unless its size is set",
    )
    add("--seconds", type=float, default=10.0, metavar="S", help="simulated seconds (default 10)")
    add("--seed", type=int, default=1, metavar="K", help="of all chance (default 1)")
    add(
        "--record",
        default="all",
        metavar="LEVEL",
        help="all (default), sampled (some publications), sums (messages per second), brief (both),"
        " none",
    )
    add(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="settings",
        help="any setting of protocol, workload, network, faults (--settings lists them)",
    )
    add(
        "--settings",
        action="store_true",
        dest="explain",
        help="list what can be set for this protocol and workload, and stop",
    )
    add("--trace", type=Path, metavar="DIR", help="where to leave the trace")
    add(
        "--no-check",
        action="store_true",
        help="do not check the protocol's invariants, once a simulated second, while it runs",
    )
    command.set_defaults(run=commands_.run_simulate)
    return command


def add_validate(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "validate",
        help="tell what is wrong with a trace, table by table",
        description="Check every file and row of a trace. Exit code 1 if anything is wrong.",
    )
    command.add_argument("trace", type=Path, metavar="TRACE", help="a trace folder")
    command.set_defaults(run=commands_.run_validate)
    return command


def add_analyse(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "analyse",
        help="count what happened in traces, on Spark: truth, quality, traffic, report",
        description="Compute the exact truth of each trace, judge every delivery by it, and write"
        " result tables (Parquet, partitioned by run) and report.html. With --follow, do so second"
        " by second while the trace grows: a line for each (with --json, a document on a line),"
        " a table `windows` and live.json. Stopped or killed, the same command goes on.",
    )
    add = command.add_argument
    add(
        "traces",
        nargs="+",
        type=Path,
        metavar="TRACE",
        help="a trace folder, or a folder of traces",
    )
    add("--out", type=Path, metavar="DIR", help="where results go (default: TRACE-analysis)")
    add("--follow", action="store_true", help="count one trace while it grows, until it ends")
    add("--master", metavar="URL", help=MASTER)
    command.set_defaults(run=commands_.run_analyse)
    return command


def add_import(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "import",
        help="turn recorded movement (CSV or Parquet) into a trace",
        description="Columns t (seconds), entity, x, y[, z]: every fix moves the entity's area of"
        " interest there and publishes its position.",
    )
    add = command.add_argument
    add("file", type=Path, metavar="FILE")
    add("--trace", type=Path, required=True, metavar="DIR", help="where to leave the trace")
    add(
        "--radius",
        type=float,
        metavar="R",
        help="of the areas of interest (default: 1 %% of the world's longer side)",
    )
    add("--shape", default="disc", metavar="NAME", help="disc (default) or box")
    add(
        "--motion",
        default="steps",
        metavar="NAME",
        help="steps (default: areas stand still between fixes) or line",
    )
    command.set_defaults(run=commands_.run_import)
    return command


def add_sweep(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "sweep",
        help="simulate a grid of scenarios, one Spark task each",
        description="FILE.toml holds a scenario in which any value may be a list; all combinations"
        " are run. Killed at any moment, the same command goes on where it was.",
    )
    add = command.add_argument
    add("file", type=Path, metavar="FILE.toml")
    add(
        "--out",
        type=Path,
        default=Path("sweep"),
        metavar="DIR",
        help="where traces and failures go (default: sweep)",
    )
    add("--master", metavar="URL", help=MASTER)
    command.set_defaults(run=commands_.run_sweep)
    return command


def add_reproduce(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "reproduce",
        help="draw the papers' figures beside ours, and judge every claim they make",
        description="Simulate what a paper's figures need, count it on Spark, and write"
        " claims.json, and for each paper a folder with report.html and figures/. What has been"
        " simulated before is not again.",
    )
    add = command.add_argument
    add(
        "papers",
        nargs="*",
        metavar="PAPER[:FIGURE]",
        help="drtree, evolving, voronoi, bubblestorm, relays; without a figure, all of it;"
        " without a paper, all of them",
    )
    add("--full", action="store_true", help="as long as in the papers, several seeds: hours")
    add(
        "--out",
        type=Path,
        default=Path("reproduction"),
        metavar="DIR",
        help="where traces, results and figures go (default: reproduction)",
    )
    add("--master", metavar="URL", help=MASTER)
    command.set_defaults(run=commands_.run_reproduce)
    return command


def add_up(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "up",
        help="open a world: a live node, a game played by bots, and a page to watch it",
        description="Start a live node with recording on, let bots play a small game on it, and"
        " serve a page on which you watch, walk a character and see the numbers. With --game"
        " planetpi4 the bots are peers without any server, and you fly a ship among them.",
    )
    add = command.add_argument
    add("--port", type=int, default=8470, metavar="N", help="of page and clients (default 8470)")
    add(
        "--game", default="walkers", choices=("walkers", "planetpi4"),
        help="walkers (default): characters on a node; planetpi4: ships, each a peer of an overlay",
    )  # fmt: skip
    add(
        "--bots", type=int, metavar="N",
        help="characters (default 300; 0: none) or ships (default 24)",
    )  # fmt: skip
    add("--trace", type=Path, metavar="DIR", help="where the recording goes (default: traces/…)")
    command.set_defaults(run=run_up)
    return command


def run_up(arguments: argparse.Namespace) -> int:
    ships = arguments.game == "planetpi4"
    return live_commands.run_ships(arguments) if ships else commands_.run_up(arguments)


def add_monitor(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "monitor",
        help="play a recorded or simulated trace in the same page",
        description="Serve a page on which the trace is played: play, pause, seek, any speed.",
    )
    command.add_argument("trace", type=Path, metavar="TRACE", help="a trace folder")
    command.add_argument(
        "--port", type=int, default=8471, metavar="N", help="of the page (default 8471)"
    )
    command.set_defaults(run=commands_.run_monitor)
    return command


def add_doctor(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "doctor",
        help="check this machine",
        description="Check that everything Nearcast needs is here and works.",
    )
    command.set_defaults(run=commands_.run_doctor)
    return command


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, Refused) as why:
        return fail(2, why)
    except FileNotFoundError as why:
        return fail(2, f"there is no {why.filename}")
    except MemoryError:
        return fail(1, "not enough memory for this world; try fewer --nodes or --record sums")
    except KeyboardInterrupt:
        return fail(1, "interrupted")
    except ModuleNotFoundError as why:
        return fail(1, missing(why) or why)
    except Exception as why:
        if os.environ.get("NEARCAST_DEBUG"):
            raise
        return fail(1, SPARK_ENDED if spark_ended(why) else why)


SPARK_ENDED = (
    "Spark has ended before its work did, probably for want of memory; say how many MiB it may have"
    " with NEARCAST_SPARK_MB, and start again"
)


def spark_ended(why: BaseException | None) -> bool:
    """Did its process stop answering? What comes after that hides it."""
    while why is not None:
        if type(why).__name__ == "Py4JNetworkError":
            return True
        if isinstance(why, ConnectionError) and any(
            "py4j" in frame.filename for frame in extract_tb(why.__traceback__)
        ):
            return True
        why = why.__context__
    return False


def fail(code: int, why: object) -> int:
    text = str(why) or type(why).__name__
    sys.stderr.write(f"nearcast: {' '.join(text.split())}\n")
    return code
