"""Publications: the one rule of who receives what, written again in the design's own words."""

from math import inf, nan
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nearcast.model import predicates
from nearcast.model.publication import RESERVED, Publication, wants
from nearcast.model.subscription import Filter, Formula, Subscription, Value
from nearcast.space.motion import SECOND, Moving, path
from nearcast.space.shapes import EVERYWHERE, Shape, disc, point
from support.examples import examples
from support.strategies import ATTRIBUTES, TIMES, publications, subscriptions

HERE = point(0.0, 0.0)


def region_now(subscription: Subscription, p: int) -> Shape:
    """Where a region without a formula is at `p`: the leg under way, by the design's formula."""
    region = subscription.region
    assert not isinstance(region, Formula)
    legs = (region,) if isinstance(region, Moving) else region.legs
    leg = [legs[0], *(leg for leg in legs[1:] if leg.since <= p)][-1]
    until = p if leg.duration is None else leg.since + leg.duration
    seconds = max(0.0, (min(p, until) - leg.since) / 1e6)
    s, v, g = leg.shape, leg.velocity, leg.growth
    x, y, z = (c + w * seconds for c, w in zip((s.x, s.y, s.z), v, strict=True))
    rx, ry, rz = (max(0.0, r + w * seconds) for r, w in zip((s.rx, s.ry, s.rz), g, strict=True))
    return Shape(s.kind, x, y, z, rx, ry, rz, s.outline)


def should_receive(subscription: Subscription, publication: Publication, at: int) -> bool:
    """Design, section 3: what counts as heard. Formulas and filters have oracles of their own."""
    if subscription.channel != publication.channel:
        return False
    if subscription.node == publication.node and not subscription.echo:
        return False
    region, wanted, s = subscription.region, subscription.filter, publication.shape
    if isinstance(region, Formula):
        seconds = max(0, at - region.since) / 1e6
        zone = predicates.box_at(predicates.parse(region.text), seconds)
        if zone is None or not zone.touches_shape(s):
            return False
    elif not region_now(subscription, at).touches(s):
        return False
    if wanted is None:
        return True
    seconds = max(0, at - wanted.since) / 1e6
    return predicates.accepts(predicates.parse(wanted.text), publication.attributes, seconds)


@examples(100)
@given(subscriptions(), publications(), TIMES, st.booleans(), st.booleans())
def test_a_publication_is_wanted_exactly_when_the_design_says(
    subscription: Subscription, publication: Publication, at: int, same: bool, near: bool
) -> None:
    if same:  # else hardly any pair would meet
        publication = replace(publication, channel=subscription.channel)
    if near and not isinstance(subscription.region, Formula):
        place = region_now(subscription, at)
        publication = replace(publication, shape=point(place.x, place.y, place.z))
    for moment in (at, publication.t):
        expected = should_receive(subscription, publication, moment)
        assert wants(subscription, publication, moment) == expected


# Each condition by itself: it alone decides.

PUBLICATION = Publication(1, 5, 10 * SECOND, HERE, "chat", {"weight": 4})
LISTENER = Subscription(9, 6, Moving(disc(0, 0, 1)), Filter("weight > 3"), "chat")


def test_a_subscriber_in_the_region_on_the_channel_with_the_filter_receives() -> None:
    assert wants(LISTENER, PUBLICATION, PUBLICATION.t)


def test_only_the_same_channel_receives() -> None:
    for channel in ("", "Chat", "chat ", "moves"):
        assert not wants(replace(LISTENER, channel=channel), PUBLICATION, PUBLICATION.t)
        assert not wants(LISTENER, replace(PUBLICATION, channel=channel), PUBLICATION.t)


def test_a_publisher_receives_its_own_only_where_its_subscription_has_echo() -> None:
    own = replace(LISTENER, node=PUBLICATION.node)
    assert not wants(own, PUBLICATION, PUBLICATION.t)
    assert wants(replace(own, echo=True), PUBLICATION, PUBLICATION.t)
    assert wants(replace(LISTENER, echo=True), PUBLICATION, PUBLICATION.t)


