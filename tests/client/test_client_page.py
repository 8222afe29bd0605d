"""What the how-tos of clients say is what the client library has."""

import ast
import re
from pathlib import Path

import msgspec
import pytest

import nearcast
from nearcast.client.client import ClientNotice

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
PAGE = (HOW_TO / "python-client.md").read_text("utf-8")
CLIENT_PAGES = [
    page
    for page in sorted(HOW_TO.glob("*.md"))
    # It simulates with parts of the library.
    if page.name != "simulate-a-cluster.md"
]


def fields(kind: type) -> set[str]:
    return {field.name for field in msgspec.structs.fields(kind)}


@pytest.mark.parametrize(
    ("head", "kind", "more"),
    [
        ("message", nearcast.Message, {"shape"}),
        ("entity", nearcast.Entity, set()),
        ("direct", nearcast.DirectMessage, set()),
        ("event", nearcast.FenceEvent, set()),
    ],
)
def test_a_table_has_every_field_of_what_a_client_receives(
    head: str, kind: type, more: set[str]
) -> None:
    (table,) = re.findall(rf"^\| `{head}\.` \| is \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.M)
    named = [word for row in re.findall(r"^\| (.*?) \|", table, re.M) for word in words(row)]
    assert sorted(named) == sorted(fields(kind) | more)


def words(text: str) -> list[str]:
    return re.findall("`(\\w+)`", text)


@pytest.mark.parametrize("kind", ClientNotice.__args__, ids=lambda kind: kind.__name__)
def test_every_notice_has_a_row_with_its_fields(kind: type) -> None:
    (row,) = re.findall(rf"^\| `{kind.__name__}` \|(.*)\|$", PAGE, re.M)
    assert fields(kind) <= set(words(row))
    assert getattr(nearcast, kind.__name__) is kind


@pytest.mark.parametrize("page", CLIENT_PAGES, ids=lambda page: page.stem)
def test_examples_import_public_names_alone(page: Path) -> None:
    for text in re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S):
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nearcast"):
                assert node.module in ("nearcast", "nearcast.spark"), ast.unparse(node)
            if isinstance(node, ast.Import):
                names = {one.name for one in node.names if one.name.startswith("nearcast")}
                assert names <= {"nearcast", "nearcast.spark"}, ast.unparse(node)
