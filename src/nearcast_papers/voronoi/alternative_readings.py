"""Readings of [VSO]: how fast clients recover, what messages cost, and what the rest is."""

from collections.abc import Mapping
from types import MappingProxyType

from nearcast_papers.readings import Interpretation, Readings
from nearcast_papers.voronoi.measures import VSOMeasures
from nearcast_papers.voronoi.scenarios import OUR_RECOVERY, STEP_RATE, WIDE_BUFFER


class OurRecovery(VSOMeasures):
    """Churn with the constants of Nearcast, by which clients recover faster than VAST's."""

    recovery = OUR_RECOVERY


class EndOfRun(VSOMeasures):
    """Bandwidths over the end of a run, when all have joined."""

    whole = ""


class AuthorsMessages(VSOMeasures):
    """Bandwidths of what the authors' program sends, with the sizes that it writes."""

    sizes_of = "program_"


class WideBuffer(VSOMeasures):
    """Areas extended by VON's own buffer, where nodes publish in every step."""

    buffers: Mapping[float, float] = MappingProxyType({STEP_RATE: WIDE_BUFFER})


CHURNED, PEAKS = (11, 12, 13, 14, 16, 17, 18), (23,)  # claims on figures 8 and 9b
BYTES, CONSISTENT = (20, 21, 22, 24, 25, 26, 27), (4,)  # on bytes, and on consistency elsewhere
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
        Interpretation(
            "with the messages of the authors' program",
            'VSO is evaluated "by extending the VAST library" (V), in which a position is a'
            " subscription: its owner finds it in its copies, no publication is posted or"
            " forwarded, and moves have 24 bytes; against it, III-B and IV-E describe that"
            ' publications are forwarded, and each client performs "point publication of its'
            ' position" (V)',
            AuthorsMessages,
            BYTES,
        ),
        Interpretation(
            "with areas extended by 32 units",
            "the default of VAST's class VON; its simulation's file has 10",
            WideBuffer,
            CONSISTENT,
        ),
    ),
)
