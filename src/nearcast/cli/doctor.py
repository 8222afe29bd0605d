"""`nearcast doctor`: check this machine."""

import argparse
from typing import Any

from nearcast.cli.common import Parser, write_json, write_lines


def add_doctor(commands: Any) -> Parser:
    command: Parser = commands.add_parser(
        "doctor",
        help="check this machine",
        description="Check that everything Nearcast needs is here and works.",
    )
    command.set_defaults(run=run_doctor)
    return command


def run_doctor(arguments: argparse.Namespace) -> int:
    from nearcast.cli.machine_checks import run_checks

    findings = run_checks()
    if arguments.json:
        write_json(findings)
    else:
        for finding in findings:
            write_lines(f"{'ok ' if finding.good else 'BAD'}  {finding.check}: {finding.found}")
            if not finding.good:
                write_lines(f"     → {finding.remedy}")
    return 0 if all(finding.good for finding in findings) else 1
