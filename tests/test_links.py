"""Every link of the documents to a file of the repository leads there, and so does its anchor."""

import re
from functools import cache
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "clients" / "js" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


@cache
def prose(page: Path) -> str:
    """Without blocks of code, in which # and [] mean something else."""
    return re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchor(heading: str) -> str:
    """As it is shown on the web: lower case, without punctuation, hyphens for spaces."""
    shown = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", shown.strip().lower()).replace(" ", "-")


@cache
def anchors(page: Path) -> set[str]:
    found: list[str] = []
    for heading in re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE):
        slug = anchor(heading)
        same = sum(one == slug or re.fullmatch(rf"{re.escape(slug)}-\d+", one) is not None
                   for one in found)  # fmt: skip
        found.append(f"{slug}-{same}" if same else slug)
    return {*found, *re.findall(r'<a (?:id|name)="([^"]+)"', prose(page))}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    dead = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match("[a-z]+:", link):
            continue
        path, _, place = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        leads = target.exists() and (not place or place in anchors(target))
        if not leads:
            dead.append(link)
    assert dead == []
