"""What is proven of regions over their whole lives: covering and intersection, against sampling."""

from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nearcast.model.evolution import Evolution
from nearcast.model.publication import Publication, wants
from nearcast.model.subscription import Filter, Formula, Subscription
from nearcast.protocols.brokers.covering import (
    bounds_for_ever,
    conforms,
    covers,
    intersects,
    leg_ends,
    rounding_margin,
)
from nearcast.protocols.brokers.messages import Advertisement
from nearcast.space.earth_shapes import earth_disc
from nearcast.space.motion import SECOND, Moving, Path, line, path
from nearcast.space.outline_shapes import polygon
from nearcast.space.shapes import EVERYWHERE, Shape, ball, box, cuboid, disc, point
from support.earth_areas import EarthAreas, PlaneAreas
from support.examples import examples
from support.strategies import TIMES, publications, regions, shapes, subscriptions

BIG, LITTLE = Moving(box(0, 0, 9, 9)), Moving(box(3, 3, 2, 2))


def interest(region: object, text: str | None = None, channel: str = "") -> Subscription:
    return Subscription(1, 1, region, None if text is None else Filter(text), channel)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (BIG, LITTLE),
        (BIG, BIG),
        (BIG, line(box(-5, 0, 1, 1), (5.0, 0.0, 0.0), 1.0)),
        (BIG, path(box(-5, 0, 1, 1), [(5.0, 0.0, 0.0), (5.0, 5.0, 0.0)], 1.0)),
        (line(box(-1, 0, 9, 9), (1.0, 0.0, 0.0), 1.0), LITTLE),
        (Moving(box(0, 0, 9, 9), growth=(1.0, 1.0, 0.0), duration=SECOND), LITTLE),
        (Moving(EVERYWHERE), Moving(ball(1, 2, 3, 4), (1.0, 0.0, 0.0), duration=SECOND)),
        (Moving(disc(0, 0, 9)), Moving(disc(3, 3, 2))),
        (Moving(disc(0, 0, 9)), Moving(box(3, 3, 2, 2))),
        (Moving(cuboid(0, 0, 0, 9, 9, 9)), Moving(disc(3, 3, 2))),
        (Formula("x < 1 + 0.5 * t"), Formula("x < 1 + 0.5 * t")),
    ],
)
def test_covering_is_found_where_it_can_be_proven(a: object, b: object) -> None:
    assert covers(interest(a), interest(b))
    assert a == b or not covers(interest(b), interest(a))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (BIG, line(box(-5, 0, 1, 1), (8.5, 0.0, 0.0), 1.0)),  # it leaves
        (BIG, Moving(box(0, 0, 1, 1), (1.0, 0.0, 0.0))),  # some day
        (line(box(0, 0, 9, 9), (20.0, 0.0, 0.0), 1.0), LITTLE),  # the large one leaves
        (Moving(box(0, 0, 9, 9), growth=(-1.0, 0.0, 0.0)), LITTLE),  # or shrinks
        (BIG, Moving(disc(3, 3, 2))),  # a ball: it rises out of the flat box
        (Formula("x < 1 + 0.5 * t", 5), Formula("x < 1 + 0.5 * t", 6)),
    ],
)
def test_covering_for_a_limited_time_does_not_count(a: object, b: object) -> None:
    assert not covers(interest(a), interest(b))


@pytest.mark.parametrize(
    ("a", "b", "shape"),
    [
        (box(1.3, 0, 2.4, 1), box(2.7, 0, 1, 1), point(3.7, 0)),
        (box(7.9, 0, 1.4, 1), box(7.3, 0, 0.8, 1), point(6.5, 0)),
        (cuboid(0, 0, 0, 1, 1, 1), ball(0, 0, 0, 1), disc(4.4, 0, 3.4)),
    ],
)
def test_a_border_that_rounding_blurs_is_no_proof(a: Shape, b: Shape, shape: Shape) -> None:
    assert b.touches(shape), "the larger one contains the smaller"
    assert not a.touches(shape), "and yet, rounded"
    assert not covers(interest(Moving(a)), interest(Moving(b)))


def test_a_border_between_huge_numbers_is_moved_by_their_rounding() -> None:
    low, _ = bounds_for_ever(Moving(disc(1e150, 0, 1e150)))
    assert Moving(disc(1e150, 0, 1e150)).touches(point(-300_000, 0), 0)
    assert low[0] < -300_000


