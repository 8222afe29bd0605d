"""Subscriptions as packed rows that compiled kernels can read.

A row is one leg of one subscription's motion. A path has a row for each leg, valid from the moment
the leg begins until the next one begins, so a kernel never follows Python objects. Packing a row
with `struct` into the array's memory costs a third of assigning to a numpy record.
"""

from math import inf
from struct import Struct as Packing
from typing import Any

import numpy as np

from nearcast.columns import SlotAllocator, grow
from nearcast.matching.filters import NO_STEPS, Filters, StepCount, count_steps
from nearcast.matching.formula_vm import NO_PROGRAM, Programs
from nearcast.matching.outline_table import OutlineTable
from nearcast.model.subscription import Formula, Subscription, evolves
from nearcast.space.motion import FOREVER, Moving, Path
from nearcast.space.shapes import EVERYWHERE

ROW = np.dtype(
    [(name, np.int64) for name in (
        "flags", "kind", "id", "node", "channel", "since", "until", "valid_from", "valid_to",
        "program", "filter", "pair_steps", "moment_steps", "evaluated_at")]
    + [(name, np.float64) for name in (
        "x", "y", "z", "rx", "ry", "rz", "vx", "vy", "vz", "gx", "gy", "gz")]
)  # fmt: skip
PACK = Packing("=14q12d").pack_into

# Flags of a row.
ALIVE = 1
ECHO = 2
MOVES = 4
FILTERED = 8  # the subscription has a filter, which decides
FORMULA = 16  # a program says where the region is; velocity and growth are a box around it
EVOLVES = 32  # region or filter change by themselves: looking at them at a moment is an evaluation
OUTLINED = 128  # the shape has an outline, which decides; its place is kept in `program`

NO_FILTER = -1


class Rows(SlotAllocator):
    """The rows of all subscriptions of an engine: a growing array whose freed places are reused."""

    def __init__(self) -> None:
        super().__init__()
        self.array: Any = np.zeros(64, ROW)
        self.channels: dict[str, int] = {}  # numbers of those that a row is on
        self._rows_on: dict[int, tuple[str, int]] = {}  # by a channel's number: its name, how many
        self._next_channel = 0
        self.programs = Programs()
        self.filters = Filters(self.programs)
        self.outlines = OutlineTable()

    def remove(self, places: list[int]) -> None:
        """Free the places of one subscription."""
        first = self.array[places[0]]
        if first["flags"] & FILTERED:
            self.filters.remove(int(first["filter"]))
        for place in places:
            row = self.array[place]
            if row["flags"] & FORMULA:
                self.programs.remove(int(row["program"]))
            elif row["flags"] & OUTLINED:
                self.outlines.remove(int(row["program"]))
            row["flags"] = 0
            self._leave(int(row["channel"]))
        self.free.extend(places)

    def _take_place(self) -> int:
        place = self.take()
        if place == len(self.array):
            self.array = grow(self.array, place + 1)
        return place

    def _enter(self, name: str) -> int:
        number = self.channels.get(name)
        if number is None:
            number = self.channels[name] = self._next_channel
            self._next_channel += 1
        self._rows_on[number] = name, self._rows_on.get(number, (name, 0))[1] + 1
        return number

    def _leave(self, number: int) -> None:
        """Forget a channel without rows: clients may invent any number of names."""
        name, rows = self._rows_on[number]
        if rows > 1:
            self._rows_on[number] = name, rows - 1
        else:
            del self._rows_on[number], self.channels[name]

    def add(self, subscription: Subscription) -> list[int]:
        """Pack the subscription and return the places it took."""
        region = subscription.region
        flags = ALIVE | (ECHO if subscription.echo else 0)
        flags |= FILTERED if subscription.filter else 0
        flags |= EVOLVES if evolves(subscription) else 0
        cost = count_steps(subscription)
        condition = self.filters.add(subscription.filter) if subscription.filter else NO_FILTER
        if isinstance(region, Formula):
            flags |= FORMULA
            return [self._pack_formula(subscription, region, flags, condition, cost)]
        legs = region.legs if isinstance(region, Path) else (region,)
        ends = [leg.since for leg in legs[1:]] + [FOREVER]
        begins = [-FOREVER, *ends[:-1]]
        return [
            self._pack(subscription, leg, flags, begin, end, condition, cost)
            for leg, begin, end in zip(legs, begins, ends, strict=True)
        ]

    def repack(self, place: int, subscription: Subscription) -> None:
        """Pack it again where it is: without filter or outline, on the same channel, in one leg."""
        leg = subscription.region
        assert isinstance(leg, Moving), "a path has several places"
        flags = ALIVE | (ECHO if subscription.echo else 0) | (EVOLVES | MOVES if leg.moves else 0)
        channel = self.channels[subscription.channel]
        self._pack_at(
            place, subscription, leg, flags, channel, -FOREVER, FOREVER, NO_FILTER, NO_STEPS
        )

    def _pack(
        self, wanted: Subscription, leg: Moving, flags: int, begin: int, end: int,
        condition: int, cost: StepCount,
    ) -> int:  # fmt: skip
        place, channel = self._take_place(), self._enter(wanted.channel)
        flags |= MOVES if leg.moves else 0
        self._pack_at(place, wanted, leg, flags, channel, begin, end, condition, cost)
        return place

    def _pack_at(
        self, place: int, wanted: Subscription, leg: Moving, flags: int, channel: int, begin: int,
        end: int, condition: int, cost: StepCount,
    ) -> None:  # fmt: skip
        s, outline = leg.shape, NO_PROGRAM
        if s.outline is not None:
            flags |= OUTLINED
            outline = self.outlines.add(s.outline)
        PACK(
            self.array, place * ROW.itemsize,
            flags, s.kind, wanted.id, wanted.node, channel, leg.since, leg.until, begin, end,
            outline, condition, *cost, -FOREVER, s.x, s.y, s.z, s.rx, s.ry, s.rz,
            *leg.velocity, *leg.growth,
        )  # fmt: skip

    def _pack_formula(
        self, wanted: Subscription, formula: Formula, flags: int, condition: int, cost: StepCount
    ) -> int:
        """Its box is unbounded until `formula_vm.bound` computes one."""
        place, s = self._take_place(), EVERYWHERE
        PACK(
            self.array, place * ROW.itemsize,
            flags, s.kind, wanted.id, wanted.node, self._enter(wanted.channel),
            formula.since, FOREVER, -FOREVER, FOREVER, self.programs.add(formula.parsed),
            condition, *cost, -FOREVER,
            s.x, s.y, s.z, s.rx, s.ry, s.rz, -inf, -inf, -inf, inf, inf, inf,
        )  # fmt: skip
        return place
