"""What an application may ask of an overlay, or of a node: one place that says who offers what.

Refusals name what is missing and who has it, and the table of the documents is made from it.
Tests try everything that an overlay offers, and that it refuses the rest.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING

from nearcast.errors import NotOfferedError

if TYPE_CHECKING:
    from nearcast.protocols.overlay import ProtocolKind

NODE = "a node (`connect`, `World`)"


class OverlayOffer(Enum):
    """Something that an application may ask for, as documents and errors call it."""

    AREAS = "areas: discs, balls, boxes, everywhere, in 2-D and 3-D"
    OUTLINES = "polygons, corridors and sectors"
    MOTION = "areas that move, grow or are moved"
    FORMULAS = "areas by a formula, with variables"
    FILTERS = "filters"
    CHANNELS = "channels"
    ECHO = "one's own publications (`echo`)"
    EXTENTS = "publications to any point, disc or box"
    DIRECT = "messages to one entity (`send`)"
    RETAINED_STATES = "retained states (`retain`, `ttl`, `withdraw`)"
    NEARBY = "entities in an area now (`nearby`)"
    WATCH = "presence in an area (`watch`)"
    FENCES = "fences (`events`, `near`, `put_fences`)"
    FOLLOWING = "areas that follow an entity (`follow`)"
    RATES = "fewer messages from afar (`rates`)"
    THROTTLING = "fewer messages (`closest`, `budget`)"
    NAMES = "publications of further entities (`name`)"
    EARTH = "places on Earth, in a world with this geometry"
    EVOLUTION = "a choice of how areas are followed (`evolve`)"


# A publication reaches every peer whose areas may touch it, and this peer decides by what it is
# subscribed to. So whatever a subscription can say, every overlay offers. Hosts carry messages from
# peer to peer (`peer.host`), in whatever overlay. Each node knows others (`Node.known`), neighbours
# or recent publishers, and hosts list them. Nobody keeps states.
PEER_OFFERS = frozenset(
    {
        OverlayOffer.AREAS,
        OverlayOffer.OUTLINES,
        OverlayOffer.MOTION,
        OverlayOffer.FORMULAS,
        OverlayOffer.FILTERS,
        OverlayOffer.CHANNELS,
        OverlayOffer.ECHO,
        OverlayOffer.EXTENTS,
        OverlayOffer.DIRECT,
        OverlayOffer.NEARBY,
        OverlayOffer.EARTH,
    }
)


# A node evaluates every area at the moment of each publication: there is nothing to choose.
NODE_OFFERS = frozenset(OverlayOffer) - {OverlayOffer.EVOLUTION}


def refuse_missing(
    overlay: str, needed: Iterable[OverlayOffer], kinds: "Mapping[str, ProtocolKind]"
) -> None:
    """NotOfferedError for the first that the overlay does not offer; it says who does."""
    for offer in needed:
        if offer not in kinds[overlay].offers:
            others = [name for name, kind in kinds.items() if offer in kind.offers]
            who = ", ".join([*others, NODE] if offer in NODE_OFFERS else others)
            raise NotOfferedError(f"{overlay} does not offer {offer.value}; who does: {who}")


def offers_table(kinds: "Mapping[str, ProtocolKind]") -> str:
    """Who offers what, as a table of a document."""
    rows = [["", *(f"`{name}`" for name in kinds), "node"], ["---"] + ["---"] * (len(kinds) + 1)]
    offered = [*(kind.offers for kind in kinds.values()), NODE_OFFERS]
    rows += [
        [offer.value, *("yes" if offer in those else "–" for those in offered)]
        for offer in OverlayOffer
    ]
    rows.append(
        ["sends by height too, in 3-D worlds", *map(_spatial_form, kinds.values()), "yes"],
    )
    return "".join("| " + " | ".join(row) + " |\n" for row in rows)


def _spatial_form(kind: "ProtocolKind") -> str:
    if kind.spatial is None:
        return "–"
    return ", ".join(f"`{name}={value}`" for name, value in kind.spatial.items()) or "yes"
