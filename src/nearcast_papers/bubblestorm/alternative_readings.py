"""Readings of [Lucas2011]: whom pSense knows, what its line carries, what traffic is, and ships."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from nearcast_papers.bubblestorm.measures import OUR_SHIPS, BubbleStormMeasures
from nearcast_papers.bubblestorm.scenarios import OTHER_PSENSE, OTHER_SHIPS
from nearcast_papers.paper import CountedRuns
from nearcast_papers.readings import Interpretation, Readings


class NarrowPSense(BubbleStormMeasures):
    """Runs of pSense that know their receivers alone, on narrower lines."""

    psense = OTHER_PSENSE


class PayloadAlone(BubbleStormMeasures):
    """Traffic without headers of UDP and IP."""

    headers = 0


class SentAndReceived(BubbleStormMeasures):
    """Traffic that a peer sends and receives."""

    ends = 2


class OtherShips(BubbleStormMeasures):
    """Games of other ships than ours, in which everybody is there at once."""

    def __init__(self, counted: CountedRuns, ships: Mapping[str, Any]) -> None:
        super().__init__(counted)
        self._ships = ships

    def _chosen(self, settings: dict[str, Any]) -> dict[str, Any]:
        chosen = super()._chosen(settings)
        if chosen.get("workload") != "planetpi4":
            return chosen
        return chosen | {**OUR_SHIPS, **self._ships, "join_rate": 0.0, "record": "brief"}


KNOWN = (16, 17, 20, 22, 24, 27, 28, 32)  # claims on whom pSense knows
SENT = (11, 12, 13, 14, 29, 30, 31, 33, 34)  # on traffic
FLOWN = (27, 30)  # on ships, that is, on how far they see and how fast they are
UNTOLD = "the thesis does not tell either"
READINGS = Readings(
    (
        Interpretation(
            "pSense knows its connections",
            '"connection degree" (5.4.2): whoever sends it a message is connected to it, too, and'
            " for 2 s after the last one (5.4.1)",
            BubbleStormMeasures,
            KNOWN,
        ),
        Interpretation(
            "bytes on lines of 1 Mbit/s",
            '"total traffic consumption of all peers" (5.4.1), with headers of UDP and IP; lines'
            " of 16/1 Mbit/s (5.3.1)",
            BubbleStormMeasures,
            SENT,
        ),
        Interpretation("", "", BubbleStormMeasures, range(1, 37)),
    ),
    (
        Interpretation(
            "with those alone whom pSense sends its position to, on 15 KB/s",
            "its two lists (2.4.1), and the default of its authors' later program",
            NarrowPSense, (*KNOWN, *(item for item in SENT if item not in (11, 12, 34))),
        ),
        Interpretation(
            "with the payload of messages alone", "5.2.2 does not say what is counted",
            PayloadAlone, SENT,
        ),
        Interpretation(
            "with what is received, too", "5.2.2 does not say what is counted",
            SentAndReceived, SENT,
        ),
        *(
            Interpretation(
                f"with ships that see {ships['radius']:g} units and fly at {ships['speed']:g}",
                UNTOLD, partial(OtherShips, ships=ships), FLOWN,
            )
            for ships in OTHER_SHIPS if "radius" in ships
        ),
        Interpretation(
            "in a world without a border", '"infinitely big" (2.1)',
            partial(OtherShips, ships={"bounded": False}), FLOWN,
        ),
    ),
)  # fmt: skip
