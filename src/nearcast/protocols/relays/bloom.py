"""Bloom filters of node ids: a set in few bytes, with few false positives ([Lehn] IV-B).

A filter has a power of two of bits, about ten for each member, and every member sets four of them;
then about one in a hundred nodes outside the set seems to be in it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

MARKS = 4
BITS_EACH = 10
SMALLEST, LARGEST = 8, 2048  # bytes


def positions(ids: Sequence[int] | NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
    """Where each marks a filter of so many bytes: a row for each.

    The numbers are mixed as by splitmix64, the same in every process.
    """
    mixed = np.asarray(ids, np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    shifts = np.arange(MARKS, dtype=np.uint64) * np.uint64(16)
    return (mixed[:, None] >> shifts) & np.uint64(size * 8 - 1)


def filter_of(ids: Sequence[int]) -> bytes:
    size = SMALLEST
    while size * 8 < BITS_EACH * len(ids) and size < LARGEST:
        size *= 2
    bits = np.zeros(size * 8, np.uint8)
    if ids:
        bits[positions(ids, size)] = 1
    return np.packbits(bits).tobytes()


def is_filter(packed: bytes) -> bool:
    """Has it a size that `filter_of` can make?"""
    return SMALLEST <= len(packed) <= LARGEST and len(packed).bit_count() == 1


def bits_of(packed: bytes) -> NDArray[np.uint8]:
    return np.unpackbits(np.frombuffer(packed, np.uint8))


def holds_each(bits: NDArray[np.uint8], ids: Sequence[int]) -> NDArray[np.bool_]:
    """Which of them are probably in the set?"""
    if not len(ids):
        return np.zeros(0, bool)
    return np.asarray(bits[positions(ids, len(bits) // 8)].all(axis=1), bool)