def test_a_subscriber_elsewhere_does_not_receive() -> None:
    assert not wants(LISTENER, replace(PUBLICATION, shape=point(1.5, 0)), PUBLICATION.t)
    assert wants(LISTENER, replace(PUBLICATION, shape=point(1, 0)), PUBLICATION.t)
    assert wants(LISTENER, replace(PUBLICATION, shape=disc(3, 0, 2)), PUBLICATION.t)


@pytest.mark.parametrize(
    "attributes", [{}, {"weight": 3}, {"weight": "4"}, {"weight": True}, {"Weight": 4}]
)
def test_a_subscriber_whose_filter_rejects_it_does_not_receive(
    attributes: dict[str, Value],
) -> None:
    assert not wants(LISTENER, replace(PUBLICATION, attributes=attributes), PUBLICATION.t)
    assert wants(
        replace(LISTENER, filter=None), replace(PUBLICATION, attributes=attributes), PUBLICATION.t
    )


def test_region_and_filter_are_evaluated_at_the_given_moment() -> None:
    """A broker may use its own clock ([Evolving]): `at` counts, not the publication's t."""
    walker = replace(
        LISTENER, region=path(disc(0, 0, 1), [(9.0, 0.0, 0.0)], 1.0).stamped(10 * SECOND)
    )
    assert wants(walker, PUBLICATION, 11 * SECOND)
    assert not wants(walker, PUBLICATION, 11 * SECOND + 1)
    patient = replace(LISTENER, filter=Filter("weight <= t", since=10 * SECOND))
    assert not wants(patient, PUBLICATION, 14 * SECOND - 1)
    assert wants(patient, PUBLICATION, 14 * SECOND)


def test_the_region_and_the_filter_each_count_from_their_own_submission() -> None:
    both = Subscription(1, 2, Formula("x >= t", since=0), Filter("weight >= t", since=10 * SECOND))
    publication = Publication(1, 1, 0, point(12, 0), "", {"weight": 2})
    assert wants(both, publication, 12 * SECOND)
    assert not wants(both, publication, 12 * SECOND + 1)
    assert not wants(both, replace(publication, shape=point(13, 0)), 12 * SECOND + 1)
    assert not wants(both, replace(publication, attributes={"weight": 3}), 12 * SECOND + 1)
    assert wants(
        both, replace(publication, shape=point(13, 0), attributes={"weight": 3}), 12 * SECOND + 1
    )


@examples(30)
@given(publications())
def test_a_subscription_without_region_and_filter_receives_its_whole_channel(
    publication: Publication,
) -> None:
    everything = Subscription(
        1, publication.node, Moving(EVERYWHERE), None, publication.channel, True
    )
    assert wants(everything, publication, publication.t)
    assert not wants(replace(everything, echo=False), publication, publication.t)


# Attributes.


