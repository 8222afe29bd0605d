"""Coverage-guided fuzzing of one target: `python -m tests.fuzz TARGET --seconds 60`.

Inputs that lead to new places are kept in --keep, if that is given; one that fails is written to
the folder --crashes. When it is repaired, it belongs into the target's corpus.
"""

import argparse
import sys
import tempfile

import atheris

from .compiled_modules import compiled_modules


def main() -> None:
    with atheris.instrument_imports(include=["nearcast"], exclude=compiled_modules()):
        from .targets import CORPUS, TARGETS, corpus

    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", help="a folder for inputs that lead to new places")
    parser.add_argument("--crashes", default="./", help="a folder for an input that fails")
    asked = parser.parse_args()
    target = TARGETS[asked.target]
    for data in corpus(asked.target):  # what is compiled or opened first takes longer than a hang
        target(data)
    with tempfile.TemporaryDirectory() as found:
        folders = [asked.keep or found, str(CORPUS / asked.target)]
        options = [
            f"-max_total_time={asked.seconds}", f"-seed={asked.seed}", "-max_len=20000",
            "-timeout=20", "-rss_limit_mb=4096", f"-artifact_prefix={asked.crashes}",
        ]  # fmt: skip
        atheris.Setup([sys.argv[0], *options, *folders], target)
        atheris.Fuzz()


main()
