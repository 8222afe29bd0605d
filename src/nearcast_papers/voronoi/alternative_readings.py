"""Readings of [VSO]: how fast clients recover from churn, and over what time maxima are taken."""

from nearcast_papers.readings import Interpretation, Readings
from nearcast_papers.voronoi.measures import VSOMeasures
from nearcast_papers.voronoi.scenarios import OUR_RECOVERY


class OurRecovery(VSOMeasures):
    """Churn with the constants of Nearcast, by which clients recover faster than VAST's."""

    recovery = OUR_RECOVERY


class EndOfRun(VSOMeasures):
    """Bandwidths over the end of a run, when all have joined."""

    whole = ""


CHURNED, PEAKS = (11, 12, 13, 14, 16, 17, 18), (23,)  # claims on figures 8 and 9b
READINGS = Readings(
    (
        Interpretation(
            "with VAST's recovery",
            '"by extending the VAST library" (V): clients ask again after 5 s, and are told nothing'
            " that was said before",
            VSOMeasures,
            CHURNED,
        ),
        Interpretation(
            "over the whole run",
            '"we record the maximum / average / minimum per second bandwidth usage at each node as'
            ' they move" (V): there is no warm-up',
            VSOMeasures,
            PEAKS,
        ),
        Interpretation("", "", VSOMeasures, range(1, 34)),
    ),
    (
        Interpretation("with our recovery", "IV-F leaves it open", OurRecovery, CHURNED),
        Interpretation("over the end of a run", "when all have joined", EndOfRun, PEAKS),
    ),
)
