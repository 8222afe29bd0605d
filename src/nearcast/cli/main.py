"""The command line: assembles the commands, reports errors and sets exit codes.

Exit codes: 0 success, 1 failure, 2 wrong use. Errors are one line on standard error. With --json,
standard output is one JSON document and nothing else.
"""

import os
import re
import sys
from collections.abc import Sequence
from traceback import extract_tb

from nearcast import __version__
from nearcast.cli import (
    advise,
    analyse,
    clients,
    doctor,
    explain,
    geofence,
    monitor,
    node,
    nodes,
    peer,
    reproduce,
    simulate,
    sweep,
    traces,
)
from nearcast.cli.common import Parser
from nearcast.errors import Refused
from nearcast.extras import missing

# In the order in which `nearcast --help` lists them. Each adds its parser, which names its `run`.
COMMANDS = (
    simulate.add_simulate, traces.add_validate, analyse.add_analyse, explain.add_explain,
    traces.add_import, traces.add_export, geofence.add_geofence, sweep.add_sweep,
    advise.add_advise, reproduce.add_reproduce, doctor.add_doctor, monitor.add_up,
    monitor.add_monitor, node.add_node, nodes.add_nodes, peer.add_peer, node.add_config,
    clients.add_listen, clients.add_say, traces.add_merge,
)  # fmt: skip


EXAMPLES = f"""\
{clients.QUICK_START}a game of bots, in a page:
  nearcast up
a simulated world, and what happened in it:
  nearcast simulate client-server --nodes 2000 --seconds 10 --trace world
  nearcast analyse world
"""


def parser() -> Parser:
    """The parser of all commands."""
    top = Parser(
        prog="nearcast",
        description="Spatial publish/subscribe: clients receive what touches their areas.",
        epilog=EXAMPLES,
    )
    top.add_argument("--version", action="version", version=f"nearcast {__version__}")
    commands = top.add_subparsers(
        dest="command", required=True, metavar="COMMAND", title="commands"
    )
    for command in [add(commands) for add in COMMANDS]:
        command.add_argument(
            "--json", action="store_true", help="one JSON document on standard output"
        )
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Gives the exit code."""
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


WORKER_ERROR = re.compile(
    r"^(?:[\w.]*PythonException: )?nearcast\.errors\.\w+: (.+)$", re.MULTILINE
)


# What executors lack, and how Spark says so, on pages. With what was found between brackets.
LACKING = {
    re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'"): "executors have no module {}",
    re.compile(r"PACKAGE_NOT_INSTALLED\] (\S+)"): "executors have no module {}",
    re.compile(r'Cannot run program "([^"]+)"'): "executors have no {}",
    re.compile(r"PYTHON_VERSION_MISMATCH\] (.*)"): "executors have another Python: {}",
}
HOW_TO_PACK = "; give them an environment that has it (docs/how-to/spark-cluster.md)"


def fail(code: int, why: object) -> int:
    text = str(why) or type(why).__name__
    if found := WORKER_ERROR.findall(text):
        text = found[-1]  # Spark adds pages to what a worker says
    else:
        for pattern, meaning in LACKING.items():
            if one := pattern.search(text):
                text = meaning.format(one[1]) + HOW_TO_PACK
                break
    sys.stderr.write(f"nearcast: {' '.join(text.split())}\n")
    return code