def received(fields: list[Any]) -> Publication:
    """The publication that untrusted bytes make."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(fields), type=Publication)


@pytest.mark.parametrize("name", ["x", "y", "z", "t"])
@examples(8)
@given(rest=ATTRIBUTES, value=st.integers(0, 9) | st.text(max_size=3) | st.booleans())
def test_place_and_time_are_no_attributes(name: str, rest: dict[str, Value], value: Value) -> None:
    assert name in RESERVED
    sentence = f"{name!r} cannot be an attribute: it is the place or the time"
    attributes = {**rest, name: value}
    with pytest.raises(ValueError) as at_home:
        Publication(1, 1, 0, HERE, "", attributes)
    assert str(at_home.value) == sentence
    with pytest.raises(msgspec.ValidationError) as from_afar:
        received([1, 1, 0, [0, 0.0, 0.0], "", attributes])
    assert str(from_afar.value) == sentence


@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_an_attribute_is_finite(value: float) -> None:
    sentence = f"attribute 'weight' must be finite, not {value}"
    with pytest.raises(ValueError) as at_home:
        Publication(1, 1, 0, HERE, "", {"kind": "apple", "weight": value})
    assert str(at_home.value) == sentence
    with pytest.raises(msgspec.ValidationError) as from_afar:
        received([1, 1, 0, [0, 0.0, 0.0], "", {"weight": value}])
    assert str(from_afar.value) == sentence


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**64, 10**400])
def test_a_whole_number_among_the_attributes_fits_64_bits(value: int) -> None:
    with pytest.raises(ValueError, match=r"^attribute 'n' must fit 64 bits$"):
        Publication(1, 1, 0, HERE, "", {"n": value})
    largest = {"n": 2**63 - 1, "m": -(2**63), "yes": True}
    assert received([1, 1, 0, [0, 0.0, 0.0], "", largest]).attributes == largest


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"\ud800": 1}, "an attribute's name must be text that can be encoded, not '\\ud800'"),
        ({"kind": "a\udfff"}, "attribute 'kind' must be text that can be encoded, not 'a\\udfff'"),
    ],
)
def test_an_attribute_is_text_that_can_be_sent(attributes: dict[str, Value], says: str) -> None:
    with pytest.raises(ValueError) as refusal:
        Publication(1, 1, 0, HERE, "", attributes)
    assert str(refusal.value) == says


def test_a_channel_is_text_that_can_be_sent() -> None:
    with pytest.raises(ValueError, match="a channel must be text"):
        Publication(1, 1, 0, HERE, "\ud800")
    with pytest.raises(ValueError, match="a channel must be text"):
        Subscription(1, 1, Moving(HERE), None, "\ud800")


def test_text_beyond_the_first_plane_can_be_sent() -> None:
    attributes: dict[str, Value] = {"\ud7ff\ue000": "😀 näme \x00"}
    publication = Publication(1, 1, 0, HERE, "", attributes)
    assert received([1, 1, 0, [0, 0.0, 0.0], "", attributes]) == publication


@pytest.mark.parametrize("moment", [-1, 2**53, 2**62, 2**63, -(2**63)])
def test_a_publication_is_made_at_a_moment(moment: int) -> None:
    with pytest.raises(ValueError) as at_home:
        Publication(1, 1, moment, HERE)
    assert str(at_home.value) == f"{moment} is no moment: microseconds from 0 to {2**53}"
    with pytest.raises(msgspec.ValidationError, match=r"^Expected `int` [^\n]+$"):
        received([1, 1, moment, [0, 0.0, 0.0]])
    assert Publication(1, 1, 2**53 - 1, HERE).t == 2**53 - 1


@pytest.mark.parametrize("name", ["X", "tt", "x ", "time", "", "weight\n"])
def test_every_other_name_is_an_attribute(name: str) -> None:
    publication = Publication(1, 1, 0, HERE, "", {name: 1e308})
    assert received([1, 1, 0, [0, 0.0, 0.0], "", {name: 1e308}]) == publication


@pytest.mark.parametrize(
    "fields",
    [
        [-1, 1, 0, [0, 0.0, 0.0]],
        [2**53, 1, 0, [0, 0.0, 0.0]],
        [1, 2**53, 0, [0, 0.0, 0.0]],
        [1, 1, 0.5, [0, 0.0, 0.0]],
        [1, 1, None, [0, 0.0, 0.0]],
        [1, 1, 0, [0, nan, 0.0]],
        [1, 1, 0, [1, 0.0, 0.0, 0.0, inf]],
        [1, 1, 0],
        [1, 1, 0, [0, 0.0, 0.0], None],
        [1, 1, 0, [0, 0.0, 0.0], "", {"weight": None}],
        [1, 1, 0, [0, 0.0, 0.0], "", {"weight": [1]}],
        [1, 1, 0, [0, 0.0, 0.0], "", {5: 5}],
        [1, 1, 0, [0, 0.0, 0.0], "", {}, 5],
    ],
)
def test_a_malformed_publication_is_refused_from_the_wire(fields: list[Any]) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"^[^\n]+$"):
        received(fields)
