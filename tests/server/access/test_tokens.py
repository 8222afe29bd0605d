"""Tokens, roles, channels, areas, quotas, guesses and origins: what is decided without sockets."""

from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.client_protocol.geometry_json import Area, region_from_area
from nearcast.errors import AccessError
from nearcast.server.access import failed_tokens
from nearcast.server.access.failed_tokens import FailedTokens
from nearcast.server.access.tokens import (
    AccessControl,
    Denied,
    foreign_page_refusal,
    load_access,
    read_tokens,
)
from nearcast.server.http.addresses import network_of
from nearcast.service.access.grants import Channels, Grant, contains_shape, stays_within
from nearcast.service.access.quotas import Quotas
from nearcast.service.access.token_bucket import TokenBucket
from nearcast.space.motion import SECOND, Moving
from nearcast.space.shapes import EVERYWHERE, Shape, ball, box, cuboid, disc, point

NOW = 1_800_000_000.0
TOKENS = """
[watcher]
token = "only-reading"
role = "read"

[arena]
token = "inside-the-arena"
role = "publish"
within = { x = 0, y = 0, r = 10 }

[guest]
token = "a-little-of-all"
role = "publish"
publish_channels = ["chat.*", "shout"]
listen_channels = ["*"]
listen_within = { x = 0, y = 0, rx = 5, ry = 5 }
requests = 5
subscriptions = 2
connections = 1

[boss]
token = "everything-goes"
role = "admin"
"""


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    file = tmp_path / "tokens.toml"
    file.write_text(TOKENS)
    return file


def granted(known: AccessControl, token: str) -> Grant:
    grant = known.check(token, NOW)
    assert isinstance(grant, Grant)
    return grant


def test_without_tokens_everyone_may_do_everything() -> None:
    assert granted(load_access(), "") == Grant()


def test_each_token_has_its_role(tokens: Path) -> None:
    known = load_access(file=tokens)
    assert granted(known, "only-reading").role == "read"
    assert granted(known, "everything-goes").role == "admin"
    assert [known.check(token, NOW) for token in ("", "no")] == [Denied(), Denied()]
    assert not known.open


def test_a_setting_and_a_file_of_tokens_hold_together(tokens: Path) -> None:
    known = load_access("the-setting", tokens)
    assert granted(known, "the-setting").role == "admin"
    assert granted(known, "only-reading").role == "read"


def test_a_role_says_what_may_be_published_and_where(tokens: Path) -> None:
    known = load_access(file=tokens)
    reader, player = granted(known, "only-reading"), granted(known, "inside-the-arena")
    assert "listen" in (reader.refusal(point(0, 0)) or "")
    assert player.refusal(point(6, 8)) is None
    assert "area" in (player.refusal(point(6, 8.1)) or "")


def test_a_token_may_limit_channels_areas_and_counts(tokens: Path) -> None:
    guest = granted(load_access(file=tokens), "a-little-of-all")
    assert guest.refusal(point(99, 99), "chat.en") is None
    assert "channel 'chat'" in (guest.refusal(point(0, 0), "chat") or "")
    assert "channel ''" in (guest.refusal(point(0, 0)) or "")
    assert guest.listening_refusal(Moving(disc(0, 0, 5)), "anything") is None
    assert "area" in (guest.listening_refusal(Moving(disc(0, 0, 6)), "") or "")
    assert "formula" in (guest.listening_refusal("x > 1, x < 2", "") or "")
    assert (guest.requests, guest.subscriptions, guest.connections) == (5, 2, 1)
    assert guest.limits_publishing
    assert guest.limits_listening
    boss = granted(load_access(file=tokens), "everything-goes")
    assert not boss.limits_publishing
    assert not boss.limits_listening


def test_patterns_of_channels() -> None:
    some = Channels(["chat.*", "room?", "[ab]x", ""])
    names = ["", "chat", "chat.", "chat.en.gb", "Chat.en", "room1", "room", "room12", "ax", "cx"]
    names += ["chat.\n", "xchat.en"]
    allowed = [name for name in names if name in some]
    assert allowed == ["", "chat.", "chat.en.gb", "room1", "ax", "chat.\n"]
    assert [name for name in names if name in some] == allowed, "the same when asked again"
    assert not [name for name in names if name in Channels([])]
    assert all(name in Channels(["*"]) for name in names)


def test_names_that_a_client_invents_do_not_fill_memory() -> None:
    some = Channels(["a*"])
    for number in range(2_000):
        assert f"a{number}" in some
        assert f"b{number}" not in some
    assert "a" + "x" * 100_000 in some
    assert sum(map(len, vars(some)["_known"])) < 100_000
    assert len(vars(some)["_known"]) <= 256


