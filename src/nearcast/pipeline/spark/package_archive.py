"""The packages as one file, for executors that do not have them installed.

Python imports from a zip file, but keeps nothing that it compiles there: every worker process would
compile all modules again, and numba all kernels, for half a minute. So the packages in this archive
unpack it beside itself, into a folder that Spark deletes with the application, and are imported
from there. The kernels that were compiled here go along; numba uses them if the processor is the
same.
"""

import sys
import zipfile
from pathlib import Path

PACKAGES = ("nearcast", "nearcast_papers")
NAME = "nearcast.zip"
COMPILED = (".nbi", ".nbc")  # numba's index and data of a kernel

# The `__init__` of both packages in the archive. The folder appears complete, whichever of several
# processes unpacks first. Where nothing can be written, the packages are imported from the archive.
UNPACK = """\
import importlib
import os
import shutil
import sys
import zipfile

archive = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
folder = archive + ".unpacked"
if not os.path.isdir(folder):
    unfinished = f"{folder}.{os.getpid()}"
    try:
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(unfinished, [n for n in packed.namelist() if n.startswith("files/")])
        os.rename(os.path.join(unfinished, "files"), folder)
    except OSError:
        pass
    shutil.rmtree(unfinished, ignore_errors=True)
sys.path.insert(0, folder if os.path.isdir(folder) else os.path.join(archive, "files"))
del sys.modules[__name__]
importlib.import_module(__name__)
"""


def write_package_archive(folder: Path) -> Path:
    """Write the archive into this folder; gives its path."""
    root = Path(__file__).parents[3]
    archive = folder / NAME
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for package in PACKAGES:
            if not (root / package).is_dir():
                continue
            packed.writestr(f"{package}/__init__.py", UNPACK)
            for file in sorted((root / package).rglob("*")):
                if file.suffix in (".py", *COMPILED):
                    packed.write(file, Path("files") / file.relative_to(root))
    return archive


def leave_out_of_path(archive: Path) -> None:
    """Spark also puts it on the path of this process, which has the packages with all their files
    already."""
    sys.path[:] = [place for place in sys.path if Path(place).name != archive.name]
