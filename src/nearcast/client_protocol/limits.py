"""Limits on what one client may ask for, and the checks that refuse more."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from typing import Any

from msgspec import Raw, Struct
from msgspec.structs import replace

from nearcast.client_protocol import messages
from nearcast.client_protocol.earth_json import (
    count_positions,
    earth_place_shape,
    line_length,
    refuse_plane_fields,
)
from nearcast.client_protocol.geometry_json import (
    EARTH,
    NO_FORMULA,
    Area,
    Geometry,
    place_shape,
    refuse_earth_fields,
    region_from_area,
)
from nearcast.errors import Refused
from nearcast.model import commands
from nearcast.model.subscription import Formula, Region, check_text
from nearcast.space.motion import Moving, Path
from nearcast.space.shapes import EVERYWHERE, LARGEST, POINT, Shape

LONGEST_LINGER = 3_600.0  # seconds
LONGEST_TTL = 30 * 86_400.0  # seconds
LONGEST_DWELL = 30 * 86_400.0  # seconds
FARTHEST_OFFSET = 100_000.0  # metres, from an entity on Earth to the area that follows it
FARTHEST_PAIR = 100_000.0  # metres on Earth
ALWAYS_EXACT = (
    "a node evaluates every area at the moment of each publication, exactly: evolve is a choice of "
    'clients of brokers (`join("brokers")`)'
)
PAIR_EVENT_NAMES: tuple[messages.FenceEventName, ...] = ("enter", "leave", "cross")
LONGEST_LINE = 5_000_000.0  # metres: a corridor on Earth has a vertex for each km


class Limits(Struct, frozen=True, kw_only=True):
    """Limits of one client. `server.config.LimitSettings` adds those of the node."""

    # Subscriptions of one client.
    subscriptions: int = 64
    # Channels on which one client publishes.
    channels: int = 64
    # Entities other than itself for which one client publishes.
    entities: int = 1_000
    # The largest half-extent of an area in a plane, if it has one.
    extent: float = 1e6
    # Legs of one path; on Earth, places that it goes to.
    legs: int = 100
    # Vertices of one area: of all rings of a polygon, or of a line.
    vertices: int = 1_000
    # Characters of a formula or a filter.
    formula: int = 400
    # Steps that a client's formulas, filters and outlines together take for one publication: one
    # for each predicate, number and operation, four for sin and cos, one for four vertices.
    steps: int = 2_000
    # Bytes of a publication's payload.
    payload: int = 16_384
    # Characters of a name or a channel.
    name: int = 64
    # Entities in one answer to `nearby`.
    nearby: int = 1_000
    # Fences of all sets of the node together.
    fences: int = 1_000_000
    # Pairs that are near each other at one time, for one distance and filter (`near`).
    pairs: int = 20_000
    # Entities that are inside the watching subscriptions of one client at one time, in total.
    watched: int = 20_000


ShapeFields = tuple[int, float, float, float, float, float, float]  # kind, centre, half-extents


@contextmanager
def refuse_value_errors() -> Iterator[None]:
    """Turn a ValueError about a request into a `Refused` for its client."""
    try:
        yield
    except ValueError as why:
        raise as_refusal(why) from None


def as_refusal(why: ValueError) -> Refused:
    """The refusal that tells the client what is wrong with its request, in one line."""
    return Refused(" ".join(str(why)[:300].split()))


def check_name(what: str, text: str, limits: Limits) -> None:
    if len(text) > limits.name:
        raise Refused(f"{what} has at most {limits.name} characters")
    check_text(what, text)


def check_payload(payload: Raw, form: messages.Encoding, limits: Limits) -> None:
    """Refused if it is too long, MalformedMessageError if somebody could not read it."""
    if len(payload) > limits.payload:
        raise Refused(f"a payload has at most {limits.payload} bytes")
    if len(payload):
        form.check_payload(payload)


def check_ttl(request: messages.PublishRequest) -> None:
    if not request.retain:
        raise Refused("ttl is of a publication with retain: its state expires")
    if request.ttl is not None and not 0 < request.ttl <= LONGEST_TTL:
        raise Refused(f"ttl is more than 0 and at most {LONGEST_TTL:g} seconds, not {request.ttl}")


def check_subscription_number(number: int) -> None:
    if not 0 <= number < 2**53:
        raise Refused("a subscription's number is from 0 to 2**53 - 1")


def publication_shape(request: messages.PublishRequest, limits: Limits) -> ShapeFields:
    """Where a publication is made in a plane. Most are made at a point, which is the fast path."""
    x, y, z = request.x, request.y, request.z
    if (
        request.r is None and request.rx is None and request.ry is None and request.rz is None
        and request.lon is None and request.lat is None and x is not None and y is not None
        and -LARGEST <= x <= LARGEST and -LARGEST <= y <= LARGEST and -LARGEST <= z <= LARGEST
    ):  # fmt: skip
        return POINT, x, y, z, 0.0, 0.0, 0.0
    refuse_earth_fields("a publication", request)
    where = place_shape(request)
    _check_extent(where, limits)
    return where.kind, where.x, where.y, where.z, where.rx, where.ry, where.rz


def earth_publication_shape(request: messages.PublishRequest, limits: Limits) -> ShapeFields:  # noqa: ARG001
    """The same on Earth, in ECEF metres; its altitude stands apart (`altitude_outline`)."""
    refuse_plane_fields("a publication", request)
    where = earth_place_shape(request.lon, request.lat, request.alt, request.r)
    return where.kind, where.x, where.y, where.z, where.rx, where.ry, where.rz


def checked_region(area: Area, limits: Limits, geometry: Geometry) -> Region | str:
    """The region of an area within the limits; a formula stays text, for its variables."""
    if area.formula is not None:
        _check_formula(area.formula, limits)
        if area != Area(formula=area.formula):
            raise Refused("an area with a formula has no other field")
        if geometry == EARTH:
            raise Refused(NO_FORMULA)
        return area.formula
    if area.to is not None and not 1 <= len(area.to) <= limits.legs:
        raise Refused(f"a path goes to at least one place and at most {limits.legs}")
    if area.geometry is not None:
        check_geometry(area.geometry, limits, geometry)
    where = region_from_area(area, geometry)
    assert not isinstance(where, Formula)
    if geometry != EARTH:
        _check_extent(where.legs[0].shape if isinstance(where, Path) else where.shape, limits)
    return where


def subscribe_command(
    request: messages.SubscribeRequest, number: int, limits: Limits, geometry: Geometry
) -> commands.Subscribe:
    """The command of a subscribe request within the limits."""
    check_name("a channel", request.channel, limits)
    if request.filter is not None:
        _check_formula(request.filter, limits)
    if request.linger is not None and not 0 <= request.linger <= LONGEST_LINGER:
        raise Refused(f"linger is from 0 to {LONGEST_LINGER:g} seconds, not {request.linger}")
    check_fence(request)
    if request.evolve or request.interval is not None or request.threshold is not None:
        raise Refused(ALWAYS_EXACT)
    if request.near is not None:
        _check_near(request, limits, geometry)
    if request.follow != "":
        region: Region | str = relative_region(request.area, limits, geometry)
        _check_following(request, limits, geometry)
    else:
        if request.follow_channel is not None or request.offset:
            raise Refused("follow_channel and offset are of an area with follow")
        region = checked_region(request.area, limits, geometry)
    return commands.Subscribe(
        number, region, request.filter, request.channel, request.echo, request.variables
    )


def relative_region(area: Area, limits: Limits, geometry: Geometry) -> Moving:
    """The region of an area that follows an entity, relative to it; on Earth at 0°, 0°.

    Without x and y, or lon and lat, it is around the entity.
    """
    if area == Area():
        raise Refused("everywhere is an area that follows nobody")
    if geometry == EARTH:
        if (area.lon or 0.0, area.lat or 0.0) != (0.0, 0.0):
            raise Refused("an area that follows an entity has its place: leave out lon and lat")
        if area.bounds is not None or area.geometry is not None:
            raise Refused("on Earth bounds, polygons and corridors stay where they are")
        area = replace(area, lon=0.0, lat=0.0)
    elif (area.x, area.y, area.geometry, area.formula) == (None,) * 4:
        area = replace(area, x=0.0, y=0.0)
    region = checked_region(area, limits, geometry)
    if not isinstance(region, Moving) or region.moves or region.shape == EVERYWHERE:
        raise Refused("an area that follows an entity is a shape without a motion of its own")
    return region


def _check_near(request: messages.SubscribeRequest, limits: Limits, geometry: Geometry) -> None:
    farthest = FARTHEST_PAIR if geometry == EARTH else limits.extent
    if request.near is None or not 0 < request.near <= farthest:
        raise Refused(f"near is a distance above 0 and at most {farthest:g}, not {request.near}")
    if request.area != Area() or request.fences or request.follow != "":
        raise Refused("a subscription with near is about pairs everywhere: it has no area")
    if request.dwell is not None or request.linger is not None:
        raise Refused("a subscription with near has neither dwell nor linger")
    if not set(request.events) <= set(PAIR_EVENT_NAMES):
        raise Refused("events of pairs are enter, leave and cross")


def _check_following(
    request: messages.SubscribeRequest, limits: Limits, geometry: Geometry
) -> None:
    check_name("a channel", request.follow_channel or "", limits)
    if isinstance(request.follow, str):
        check_name("a name", request.follow, limits)
    if request.fences:
        raise Refused("a set of fences follows nobody")
    if not request.offset:
        return
    if geometry != EARTH:
        raise Refused("in a plane the area itself is written relative to the entity: no offset")
    if len(request.offset) != 2 or not all(abs(one) <= FARTHEST_OFFSET for one in request.offset):
        raise Refused(f"an offset is metres east and north, each up to {FARTHEST_OFFSET:g}")


def check_fence(request: messages.SubscribeRequest) -> None:
    """Refused if what it asks as a fence does not fit together."""
    if request.dwell is not None and not 0 <= request.dwell <= LONGEST_DWELL:
        raise Refused(f"dwell is from 0 to {LONGEST_DWELL:g} seconds, not {request.dwell}")
    if not request.events:
        if request.dwell is not None or request.fences or request.near is not None:
            raise Refused("dwell, fences and near are of a subscription with events")
        return
    if request.fences and (request.area != Area() or "outside" in request.events):
        raise Refused("a subscription to a set of fences has no area, and no event outside")
    if request.watch:
        raise Refused("a subscription has watch or events, not both")
    if request.variables or request.area.formula is not None:
        raise Refused("a fence has neither a formula nor variables")
    if "dwell" in request.events and request.dwell is None:
        raise Refused("the event dwell needs dwell, the seconds inside after which it comes")


def check_geometry(given: dict[str, Any], limits: Limits, geometry: Geometry) -> None:
    """Before it is read, which takes longer the more vertices there are."""
    if count_positions(given) > limits.vertices:
        raise Refused(f"an area has at most {limits.vertices} vertices")
    if geometry == EARTH and line_length(given) > LONGEST_LINE:
        raise Refused(f"a line on Earth is at most {LONGEST_LINE / 1000:.0f} km long")


def _check_extent(where: Shape, limits: Limits) -> None:
    if any(limits.extent < r < inf for r in (where.rx, where.ry, where.rz)):
        raise Refused(f"an area reaches at most {limits.extent:g} from its centre")


def _check_formula(text: str, limits: Limits) -> None:
    if len(text) > limits.formula:
        raise Refused(f"a formula or filter has at most {limits.formula} characters")
