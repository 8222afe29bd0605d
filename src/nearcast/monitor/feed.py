"""What the page is told of a live node: pictures of its world, and its counters."""

from pathlib import Path as File
from typing import Any
from urllib.parse import urlsplit

import msgspec

from nearcast.client_protocol.geometry_json import EARTH
from nearcast.model.subscription import Formula
from nearcast.monitor.snapshots import (
    AREA,
    ENTITY,
    Row,
    area_row,
    encode_snapshot,
    table,
    vertex_rows,
)
from nearcast.server.server import Server
from nearcast.service.cluster.cluster_node import ClusterNode
from nearcast.service.cluster.scaling import Role
from nearcast.service.realm import Realm
from nearcast.space.earth import lon_lat
from nearcast.space.motion import SECOND, Path, Time
from nearcast.space.outlines import Outline


def world_snapshot(realm: Realm, now: Time) -> bytes:
    """Entities and areas; on Earth in degrees."""
    entities, areas, outlines = _rows(realm, now)
    return encode_snapshot(
        now, table(ENTITY, entities), table(AREA, areas), vertices=vertex_rows(enumerate(outlines))
    )


def world_bounds(realm: Realm, now: Time) -> list[list[float]] | None:
    """From corner to corner of where somebody is. On Earth the page decides what a map shows."""
    entities, _, _ = _rows(realm, now)
    if not entities or realm.geometry == EARTH:
        return None
    _, x, y, *_ = zip(*entities, strict=True)
    margin = max(max(x) - min(x), max(y) - min(y), 100.0) / 10
    return [[min(x) - margin, min(y) - margin], [max(x) + margin, max(y) + margin]]


def _rows(realm: Realm, now: Time) -> tuple[list[Row], list[Row], list[Outline | None]]:
    """Everybody who is somewhere; all areas that are bounded, and their outlines.

    An entity is where its first area is, or else where it has published its state. On Earth an area
    that stands says little about its owner, who may have fenced it: there the state comes first.
    """
    earth = realm.geometry == EARTH
    states = {entity: place for entity, *place in realm.positions()}
    entities: list[Row] = []
    areas: list[Row] = []
    outlines: list[Outline | None] = []
    for client in realm.clients:
        if client is None:
            continue
        first = len(areas)
        for active in client.subscriptions.values():
            region = active.subscription.region
            if isinstance(region, Formula):
                continue
            leg = region.leg(now) if isinstance(region, Path) else region
            row = area_row(client.entity, leg, now, earth)
            if row is not None:
                areas.append(row)
                outlines.append(leg.shape.outline)
        area = areas[first] if len(areas) > first else None
        if client.entity in states and (area is None or (earth and not area[-1])):
            x, y, z = states[client.entity]
            if earth:
                x, y = lon_lat(x, y, z)
            entities.append((client.entity, x, y, 0.0, 0.0, 0.0))
        elif area is not None:
            owner, _, x, y, _, _, vx, vy, _, _, left = area
            entities.append((owner, x, y, vx, vy, left))
    return entities, areas, outlines


def node_summary(service: Server) -> dict[str, Any]:
    """One line of the list of nodes."""
    realm, recording = service.gateway.realm, service.recording
    clients = [client for client in realm.clients if client is not None]
    return {
        "name": service.settings.name,
        "address": f"{service.settings.host}:{service.port}",
        "clients": len(clients),
        "subscriptions": sum(len(client.subscriptions) for client in clients),
        "recording": recording is not None,
        "rows": sum(recording.recorder.counts.values()) if recording else 0,
    }


def cluster_summary(member: ClusterNode) -> dict[str, Any]:
    """Which node of a cluster this is, by which site it has its part of the world, who else is.
    `load`: a share of the node's capacity, which is in subscriptions."""
    return {
        "node": str(member.id),
        "site": list(member.site.place) if member.site.ready else None,
        "others": sorted(page_address(known.beat.url) for known in member.nodes.values()),
        "members": [
            {
                "url": beat.url,
                "own": own,
                "state": Role(beat.role).label,
                "load": beat.share,
                "capacity": beat.capacity,
                "reason": beat.reason,
            }
            for own, beat in sorted(
                [
                    (True, member.heartbeat()),
                    *((False, known.beat) for known in member.nodes.values()),
                ],
                key=lambda one: one[1].url,
            )
        ],
    }


def page_address(url: str) -> str:
    """Where the node serves its page to which clients go by this address."""
    parts = urlsplit(url)
    return f"{'https' if parts.scheme == 'wss' else 'http'}://{parts.netloc}/"


def latest_analysis(trace: File, began: Time) -> Any:
    """What `nearcast analyse --follow` has counted lately, if it runs where it does by default.

    What lies there from an earlier run under the same name is not about this one.
    """
    file = trace.with_name(f"{trace.resolve().name}-analysis") / "live.json"
    try:
        counted = msgspec.json.decode(file.read_bytes())
    except (OSError, msgspec.DecodeError):
        return None
    counted["windows"] = [one for one in counted["windows"] if one["second"] >= began // SECOND]
    return counted
