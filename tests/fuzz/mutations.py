"""Damage to bytes, by chance from a seed: for short runs that are the same every time."""

from collections.abc import Iterator, Sequence
from random import Random

# Beginnings and ends of things, lengths that lie, and numbers at their borders.
TOKENS = (
    b"\x00", b"\x7f", b"\x80", b"\xff", b"\xc0", b"\xc1", b"\xdd\xff\xff\xff\xff", b"\xdf\x00\x01",
    b"\x91" * 200, b"[" * 200, b"\xcb\x7f\xf8" + bytes(6), b"\xcf" + b"\xff" * 8, b"\xd6\xff",
    b"\xc7\x0c\xff", b"\xed\xa0\x80", b"\\ud800", b"1e400", b"-0", b"NaN", b"null", b"true", b"{}",
    b'"', b"\r\n", b"\r\n\r\n", b": ", b"9" * 400, b"\x00\x00\xff\xff\xff\xff", b"%00", b",", b"(",
)  # fmt: skip
LONGEST = 20_000


def mutations(seeds: Sequence[bytes], count: int, random: Random) -> Iterator[bytes]:
    """So many inputs, each a seed with one to four changes."""
    for _ in range(count):
        data = bytearray(random.choice(seeds))
        for _ in range(random.randint(1, 4)):
            _change(data, seeds, random)
        yield bytes(data[:LONGEST])


def _change(data: bytearray, seeds: Sequence[bytes], random: Random) -> None:
    at = random.randint(0, len(data))
    to = min(len(data), at + random.choice((1, 2, 4, 16, 64)))
    match random.randrange(7):
        case 0 if data:
            data[at % len(data)] ^= 1 << random.randrange(8)
        case 1 if data:
            data[at % len(data)] = random.randrange(256)
        case 2:
            del data[at:to]
        case 3:
            data[at:at] = data[at:to] * random.choice((1, 2, 50))
        case 4:
            data[at:at] = random.choice(TOKENS)
        case 5:
            data[at:to] = random.choice(TOKENS)
        case _:
            other = random.choice(seeds)
            begin = random.randint(0, len(other))
            data[at:] = other[begin:]
