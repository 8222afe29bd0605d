"""pSense: peers that know those near them and a sensor in every direction beyond."""

from nearcast.protocols.contacts import peer_overlay
from nearcast.protocols.offers import PEER_OFFERS, OverlayOffer
from nearcast.protocols.overlay import ProtocolKind
from nearcast.protocols.psense.messages import CODEC
from nearcast.protocols.psense.parameters import Parameters
from nearcast.protocols.psense.peer import PSensePeer

KIND = ProtocolKind(
    Parameters, CODEC, peer_overlay(PSensePeer), settles=True, spatial={"dimensions": 3},
    offers=PEER_OFFERS | {OverlayOffer.RATES},
)  # fmt: skip

__all__ = ["KIND"]
