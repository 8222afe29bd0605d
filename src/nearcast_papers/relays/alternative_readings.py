"""Readings of [Lehn]: how much aggregation saves, and what clustering improves."""

from functools import partial

from nearcast_papers.paper import CountedRuns
from nearcast_papers.readings import Interpretation, Readings
from nearcast_papers.relays.measures import RelayMeasures


class OtherShare(RelayMeasures):
    """Rounds in which sources on one link share another part of their headers."""

    def __init__(self, counted: CountedRuns, shared: float) -> None:
        super().__init__(counted)
        self.shared = shared


class ByUtility(RelayMeasures):
    """The utility that is reached, of all nodes and subscriptions together."""

    def performance(self, clustering: float) -> float:
        return -self.ended("7", "cost", clustering=clustering)


REALITY = (6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 25)  # claims on figures 4 and 5
READINGS = Readings(
    (
        Interpretation(
            "half of a header shared",
            'by sources on one link: II-A assumes "some timing synchronization", not how much',
            RelayMeasures,
            range(1, 33),
        ),
    ),
    (
        Interpretation(
            "with whole headers shared", "messages of all sources leave together",
            partial(OtherShare, shared=1.0), REALITY,
        ),
        Interpretation(
            "with four fifths of a header shared", "most do", partial(OtherShare, shared=0.8),
            REALITY,
        ),
        Interpretation(
            "with no header shared", "none do", partial(OtherShare, shared=0.0), REALITY,
        ),
        Interpretation(
            "by utility", "the algorithm maximises it (IV)", ByUtility, (24,),
        ),
    ),
)  # fmt: skip
