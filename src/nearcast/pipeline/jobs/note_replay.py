"""Replays the notes of a run: the state at the end of each second. No Spark in here.

A note holds until the next one about the same subject, so the state of a second depends on all
notes before it. The notes of one run fit into one worker: a few columns, and compiled loops over
them. Only seconds with notes have rows; in all others the state is as before.
"""

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from numpy.typing import NDArray

from nearcast.pipeline.jobs.graphs import MEASURES, Whole, measure

Numbers: TypeAlias = NDArray[np.float64]
Truths: TypeAlias = NDArray[np.bool_]

# In the order in which notes of one microsecond take effect: a node that unlinks and links is
# linked, and a node that leaves is gone, whatever else it noted.
FACTS = ("unlinked", "linked", "level", "left", "crashed")
UNLINKED, LINKED, LEVEL = range(3)
GRAPH_SCHEMA = pa.schema(
    [("second", pa.int64()), *((name, pa.int64()) for name in MEASURES), ("height", pa.float64())]
)
OWNER_SCHEMA = pa.schema(
    [(name, pa.int64()) for name in ("second", "owner", "subscriptions", "changes")]
)
NOBODY = -1


def replay_links(notes: pa.Table) -> pa.Table:
    """The overlay's graph and height at the end of each second with notes of these facts.

    `notes`: second, t, node, fact, other and value, of one run. A pair is linked if at least one of
    the two notes so. When a node leaves or crashes, all its links end. If no link was noted at all,
    the measures of the graph are null.
    """
    fact = np.asarray(pc.index_in(notes["fact"], pa.array(FACTS)), np.int64)
    value = np.asarray(notes["value"].fill_null(0.0))
    order = np.lexsort((value, fact, notes["t"]))
    fact, value = fact[order], value[order]
    node = np.asarray(notes["node"])[order]
    other = np.asarray(notes["other"].fill_null(NOBODY))[order]
    is_link = fact <= LINKED
    nodes, codes = np.unique(np.concatenate((node, other[is_link])), return_inverse=True)
    subject, others = codes[: len(node)].copy(), codes[len(node) :]
    # A pair is one number; so is the link that it and its reverse have in common.
    pairs, subject[is_link] = np.unique(subject[is_link] * len(nodes) + others, return_inverse=True)
    ends = np.stack(np.divmod(pairs, len(nodes)))
    links, link_of = np.unique(
        ends.min(axis=0) * len(nodes) + ends.max(axis=0), return_inverse=True
    )
    low, high = np.divmod(links, len(nodes))
    # For each node, the pairs that it is part of.
    either = np.argsort(ends.ravel(), kind="stable")
    starts = np.searchsorted(ends.ravel()[either], np.arange(len(nodes) + 1))
    pairs_of = either % max(len(pairs), 1)

    linked, level = np.zeros(len(pairs), np.bool_), np.full(len(nodes), np.nan)
    notes_links = LINKED in fact
    rows = []
    for second, first, last in _seconds(np.asarray(notes["second"])[order]):
        apply_notes(fact[first:last], subject[first:last], value[first:last],
                   starts, pairs_of, linked, level)  # fmt: skip
        there = np.zeros(len(links), np.bool_)
        there[link_of[linked]] = True
        graph = measure(low[there], high[there]) if notes_links else dict.fromkeys(MEASURES)
        height = None if np.isnan(level).all() else float(np.nanmax(level))
        rows.append({"second": second, **graph, "height": height})
    return pa.Table.from_pylist(rows, GRAPH_SCHEMA)


def _seconds(second: Whole) -> Iterator[tuple[int, int, int]]:
    """Each second of a sorted column, and where its rows begin and end."""
    seconds, firsts = np.unique(second, return_index=True)
    ends = np.searchsorted(second, seconds, side="right")
    yield from zip(seconds.tolist(), firsts.tolist(), ends.tolist(), strict=True)


def _apply_notes(
    fact: Whole, subject: Whole, value: Numbers,
    starts: Whole, pairs_of: Whole, linked: Truths, level: Numbers,
) -> None:  # fmt: skip
    """Apply notes to `linked` and `level`; `subject` is a pair or a node."""
    for k in range(len(fact)):
        s = subject[k]
        if fact[k] == LINKED:
            linked[s] = True
        elif fact[k] == UNLINKED:
            linked[s] = False
        elif fact[k] == LEVEL:
            level[s] = value[k]
        else:
            level[s] = np.nan
            for pair in pairs_of[starts[s] : starts[s + 1]]:
                linked[pair] = False


def replay_owners(claims: pa.Table) -> pa.Table:
    """How many subscriptions each owner has at the end of each second with claims.

    `claims`: second, t, subscription, owner, of one run. A null owner means that the subscription
    has ended; it takes effect last in its microsecond. Of two claims at once the greater number
    wins.
    """
    ended = np.asarray(claims["owner"].is_null())
    claimed = np.asarray(claims["owner"].fill_null(NOBODY))
    order = np.lexsort((claimed, ended, claims["t"]))
    owners, owner = np.unique(claimed[order], return_inverse=True)
    owner[claimed[order] == NOBODY] = NOBODY
    names, subject = np.unique(np.asarray(claims["subscription"])[order], return_inverse=True)
    owner_of = np.full(len(names), NOBODY)
    owned = np.zeros(len(owners), np.int64)
    columns: list[list[Whole]] = [[OWNER_SCHEMA.empty_table()[0].to_numpy()] for _ in OWNER_SCHEMA]
    for second, first, last in _seconds(np.asarray(claims["second"])[order]):
        taken = np.zeros(len(owners), np.int64)
        apply_claims(owner[first:last], subject[first:last], owner_of, owned, taken)
        active = np.flatnonzero((owned > 0) | (taken > 0))
        values = np.full(len(active), second), owners[active], owned[active], taken[active]
        for column, value in zip(columns, values, strict=True):
            column.append(value)
    return pa.Table.from_arrays([pa.array(np.concatenate(c)) for c in columns], schema=OWNER_SCHEMA)


def _apply_claims(
    owner: Whole, subject: Whole, owner_of: Whole, owned: Whole, taken: Whole
) -> None:
    """Apply claims to `owner_of` and `owned`; `taken` counts those taken over from another."""
    for k in range(len(owner)):
        before, after = owner_of[subject[k]], owner[k]
        if before == after:
            continue
        if before != NOBODY:
            owned[before] -= 1
        if after != NOBODY:
            owned[after] += 1
            if before != NOBODY:
                taken[after] += 1
        owner_of[subject[k]] = after


apply_notes: Callable[..., None] = njit(cache=True)(_apply_notes)
apply_claims: Callable[..., None] = njit(cache=True)(_apply_claims)
