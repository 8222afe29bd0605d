"""Tokens, roles and origins."""

from pathlib import Path

import pytest

from nearcast.live.access import (
    Access,
    AccessError,
    Bucket,
    Grant,
    access,
    foreign,
    holds,
    read_tokens,
)
from nearcast.space.shapes import Shape, ball, box, cuboid, disc, point

TOKENS = """
[watcher]
token = "only-reading"
role = "read"

[arena]
token = "inside-the-arena"
role = "publish"
within = { x = 0, y = 0, r = 10 }

[boss]
token = "everything-goes"
role = "admin"
"""


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    file = tmp_path / "tokens.toml"
    file.write_text(TOKENS)
    return file


def test_without_tokens_everyone_may_do_everything() -> None:
    grant = access().grant("")
    assert grant is not None
    assert grant.role == "admin"


def test_each_token_has_its_role(tokens: Path) -> None:
    known = access(file=tokens)
    roles = {token: known.grant(token) for token in ("only-reading", "everything-goes", "", "no")}
    assert [grant and grant.role for grant in roles.values()] == ["read", "admin", None, None]
    assert not known.open


def test_a_setting_and_a_file_of_tokens_hold_together(tokens: Path) -> None:
    known = access("the-setting", tokens)
    assert known.grant("the-setting") == Grant()
    assert known.grant("only-reading") is not None


def test_a_role_says_what_may_be_published_and_where(tokens: Path) -> None:
    known = access(file=tokens)
    reader, player = known.grant("only-reading"), known.grant("inside-the-arena")
    assert reader is not None
    assert player is not None
    assert "listen" in (reader.refusal(point(0, 0)) or "")
    assert player.refusal(point(6, 8)) is None
    assert "area" in (player.refusal(point(6, 8.1)) or "")


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
    assert holds(outer, inner) == inside


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no token"),
        ("[a]\ntoken = 'longenough'\nrole = 'king'", "king"),
        ("[a]\ntoken = 'short'\nrole = 'read'", "8 characters"),
        ("[a]\ntoken = 'longenough'\nrole = 'read'\nmore = 1", "more"),
        ("[a]\ntoken = 'longenough'\nrole = 'publish'\nwithin = { x = 1 }", "y"),
        ("[a]\ntoken = 'longenough'\nrole = 'publish'\nwithin = { x = 1, y = 1, r = -1 }", "r"),
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
    assert (foreign(headers, open_to_all=True) is None) == welcome
    assert foreign(headers, open_to_all=False) is None


def test_a_node_keeps_no_token_in_clear() -> None:
    assert "secret" not in repr(vars(Access({"secret-token": Grant()})))


def test_a_bucket_lets_bursts_through_and_bounds_the_rate() -> None:
    bucket = Bucket(10, 0.0)
    assert [bucket.take() for _ in range(25)].count(True) == 20
    assert not bucket.fill(0.0)
    granted = 0
    for step in range(1, 101):  # ten seconds, in which fifty requests a second are tried
        for _ in range(5):
            granted += bucket.take() or bucket.fill(step / 10)
    assert 90 <= granted <= 110