def test_channels_and_filters_must_be_covered_too() -> None:
    assert not covers(interest(BIG, channel="chat"), interest(LITTLE))
    assert covers(interest(BIG), interest(LITTLE, "weight > 3"))
    assert not covers(interest(BIG, "weight > 3"), interest(LITTLE))
    assert covers(interest(BIG, "weight > 3"), interest(LITTLE, "weight > 3"))
    still = interest(LITTLE, "weight > 3")
    assert covers(interest(BIG, "weight > 3"), replace(still, filter=Filter("weight > 3", 9)))
    growing = interest(LITTLE, "weight > t")
    assert not covers(interest(BIG, "weight > t"), replace(growing, filter=Filter("weight > t", 9)))


def test_what_moves_alike_covers_only_what_brokers_follow_in_the_same_way() -> None:
    """A version of half a second ago misses what an exact one wants."""
    going = Moving(box(0, 0, 9, 9), (1.0, 0.0, 0.0))
    often, seldom = Evolution("periodic", SECOND), Evolution("periodic", 9 * SECOND)
    for region, text in ((going, None), (BIG, "weight > t")):
        for a, b in ((often, seldom), (Evolution("lazy"), often), (None, often)):
            one = replace(interest(region, text), evolution=a)
            other = replace(interest(region, text), evolution=b)
            assert covers(one, one)
            assert not covers(one, other)
            assert not covers(other, one)
    still = replace(interest(BIG, "weight > 3"), evolution=seldom)
    assert covers(still, interest(BIG, "weight > 3"))
    assert covers(still, replace(interest(LITTLE, "weight > 3"), evolution=often))


# Regions that do cover each other now and then.
near = st.integers(-3, 3).map(float)
sizes = st.sampled_from([0.0, 1.0, 2.0, 5.0, 8.0, 20.0, inf])
flat = st.builds(
    lambda x, y, rx, ry, rz: Shape(2, x, y, 0.0, rx, ry, rz), near, near, sizes, sizes,
    st.sampled_from([0.0, 0.0, 5.0, inf]),
)  # fmt: skip
round_ = st.builds(disc, near, near, st.sampled_from([0.0, 1.0, 5.0, 10.0]))
standing = st.builds(Moving, flat | round_, since=TIMES)
drifting = st.builds(
    lambda shape, to, speed, since: line(shape, to, speed).stamped(since),
    flat | round_, st.tuples(near, near, st.just(0.0)), st.sampled_from([0.5, 2.0, 10.0]), TIMES,
)  # fmt: skip
growing = st.builds(
    lambda shape, g, duration, since: Moving(shape, growth=(g, g, 0.0), duration=duration).stamped(
        since
    ),
    flat, st.sampled_from([-1.0, -0.5, 0.5]), st.sampled_from([SECOND, 5 * SECOND]), TIMES,
)  # fmt: skip
winding = st.builds(
    lambda shape, stops, since: path(shape, stops, 2.0).stamped(since),
    flat | round_,
    st.lists(st.tuples(near, near, st.just(0.0)), min_size=1, max_size=3),
    TIMES,
)
plain = standing | drifting | growing | winding


@examples(80)
@given(several=st.lists(plain, min_size=6, max_size=10), drawn=shapes(2) | flat | round_, at=TIMES)
def test_a_covered_subscription_wants_nothing_that_the_covering_one_does_not(
    several: list[Moving | Path], drawn: Shape, at: int
) -> None:
    pairs = [(a, b) for a in several for b in several if covers(interest(a), interest(b))]
    for a, b in pairs:
        for moment in (at, 0, a.since, b.since, b.since + SECOND, 40 * SECOND):
            s = b.at(moment)
            # The border of the small one is where rounding would show.
            border = [point(s.x + s.rx, s.y), point(s.x - s.rx, s.y)] if s.rx < inf else []
            for shape in (drawn, point(s.x, s.y), *border):
                if b.touches(shape, moment):
                    assert a.touches(shape, moment)


@examples(100)
@given(a=subscriptions(), b=subscriptions(), publication=publications())
def test_covering_holds_for_every_kind_of_subscription(
    a: Subscription, b: Subscription, publication: Publication
) -> None:
    of_another = replace(publication, node=99)
    if covers(a, b) and wants(b, of_another, publication.t):
        assert wants(a, of_another, publication.t)


