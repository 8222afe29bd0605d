"""Who offers what: the table of the documents, the words of refusals, and forms for 3-D worlds."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from nearcast.errors import NotOfferedError
from nearcast.model.commands import Publish
from nearcast.peer.bootstrap import BOOTSTRAPS
from nearcast.protocols import PROTOCOLS
from nearcast.protocols.offers import PEER_OFFERS, OverlayOffer, offers_table, refuse_missing
from nearcast.protocols.overlay import FIRST_SERVER, ProtocolKind
from nearcast.scenario import Setting
from nearcast.space.shapes import ball, point
from support.peer_worlds import PeerWorld

PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "peers.md"
FLOORS = 6


def test_the_table_of_the_documents_is_the_one_that_refusals_use() -> None:
    assert f"\n\n{offers_table(PROTOCOLS)}\n" in PAGE.read_text("utf-8")


def test_a_refusal_names_the_overlay_what_it_cannot_and_who_can() -> None:
    kinds: Mapping[str, ProtocolKind] = {
        "von": replace(PROTOCOLS["von"], offers=PEER_OFFERS - {OverlayOffer.FILTERS}),
        "psense": PROTOCOLS["psense"],
    }
    refuse_missing("von", [OverlayOffer.AREAS, OverlayOffer.ECHO], kinds)
    with pytest.raises(NotOfferedError) as refused:
        refuse_missing("von", [OverlayOffer.AREAS, OverlayOffer.FILTERS], kinds)
    assert str(refused.value) == (
        "von does not offer filters; who does: psense, a node (`connect`, `World`)"
    )
    assert "| filters | – | yes | yes |\n" in offers_table(kinds)


def sent_in_vain(overlay: str, settings: Mapping[str, Setting]) -> int:
    """Publications that reach peers, though none is for anybody: all live above each other."""
    world = PeerWorld(overlay, **settings)
    for server in world.overlay.servers():
        world.simulation.start(server)
    floors = range(1, FLOORS + 1)
    for floor in floors:
        world.join(floor, ball(0, 0, 100 * floor, 30))
        world.pass_seconds(1)
    world.pass_seconds(8)
    for floor in floors:
        world.obey(floor, Publish(floor, point(0, 0, 100 * floor)))
    world.pass_seconds(5)
    trace = world.trace()
    assert trace.table("deliveries").num_rows == 0
    sent = trace.table("messages").select(["publication", "to"]).to_pylist()
    return sum(row["publication"] is not None and row["to"] < FIRST_SERVER for row in sent)


@pytest.mark.parametrize("overlay", PROTOCOLS)
def test_the_spatial_form_of_an_overlay_sends_by_height(overlay: str) -> None:
    spatial = PROTOCOLS[overlay].spatial
    if spatial is None:
        assert sent_in_vain(overlay, BOOTSTRAPS[overlay].settings) > 0
        return
    vain = sent_in_vain(overlay, {})
    if spatial:
        assert sent_in_vain(overlay, spatial) < vain
    else:
        assert vain == 0