@pytest.mark.parametrize(
    ("outer", "inner", "inside"),
    [
        (disc(0, 0, 5), point(3, 4), True),
        (disc(0, 0, 5), point(3, 4.1), False),
        (disc(0, 0, 5), disc(2, 0, 3), True),
        (disc(0, 0, 5), disc(2, 0, 3.1), False),
        (disc(0, 0, 5), disc(0, 0, 6), False),
        (disc(0, 0, 5), box(0, 0, 3, 4), True),
        (disc(0, 0, 5), box(1, 0, 3, 4), False),
        (box(0, 0, 5, 5), disc(0, 0, 5), True),
        (box(0, 0, 5, 5), disc(1, 0, 5), False),
        (box(0, 0, 5, 5), box(1, 1, 4, 4), True),
        (box(0, 0, 5, 5), box(1, 1, 4, 4.5), False),
        (box(0, 0, 5, 5), point(0, 0, 1), False),
        (cuboid(0, 0, 0, 5, 5, 2), ball(0, 0, 0, 3), False),
        (cuboid(0, 0, 0, 5, 5, 3), ball(0, 0, 0, 3), True),
        (point(1, 1), point(1, 1), True),
    ],
)
def test_an_area_holds_what_lies_wholly_in_it(outer: Shape, inner: Shape, inside: bool) -> None:
    assert contains_shape(outer, inner) == inside


@pytest.mark.parametrize(
    ("area", "stays"),
    [
        (Area(x=0.0, y=0.0, r=5.0), True),
        (Area(x=0.0, y=0.0, r=5.0, vx=1.0, lasts=5.0), True),
        (Area(x=0.0, y=0.0, r=5.0, vx=1.0, lasts=5.1), False),
        (Area(x=0.0, y=0.0, r=5.0, vx=1e-9), False),
        (Area(x=0.0, y=0.0, r=5.0, gx=-1.0), False),
        (Area(x=0.0, y=0.0, r=5.0, gx=1.0, lasts=5.0), True),
        (Area(x=0.0, y=0.0, r=5.0, gx=1.0, lasts=6.0), False),
        (Area(x=0.0, y=0.0, r=12.0, gx=-1.0, lasts=6.0), False),
        (Area(x=0.0, y=0.0, rx=5.0, ry=5.0, gx=1.0, gy=-9.0, lasts=5.0), True),
        (Area(x=0.0, y=0.0, r=3.0, to=[[7.0, 0.0], [7.0, 7.0], [0.0, 0.0]], speed=1.0), True),
        (Area(x=0.0, y=0.0, r=3.0, to=[[7.0, 0.0], [8.0, 7.0], [0.0, 0.0]], speed=1.0), False),
        (Area(x=9.0, y=9.0, r=3.0, to=[[0.0, 0.0]], speed=1.0), False),
        (Area(x=1.0, y=1.0, r=1.0, to=[[1.0, 1.0]], speed=1.0), True),
        (Area(x=0.1, y=0.3, r=0.7, to=[[9.3, 0.1], [0.7, 9.3]], speed=0.3), True),
        (Area(), False),
        (Area(formula="x > 1, x < 2, y > 1, y < 2"), False),
        (Area(x=1.0, y=1.0, vz=1.0, lasts=1.0), False),
    ],
)
def test_an_area_holds_what_stays_in_it_at_all_times(area: Area, stays: bool) -> None:
    assert stays_within(box(0, 0, 10, 10), region_from_area(area)) == stays


def test_everywhere_may_be_granted_too() -> None:
    assert stays_within(EVERYWHERE, region_from_area(Area()))
    assert stays_within(EVERYWHERE, region_from_area(Area(x=1.0, y=1.0, r=1.0, vx=1.0, lasts=1.0)))


def number(most: float) -> st.SearchStrategy[float]:
    return st.floats(-most, most, allow_nan=False)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    x, y, r = draw(number(20)), draw(number(20)), abs(draw(number(20)))
    return draw(st.sampled_from([disc(x, y, r), box(x, y, r, abs(draw(number(20))))]))


@given(shapes(), shapes(), number(5), number(5), number(3), number(3), st.floats(0, 20))
def test_whoever_is_inside_at_both_ends_is_inside_all_the_time(
    outer: Shape, inner: Shape, vx: float, vy: float, gx: float, gy: float, lasts: float
) -> None:
    """Sampled: a motion that `stays_within` never leaves, and one that leaves does not stay."""
    growth = (gx, 0.0, 0.0) if inner.kind == disc(0, 0, 1).kind else (gx, gy, 0.0)
    moving = Moving(inner, (vx, vy, 0.0), growth, round(lasts * SECOND))
    samples = [moving.at(moving.until * step // 50) for step in range(51)]
    if stays_within(outer, moving):
        assert all(contains_shape(outer, sample, 1 + 1e-6) for sample in samples)
    else:
        assert not all(contains_shape(outer, sample) for sample in samples)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no token"),
        ("[a]\ntoken = 'longenough'\nrole = 'king'", "king"),
        ("[a]\ntoken = 'short'\nrole = 'read'", "8 characters"),
        ("[a]\ntoken = 'longenough'\nrole = 'read'\nmore = 1", "more"),
        ("[a]\ntoken = 'longenough'\nrole = 'publish'\nwithin = { x = 1 }", "y"),
        ("[a]\ntoken = 'longenough'\nrole = 'publish'\nwithin = { x = 1, y = 1, r = -1 }", "r"),
        ("[a]\ntoken = 'longenough'\nrole = 'read'\nrequests = 0", "requests"),
        ("[a]\ntoken = 'longenough'\nrole = 'read'\nlisten_within = { x = 1, y = 1, q = 1 }", "q"),
        ("[a]\ntoken = 'longenough'\nrole = 'read'\nlisten_channels = 'chat'", "array"),
        ("[a", "a"),
    ],
)
def test_a_file_of_tokens_with_a_mistake_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "tokens.toml"
    file.write_text(text)
    with pytest.raises(AccessError, match=reason):
        read_tokens(file)


