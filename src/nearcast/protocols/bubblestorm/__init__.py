"""BubbleStorm and its spatial publish/subscribe layer: peers meet at random ([Lucas2011])."""

from random import Random

from nearcast.model.subscription import NodeId
from nearcast.protocols.bubblestorm.invariants import invariants
from nearcast.protocols.bubblestorm.messages import CODEC
from nearcast.protocols.bubblestorm.parameters import Parameters
from nearcast.protocols.bubblestorm.peer import BubbleStormPeer
from nearcast.protocols.contacts import Contacts, peer_overlay
from nearcast.protocols.offers import PEER_OFFERS, OverlayOffer
from nearcast.protocols.overlay import ProtocolKind


def peer(
    node_id: NodeId, rng: Random, parameters: Parameters, contacts: Contacts
) -> BubbleStormPeer:
    strong = rng.random() < parameters.strong
    return BubbleStormPeer(
        node_id, rng, parameters, contacts, parameters.strength if strong else 1.0
    )


KIND = ProtocolKind(
    Parameters, CODEC, peer_overlay(peer), invariants=invariants,
    offers=PEER_OFFERS | {OverlayOffer.RATES},
)  # fmt: skip

__all__ = ["KIND"]
