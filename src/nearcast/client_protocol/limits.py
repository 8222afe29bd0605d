"""What a node admits: limits on what one client may ask for, and the sentences that refuse more."""

from collections.abc import Iterator
from contextlib import contextmanager
from math import inf

from msgspec import Struct

from nearcast.client_protocol import messages
from nearcast.client_protocol.geometry_json import Area, region_from_area, shape_from_fields
from nearcast.errors import Refused
from nearcast.model import commands
from nearcast.model.subscription import Formula, Region, check_text
from nearcast.space.motion import Path
from nearcast.space.shapes import LARGEST, POINT, Shape


class Limits(Struct, frozen=True, kw_only=True):
    """Bounds on what one client may ask for; `config.Limits` adds those of the node."""

    subscriptions: int = 64  # of one client
    channels: int = 64  # on which one client publishes
    entities: int = 1_000  # other than itself, for which one client publishes
    extent: float = 1e6  # half-extent of a subscription's or a publication's area, if bounded
    legs: int = 100  # of a walk
    formula: int = 400  # characters of a formula or filter, which bound what evaluating it costs
    steps: int = 2_000  # of a client's formulas and filters together, for one publication
    payload: int = 16_384  # bytes
    name: int = 64  # characters of a name or a channel
    nearby: int = 1_000  # entities in one answer
    watched: int = 20_000  # entities that all watches of one client know at one time


ShapeFields = tuple[int, float, float, float, float, float, float]  # kind, centre, half-extents


@contextmanager
def refuse_value_errors() -> Iterator[None]:
    """Whatever is wrong with a request is told to the client in one line."""
    try:
        yield
    except ValueError as why:
        raise as_refusal(why) from None


def as_refusal(why: ValueError) -> Refused:
    """What is wrong with a request, as its client is told: one line."""
    return Refused(" ".join(str(why)[:300].split()))


def check_name(what: str, text: str, limits: Limits) -> None:
    if len(text) > limits.name:
        raise Refused(f"{what} has at most {limits.name} characters")
    check_text(what, text)


def check_subscription_number(number: int) -> None:
    if not 0 <= number < 2**53:
        raise Refused("a subscription's number is from 0 to 2**53 - 1")


def publication_shape(said: messages.PublishRequest, limits: Limits) -> ShapeFields:
    """Where it is said. Most is said at a point, and that costs least."""
    x, y, z = said.x, said.y, said.z
    if (
        said.r is None and said.rx is None and said.ry is None and said.rz is None
        and -LARGEST <= x <= LARGEST and -LARGEST <= y <= LARGEST and -LARGEST <= z <= LARGEST
    ):  # fmt: skip
        return POINT, x, y, z, 0.0, 0.0, 0.0
    where = shape_from_fields(x, y, z, said.r, said.rx, said.ry, said.rz)
    _check_extent(where, limits)
    return where.kind, x, y, z, where.rx, where.ry, where.rz


def checked_region(area: Area, limits: Limits) -> Region | str:
    """Where a client listens or looks; a formula stays text, for its variables."""
    if area.formula is not None:
        _check_formula(area.formula, limits)
        if area != Area(formula=area.formula):
            raise Refused("an area with a formula has no other field")
        return area.formula
    if area.to is not None and not 1 <= len(area.to) <= limits.legs:
        raise Refused(f"a path goes to at least one place and at most {limits.legs}")
    where = region_from_area(area)
    assert not isinstance(where, Formula)
    _check_extent(where.legs[0].shape if isinstance(where, Path) else where.shape, limits)
    return where


def subscribe_command(
    said: messages.SubscribeRequest, number: int, limits: Limits
) -> commands.Subscribe:
    check_name("a channel", said.channel, limits)
    if said.filter is not None:
        _check_formula(said.filter, limits)
    if not 0 <= said.linger <= 3600:
        raise Refused(f"nobody lingers {said.linger} seconds: it is from 0 to 3600")
    return commands.Subscribe(
        number, checked_region(said.area, limits), said.filter,
        said.channel, said.echo, said.variables,
    )  # fmt: skip


def _check_extent(where: Shape, limits: Limits) -> None:
    if any(limits.extent < r < inf for r in (where.rx, where.ry, where.rz)):
        raise Refused(f"an area reaches at most {limits.extent:g} from its centre")


def _check_formula(text: str, limits: Limits) -> None:
    if len(text) > limits.formula:
        raise Refused(f"a formula or filter has at most {limits.formula} characters")