def test_a_missing_file_of_tokens_is_told(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="cannot read"):
        read_tokens(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("headers", "welcome"),
    [
        ({}, True),
        ({"host": "127.0.0.1:8470"}, True),
        ({"host": "localhost:8470", "origin": "http://localhost:3000"}, True),
        ({"host": "[::1]:8470", "origin": "http://[::1]:8470"}, True),
        ({"host": "127.0.0.1:8470", "origin": "https://evil.example"}, False),
        ({"host": "evil.example:8470"}, False),
        ({"host": "127.0.0.1:8470", "origin": "null"}, False),
    ],
)
def test_pages_from_elsewhere_are_turned_away_from_an_open_node(
    headers: dict[str, str], welcome: bool
) -> None:
    assert (foreign_page_refusal(headers, open_to_all=True) is None) == welcome
    assert foreign_page_refusal(headers, open_to_all=False) is None


def test_a_node_keeps_no_token_in_clear() -> None:
    assert "secret" not in repr(vars(AccessControl({"secret-token": Grant()})))


def test_a_bucket_lets_bursts_through_and_bounds_the_rate() -> None:
    bucket = TokenBucket(10, 0.0)
    assert [bucket.take() for _ in range(25)].count(True) == 20
    assert not bucket.fill(0.0)
    granted = 0
    for step in range(1, 101):  # ten seconds, in which fifty requests a second are tried
        for _ in range(5):
            granted += bucket.take() or bucket.fill(step / 10)
    assert 90 <= granted <= 110


def test_pauses_after_wrong_tokens_grow_by_address_and_end() -> None:
    guessing = FailedTokens()
    pauses = [guessing.failed("192.0.2.1", float(n)) for n in range(8)]
    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0]
    assert guessing.failed("192.0.2.2", 8.0) == 0.25
    assert guessing.failed("192.0.2.1", 7.0 + failed_tokens.FORGET_S) == 5.0
    assert guessing.failed("192.0.2.1", 8.0 + 2 * failed_tokens.FORGET_S) == 0.25


def test_addresses_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_tokens, "MOST", 100)
    guessing = FailedTokens()
    for n in range(1_000):
        guessing.failed("192.0.2.1", float(n))
        guessing.failed(f"10.0.{n // 256}.{n % 256}", float(n))
    assert len(guessing) == 100
    assert guessing.failed("192.0.2.1", 1_000.0) == 5.0, "who guesses on is not forgotten"


def test_a_network_of_ipv6_is_one_guesser() -> None:
    assert network_of("2001:db8:1:2:3:4:5:6") == network_of("2001:db8:1:2::9") == "2001:db8:1:2::"
    assert network_of("2001:db8:1:3::9") != network_of("2001:db8:1:2::9")
    assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1") == "192.0.2.1"
    assert network_of("fe80::1%eth0") == "fe80::"
    assert network_of("") == ""


def test_a_reload_finds_each_grant_again_by_its_token(tokens: Path) -> None:
    before = load_access("the-setting", tokens)
    tokens.write_text(TOKENS.replace('role = "read"', 'role = "publish"').replace("goes", "went"))
    after = load_access("the-setting", tokens)
    renewed = after.renewed(granted(before, "only-reading"))
    assert renewed is not None
    assert renewed.role == "publish"
    assert after.renewed(granted(before, "everything-goes")) is None
    assert after.renewed(granted(before, "the-setting")) is not None
    assert after.renewed(Grant()) is None
    assert load_access().renewed(Grant()) == Grant()


def test_no_token_raises_the_limit_of_the_node() -> None:
    quotas = Quotas(2)
    grant = Grant("jwt:ann", requests=10)
    assert [quotas.take(grant, 0.0) for _ in range(6)].count(True) == 4  # those of two seconds
    assert all(quotas.take(Grant("jwt:bob"), 0.0) for _ in range(6))


def test_who_uses_nothing_is_forgotten_once_its_bucket_is_full_again() -> None:
    quotas, grant = Quotas(100), Grant("jwt:ann", requests=1)
    session: Any = Mock(use=None, bucket=None)
    quotas.enter(session, grant, 0.0)
    for now in range(1, 100):
        quotas.forget(float(now))
    bucket = session.bucket
    assert bucket.fill(99.0) and bucket.take()
    quotas.leave(session)
    quotas.forget(100.0)
    assert not quotas.take(grant, 99.0), "to connect again fills no bucket"
    assert len(quotas) == 1
    quotas.forget(99.0 + 3.1)
    assert len(quotas) == 0
