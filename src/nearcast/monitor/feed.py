"""What the page is told of a live node: pictures of its world, and its counters."""

from pathlib import Path as File
from typing import Any

import msgspec

from nearcast.live.realm import Realm
from nearcast.live.service import Service
from nearcast.model.subscription import Formula
from nearcast.monitor.pictures import AREA, ENTITY, area_row, picture, rows
from nearcast.space.motion import Path, Time


def world(realm: Realm, now: Time) -> bytes:
    """Everybody with an area somewhere, where its first area is; and all areas that are bounded."""
    entities: list[tuple[float, ...]] = []
    areas: list[tuple[float, ...]] = []
    for seat in realm.seats:
        if seat is None:
            continue
        first = len(areas)
        for standing in seat.subscriptions.values():
            region = standing.subscription.region
            if isinstance(region, Formula):
                continue
            leg = region.leg(now) if isinstance(region, Path) else region
            row = area_row(seat.entity, leg, now)
            if row is not None:
                areas.append(row)
        if len(areas) > first:
            owner, _, x, y, _, _, vx, vy, _, _, left = areas[first]
            entities.append((owner, x, y, vx, vy, left))
    return picture(now, rows(ENTITY, entities), rows(AREA, areas))


def node(service: Service) -> dict[str, Any]:
    """One line of the list of nodes."""
    realm, recording = service.gateway.realm, service.recording
    seats = [seat for seat in realm.seats if seat is not None]
    return {
        "name": service.settings.name,
        "address": f"{service.settings.host}:{service.port}",
        "clients": len(seats),
        "subscriptions": sum(len(seat.subscriptions) for seat in seats),
        "recording": recording is not None,
        "rows": sum(recording.recorder.counts.values()) if recording else 0,
    }


def judged(trace: File) -> Any:
    """What `nearcast analyse --follow` has counted lately, if it runs where it does by default."""
    file = trace.with_name(f"{trace.resolve().name}-analysis") / "live.json"
    try:
        return msgspec.json.decode(file.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
