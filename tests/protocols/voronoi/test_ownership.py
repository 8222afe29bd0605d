"""Ownership without clients: two or three sites that exchange all messages, or lose some."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.node import Message, Outbox, Send, SendMany
from nearcast.protocols.voronoi.records import FARTHEST, Records, centre, leg, mixed
from nearcast.protocols.voronoi.site import OwnershipGiven, OwnershipTaken, Record, Site
from nearcast.protocols.voronoi.vso.messages import (
    Digest,
    Inventory,
    RecordCopies,
    Transfer,
    TransferAck,
)
from nearcast.protocols.voronoi.vso.parameters import Parameters
from nearcast.space.motion import SECOND, Moving, path
from nearcast.space.shapes import box, disc
from support.examples import examples
from support.strategies import TIMES, regions

STEP = 50_000


class Sites:
    """Sites in a row, 100 apart, and the post between them; `lost` says what never arrives."""

    def __init__(self, count: int) -> None:
        self.now = 0
        self.lost: tuple[type[Message], ...] = ()
        self.outs = [Outbox() for _ in range(count)]
        parameters = Parameters(partitioning="static")
        self.sites = [
            Site(number, out, Random(number), lambda: self.now, parameters)
            for number, out in enumerate(self.outs)
        ]
        self.events: list[list[object]] = [[] for _ in range(count)]
        self.messages: list[Message] = []
        self.sites[0].found((0.0, 0.0))
        for number, site in enumerate(self.sites[1:], 1):
            site.join((100.0 * number, 0.0), 0, 0)
            self.pass_time(1.0)

    def pass_time(self, seconds: float) -> None:
        end = self.now + round(seconds * SECOND)
        while self.now < end:
            self.now += STEP
            for site in self.sites:
                site.tick(self.now)
            self._deliver()

    def _deliver(self) -> None:
        waiting = True
        while waiting:
            waiting = False
            for number, out in enumerate(self.outs):
                for effect in out.drain():
                    if isinstance(effect, Send | SendMany):
                        waiting = True
                        to = [effect.to] if isinstance(effect, Send) else effect.to
                        self.messages.append(effect.message)
                        for one in to:
                            if not isinstance(effect.message, self.lost):
                                self.sites[one].on(effect.message, number)
        for site, events in zip(self.sites, self.events, strict=True):
            events += site.drain()

    def owners(self, subscription: int) -> list[int]:
        return [site.id for site in self.sites if site.owner(subscription) == site.id]


def interest(x: float, radius: float = 10.0, version: int = 1) -> Record:
    return Record(7, 99, Moving(disc(x, 0, radius)), version, body=b"opaque")


def test_a_record_is_handed_over_in_a_higher_epoch_when_its_centre_has_left() -> None:
    sites = Sites(3)
    held = sites.sites[0].hold(interest(10))
    assert held is not None
    assert (held.epoch, held.owner) == (1, 0)
    sites.pass_time(1)
    sites.sites[0].moved([7], [Moving(disc(110, 0, 10))], [2])
    sites.pass_time(0.2)
    assert sites.owners(7) == [0], "not before it has been outside for a while"
    sites.pass_time(0.5)
    assert sites.owners(7) == [1]
    taken = sites.sites[1].record(7)
    assert taken is not None
    assert (taken.epoch, taken.version, taken.body) == (2, 2, b"opaque")
    assert [n.record.owner for n in sites.events[0] if isinstance(n, OwnershipGiven)] == [1]
    assert [n.record.epoch for n in sites.events[1] if isinstance(n, OwnershipTaken)] == [2]


def test_a_region_that_moves_by_itself_is_handed_over_by_its_owner() -> None:
    sites = Sites(3)
    ways = [(200.0, 0.0, 0.0)]
    sites.sites[0].hold(Record(7, 99, path(disc(0, 0, 10), ways, 50.0).stamped(sites.now), 1))
    sites.pass_time(6)
    assert sites.owners(7) == [2]
    record = sites.sites[2].record(7)
    assert record is not None
    assert record.epoch == 3


def test_an_offer_that_is_lost_is_reclaimed_in_a_higher_epoch() -> None:
    sites = Sites(2)
    sites.sites[0].hold(interest(10))
    sites.pass_time(1)
    sites.lost = (Transfer,)
    sites.sites[0].moved([7], [Moving(disc(110, 0, 10))], [2])
    sites.pass_time(0.7)
    assert sites.owners(7) == [], "in transit nobody owns it"
    sites.pass_time(0.8)
    assert any(isinstance(n, OwnershipTaken) and n.record.epoch == 3 for n in sites.events[0])
    sites.lost = ()
    sites.pass_time(2)
    assert sites.owners(7) == [1]


def test_when_only_the_acknowledgement_is_lost_the_newer_epoch_wins() -> None:
    sites = Sites(2)
    sites.sites[0].hold(interest(10))
    sites.pass_time(1)
    sites.lost = (TransferAck, RecordCopies, Digest, Inventory)
    sites.sites[0].moved([7], [Moving(disc(110, 0, 10))], [2])
    sites.pass_time(1.5)
    assert sites.owners(7) == [0, 1], "each in an epoch of its own"
    epochs = [site.record(7).epoch for site in sites.sites if site.record(7)]
    assert epochs[0] > epochs[1]
    sites.lost = ()
    sites.pass_time(4)
    assert sites.owners(7) == [1]


@pytest.mark.parametrize("copies_lost", [False, True])
def test_two_owners_in_one_epoch_agree_when_they_hear_of_each_other(copies_lost: bool) -> None:
    """A site whose copy is stale takes a record in the epoch in which its owner has just given it
    to another one. The copies that both send, or else digests, tell them."""
    sites = Sites(3)
    sites.sites[0].hold(interest(10, radius=150))
    sites.pass_time(1)
    sites.lost = (RecordCopies, Digest, Inventory)
    sites.sites[0].moved([7], [Moving(disc(110, 0, 150))], [2])
    sites.pass_time(0.5)
    assert sites.owners(7) == [1]
    held = sites.sites[2].hold(interest(190, radius=150, version=3))
    assert held is not None
    assert sites.owners(7) == [1, 2]
    assert [site.record(7).epoch for site in sites.sites[1:] if site.record(7)] == [2, 2]
    if copies_lost:
        sites.pass_time(STEP / SECOND)
        assert sites.owners(7) == [1, 2]
    sites.lost = ()
    sites.pass_time(1.1 if copies_lost else STEP / SECOND)
    assert sites.owners(7) == [2], "the larger number"
    sites.pass_time(2)
    assert {record.owner for site in sites.sites if (record := site.record(7))} == {2}


def test_areas_are_copied_to_all_they_touch_and_to_one_neighbour_at_least() -> None:
    sites = Sites(3)
    sites.sites[0].hold(interest(10, radius=5))
    sites.pass_time(0.2)
    assert [site.owner(7) for site in sites.sites] == [0, 0, None], "a backup"
    sites.sites[0].moved([7], [Moving(disc(10, 0, 145))], [2])
    sites.pass_time(0.3)
    assert [site.owner(7) for site in sites.sites] == [0, 0, 0]
    assert sites.sites[2].record(7).version == 2
    sites.sites[0].moved([7], [Moving(disc(10, 0, 5))], [3])
    sites.pass_time(1.5)
    assert [site.owner(7) for site in sites.sites] == [0, 0, None], "and released"


def test_what_has_ended_stays_ended() -> None:
    sites = Sites(2)
    sites.sites[0].hold(interest(10))
    sites.pass_time(1)
    copy = sites.sites[1].record(7)
    sites.sites[0].dropped(7, 5)
    sites.pass_time(0.5)
    assert [site.record(7) for site in sites.sites] == [None, None]
    sites.sites[1].on(RecordCopies((copy,)), 0)
    sites.pass_time(0.5)
    assert [site.record(7) for site in sites.sites] == [None, None]
    assert sites.sites[0].hold(interest(10, version=5)) is None
    assert sites.sites[0].hold(interest(10, version=6)) is not None


def test_a_copy_that_was_lost_is_sent_again() -> None:
    sites = Sites(2)
    sites.lost = (RecordCopies,)
    sites.sites[0].hold(interest(10))
    sites.pass_time(0.3)
    assert sites.sites[1].record(7) is None
    sites.lost = ()
    sites.pass_time(2)
    assert sites.sites[1].owner(7) == 0


def test_records_agree_in_a_digest_if_and_only_if_they_are_the_same() -> None:
    sites = Sites(2)
    sites.sites[0].hold(interest(10))
    sites.pass_time(3)
    sites.messages.clear()
    sites.pass_time(3)
    assert any(isinstance(message, Digest) for message in sites.messages)
    assert not any(isinstance(message, Inventory) for message in sites.messages)


def test_a_leaving_site_hands_over_all_it_owns_and_goes() -> None:
    sites = Sites(3)
    for number in range(30):
        sites.sites[1].hold(
            Record(number, 99, Moving(box(60.0 + 2.5 * number, 0, 3, 3)), 1, body=b"x")
        )
    sites.pass_time(1)
    sites.sites[1].resign()
    sites.pass_time(2)
    assert sites.sites[1].resigned
    owners = {number: sites.owners(number) for number in range(30)}
    assert all(owner in ([0], [2]) for owner in owners.values())
    assert {owner[0] for owner in owners.values()} == {0, 2}


def test_a_site_knows_for_a_while_whose_a_place_was_before() -> None:
    sites = Sites(3)
    sites.pass_time(3)
    places = np.array([(20.0, 0.0), (90.0, 0.0)])
    assert sites.sites[0].owners_before(places) is None
    sites.sites[1].resign()
    sites.pass_time(0.5)
    before = sites.sites[0].owners_before(places)
    assert before is not None
    assert before.tolist() == [0, 1]
    sites.pass_time(3)
    assert sites.sites[0].owners_before(places) is None


def test_outside_the_mesh_the_next_hop_is_the_contact_or_a_former_neighbour() -> None:
    sites = Sites(3)
    newcomer = Site(9, Outbox(), Random(9), lambda: sites.now, Parameters())
    newcomer.join((50.0, 0.0), 2, 0)
    assert newcomer.next_hop((0.0, 0.0)) == 2
    sites.sites[1].resign()
    sites.pass_time(1)
    assert not sites.sites[1].ready
    assert [sites.sites[1].next_hop((x, 0.0)) for x in (20.0, 90.0, 110.0)] == [0, 0, 2]


@examples(80)
@given(region=regions(), t=TIMES, ahead=st.sampled_from([0, 500_000]))
def test_columns_have_the_place_of_a_region(region: object, t: int, ahead: int) -> None:
    records = Records()
    slot = records.put(Record(1, 2, region, 3), 0)
    records.advance(t)
    (area,) = records.areas(records.owned_by(0), t, ahead).tolist()
    assert slot == records.slot[1]
    if not hasattr(region, "at"):
        assert area[2:] == [float("inf"), float("inf")]
        return
    shape = region.at(t)
    place = [min(max(n, -FARTHEST), FARTHEST) for n in (shape.x, shape.y)]
    assert area[:2] == pytest.approx(place, rel=1e-9, abs=1e-6)
    assert centre(region, t) == pytest.approx((area[0], area[1]), rel=1e-9, abs=1e-6)
    assert area[2] >= shape.rx * (1 - 1e-9) - 1e-6
    assert leg(region, t)[3] > t or leg(region, t)[3] > leg(region, 0)[1]


def test_hashes_differ_by_id_version_epoch_and_owner() -> None:
    base = Record(1, 2, Moving(disc(0, 0, 1)), 3, 4, 5)
    others = [
        Record(9, 2, base.region, 3, 4, 5), Record(1, 2, base.region, 9, 4, 5),
        Record(1, 2, base.region, 3, 9, 5), Record(1, 2, base.region, 3, 4, 9),
    ]  # fmt: skip
    assert len({mixed(record) for record in (base, *others)}) == 5
