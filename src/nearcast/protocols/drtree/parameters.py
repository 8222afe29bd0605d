"""What can be set for a DR-tree."""

from msgspec import Struct

from nearcast.field_checks import between, one_of
from nearcast.protocols.drtree.strategies import STRATEGIES
from nearcast.space.rtree import SPLITS

AREAS = ("merged", "split")
PROMOTES = ("coverage", "latency", "address")


class Parameters(Struct, frozen=True, kw_only=True):
    """What can be set for a DR-tree."""

    # Fewest children of a node, 1 to most/2; more of them, and the tree is lower and merges more.
    least: int = 4
    # Most children of a node, 2 to 1,000; more of them, and the tree is lower but owners busier.
    most: int = 8
    # quadratic, linear or rstar: how a node with too many children falls in two.
    split: str = "quadratic"
    # double-wave, brothers, root-link, ancestors or by-root: the way of a publication.
    strategy: str = "double-wave"
    # coverage: the largest child owns a node. latency: the child with the least mean round trip to
    # its brothers, measured by pings. address: the child of least address.
    promotes: str = "coverage"
    # merged: one box around all that a node wants. split: one box and one member for each group of
    # areas that touch.
    areas: str = "merged"
    # Dimensions of the tree, with commas: axes first, then numeric attributes of publications.
    dimensions: str = "x,y"
    # Milliseconds between two checks of a member, above the slowest message's way; upkeep shrinks
    # and repair takes longer as it grows.
    check_ms: float = 5000.0
    # How slowly members that join together are let in: in so many checks' time, e times as many as
    # are in the tree. 0: all at once, over boxes that are not correct yet; nodes overlap more then.
    join_queue: float = 1.0
    # Checks without a message from a neighbour after which it is given up, 1 to 100.
    misses: int = 3
    # Milliseconds of motion that the box of a moving area covers; boxes grow and updates shrink
    # with it.
    horizon_ms: float = 4000.0
    # Note for each step of a publication which levels of the tree it goes between (`leaves`,
    # `arrives`), within a peer too; a trace grows by two notes per step.
    note_levels: bool = False
    # Seconds for which a node remembers publishers; its view grows with it.
    memory_s: float = 2.0

    def __post_init__(self) -> None:
        one_of("split", self.split, SPLITS)
        one_of("strategy", self.strategy, STRATEGIES)
        one_of("areas", self.areas, AREAS)
        one_of("promotes", self.promotes, PROMOTES)
        between("most", self.most, 2, 1000)
        between("least", self.least, 1, (self.most + 1) // 2)
        between("misses", self.misses, 1, 100)
        between("check_ms", self.check_ms, 1, 1e7)
        between("join_queue", self.join_queue, 0, 1000)
        between("horizon_ms", self.horizon_ms, 1, 1e7)
        if not 0 < self.memory_s <= 1e6:
            raise ValueError(f"memory_s must be above 0 and at most 1e6, not {self.memory_s}")
        names = self.names
        if not all(names) or len(dict.fromkeys(names)) < len(names) or "t" in names:
            raise ValueError(f"dimensions must be different names, not {self.dimensions!r}")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name.strip() for name in self.dimensions.split(","))
