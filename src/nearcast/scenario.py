"""Everything that determines a run, as one value. Its hash names the run."""

from hashlib import sha256
from math import isfinite
from random import Random
from typing import TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from nearcast.field_checks import one_of

Setting: TypeAlias = bool | int | float | str
SCHEMA = 2
READABLE = (1, 2)  # a scenario means the same in both
RECORDS = ("all", "sampled", "sums", "brief", "none")  # what of a run its trace keeps


class Scenario(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to run. `settings` holds every parameter of protocol, workload, network and faults.

    Building a world fills in the defaults, so that the value says what ran, not what was typed.
    """

    protocol: str
    workload: str
    nodes: int
    seconds: float
    seed: int = 1
    record: str = "all"
    settings: dict[str, Setting] = {}
    schema: int = SCHEMA

    def __post_init__(self) -> None:
        force_setattr(self, "seconds", float(self.seconds))  # 2 and 2.0 are one scenario
        if not 1 <= self.nodes <= 2_000_000:
            raise ValueError(f"nodes must be between 1 and 2,000,000, not {self.nodes}")
        if not 0 < self.seconds <= 1e7:
            raise ValueError(f"seconds must be above 0 and at most 10,000,000, not {self.seconds}")
        for name, value in self.settings.items():
            if isinstance(value, float) and not isfinite(value):
                raise ValueError(f"{name} must be a finite number, not {value}")
        one_of("record", self.record, RECORDS)
        if self.schema not in READABLE:
            raise ValueError(f"this scenario has schema {self.schema}; we read {SCHEMA}")

    @property
    def run(self) -> str:
        """The run's name: sixteen hexadecimal digits of the value's hash."""
        return sha256(to_json(self)).hexdigest()[:16]


def to_json(scenario: Scenario) -> bytes:
    return msgspec.json.encode(scenario, order="sorted")


def from_json(text: bytes) -> Scenario:
    return msgspec.json.decode(text, type=Scenario)


def stream(seed: int, *purpose: object) -> Random:
    """A separate random stream for each purpose: another draw from one never changes another."""
    return Random(repr((seed, *purpose)))