@examples(40)
@given(seed=st.integers(0, 10**6), earth=st.booleans())
def test_an_area_with_an_outline_covers_nothing_that_only_its_box_contains(
    seed: int, earth: bool
) -> None:
    rng = Random(seed)
    areas = EarthAreas(rng, 179.5, 50.0) if earth else PlaneAreas(rng)
    several, places = ([make() for _ in range(20)] for make in (areas.area, areas.place))
    for a in several:
        for b in several:
            if covers(interest(Moving(a)), interest(Moving(b))):
                assert all(a.touches(place) for place in places if b.touches(place))


def test_boxes_of_outlines_and_heights_are_no_proof() -> None:
    corner = polygon([[(0, 0), (9, 0), (9, 1), (1, 1), (1, 9), (0, 9)]])
    for large, small in (
        (corner, box(5, 5, 1, 1)),
        (corner, polygon([[(5, 5), (6, 5), (6, 6)]])),
        (earth_disc(8, 47, 5_000, high=100), earth_disc(8, 47, 500)),
    ):
        assert not covers(interest(Moving(large)), interest(Moving(small)))
        assert covers(interest(Moving(large)), interest(Moving(large)))
    assert covers(interest(BIG), interest(Moving(polygon([[(1, 1), (4, 1), (4, 4)]]))))


# Advertisements.


@examples(100)
@given(
    wanted=subscriptions(),
    publication=publications(),
    area=shapes(),
    channel=st.sampled_from([None, "", "chat"]),
    text=st.sampled_from([None, "weight > 3", 'kind == "apple"', "weight < 2", "ripe == true"]),
)
def test_a_wanted_publication_implies_that_its_advertisement_intersects(
    wanted: Subscription,
    publication: Publication,
    area: Shape,
    channel: str | None,
    text: str | None,
) -> None:
    chosen = None if text is None else Filter(text)
    for place in (area, EVERYWHERE, cuboid(0, 0, 0, 1e4, 1e4, 1e4)):
        advertisement = Advertisement(0, publication.node, place, channel, chosen)
        conforming = conforms(publication, advertisement)
        if conforming and wants(replace(wanted, echo=True), publication, publication.t):
            assert intersects(advertisement, wanted)


@examples(100)
@given(region=regions(), t=TIMES, shape=shapes(bounded=True))
def test_a_region_never_leaves_its_reach(
    region: Moving | Path | Formula, t: int, shape: Shape
) -> None:
    low, high = bounds_for_ever(region)
    if region.touches(shape, t):
        rx, ry, rz = (shape.rx,) * 3 if shape.kind == 1 else (shape.rx, shape.ry, shape.rz)
        for k, (c, r) in enumerate(((shape.x, rx), (shape.y, ry), (shape.z, rz))):
            assert c + r + rounding_margin([shape]) >= low[k]
            assert c - r - rounding_margin([shape]) <= high[k]


def test_intersection_is_denied_where_it_is_impossible() -> None:
    north = Advertisement(0, 1, box(0, 100, 10, 10))
    assert not intersects(north, interest(BIG))
    assert intersects(north, interest(line(box(0, 0, 1, 1), (0.0, 95.0, 0.0), 1.0)))
    assert not intersects(north, interest(line(box(0, 0, 1, 1), (0.0, 80.0, 0.0), 1.0)))
    assert not intersects(north, interest(Formula("y < 80, x > t")))
    assert intersects(north, interest(Formula("y > 80, x > t")))
    assert intersects(north, interest(Moving(box(0, 0, 1, 1), (0.0, 1.0, 0.0))))
    assert not intersects(replace(north, channel="chat"), interest(Moving(EVERYWHERE)))
    cheap = replace(north, filter=Filter("price < 50"))
    assert not intersects(cheap, interest(Moving(EVERYWHERE), "price > 60"))
    assert intersects(cheap, interest(Moving(EVERYWHERE), "price > 60 - t"))


def test_the_ends_of_a_region_are_known_unless_it_goes_on_for_ever() -> None:
    assert leg_ends(BIG) == [BIG.shape]
    assert leg_ends(line(box(0, 0, 1, 1), (4.0, 0.0, 0.0), 2.0)) == [
        box(0, 0, 1, 1),
        box(4, 0, 1, 1),
    ]
    assert leg_ends(Moving(box(0, 0, 1, 1), (1.0, 0.0, 0.0))) is None
    assert leg_ends(Formula("x > t")) is None
