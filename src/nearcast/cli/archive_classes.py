"""`python -m nearcast.cli.archive_classes`: Spark starts in half the time with what this leaves.

Java reads and verifies the classes of Spark in every process. Here it writes those of
one small analysis into a file, which `pipeline.spark.session` gives to every later one.
`make setup` runs this.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from nearcast.errors import NoJavaError
from nearcast.pipeline.analyse import analyse
from nearcast.pipeline.spark.session import class_archive, java_home, start
from nearcast.pipeline.spark.storage import open_traces
from nearcast.scenario import Scenario
from nearcast.sim.run import simulate


def archive_classes(archive: Path) -> None:
    """Analyse a small trace, and write the classes that were loaded when Java ends."""
    unfinished = archive.with_suffix(".unfinished")
    archive.parent.mkdir(exist_ok=True)
    unfinished.unlink(missing_ok=True)
    with TemporaryDirectory() as folder:
        trace = Path(folder) / "trace"
        small = Scenario(protocol="client-server", workload="waypoint", nodes=12, seconds=3.0)
        simulate(small, trace)
        spark = start("local[2]", lean=True, archive_to=unfinished)
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        analyse(spark, open_traces([trace]), trace.with_name("results"))
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # Java ends, and writes
        gateway.proc.wait()
    if unfinished.exists():
        unfinished.replace(archive)


def main() -> None:
    """Without Java there is nothing to do: all but Spark works."""
    try:
        place = class_archive(java_home())
    except NoJavaError as why:
        sys.stderr.write(f"nearcast: {why}\n")
        return
    if not place.exists():
        sys.stderr.write("nearcast: archiving the classes of Spark; this takes a minute\n")
        archive_classes(place)


if __name__ == "__main__":
    main()
