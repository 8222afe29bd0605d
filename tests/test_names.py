"""One word, one meaning: names that a stranger can look up, in code and documents."""

import ast
import importlib
import inspect
import pkgutil
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import nearcast
import nearcast_papers
from nearcast.node import Message
from support.source_code import definitions

ROOT = Path(__file__).parent.parent
# Public class names that several classes may have, and why.
SHARED = {
    "Parameters": "the settings of a protocol or a workload, one in each of their packages",
    "Message": "between nodes (`node`), and a publication that a client receives (`client`)",
    "Subscription": "as a value (`model`), and as a client holds it (`client`)",
}
# Words by which things were called that have a name in the field (docs/glossary.md).
PRIVATE = [
    "abroad",
    "audience",
    "bag",
    "desk",
    "diary",
    "doubt",
    "farewell",
    "fleet",
    "grove",
    "hearsay",
    "holdings",
    "lately",
    "mischief",
    "passages",
    "seat",
    "sparing",
    "stranger",
    "town",
    "trails",
    "verdict",
    "visitor",
    "voice",
    "wording",
]


@cache
def modules() -> list[ModuleType]:
    names = [
        found.name
        for package in (nearcast, nearcast_papers)
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not found.name.endswith("__main__")
    ]
    return [importlib.import_module(name) for name in names]


@cache
def public_classes() -> list[type]:
    return [
        one
        for module in modules()
        for name, one in vars(module).items()
        if inspect.isclass(one) and one.__module__ == module.__name__
        if one.__name__ == name and not name.startswith("_")
    ]


class Defined(NamedTuple):
    """A class or a function of the source."""

    file: str
    name: str
    is_class: bool
    documented: bool  # `__doc__` of a tuple or a dataclass is never empty


@cache
def defined() -> list[Defined]:
    return [
        Defined(file.name, one.name, isinstance(one, ast.ClassDef), bool(ast.get_docstring(one)))
        for file in (ROOT / "src").rglob("*.py")
        for one in definitions(file.read_text("utf-8"))
    ]


def test_a_class_name_means_one_class() -> None:
    """Messages may share names with those of other protocols: their kinds name the protocol."""
    by_name = defaultdict(list)
    for one in public_classes():
        if not issubclass(one, Message):
            by_name[one.__name__].append(one.__module__)
    assert {name: where for name, where in by_name.items() if len(where) > 1}.keys() <= set(SHARED)


def test_a_message_kind_is_one_class() -> None:
    kinds = defaultdict(set)
    for one in public_classes():
        if issubclass(one, Message) and one.__module__ != Message.__module__:
            kinds[one.kind].add(one)
    assert [kind for kind, classes in kinds.items() if len(classes) > 1] == []
    assert all("." in kind for kind in kinds)


def test_every_public_class_says_what_it_is_for() -> None:
    silent = [
        f"{one.file}: {one.name}"
        for one in defined()
        if one.is_class and not one.name.startswith("_") and not one.documented
    ]
    assert silent == []


def test_modules_classes_and_tests_are_called_by_words_of_the_field() -> None:
    names = [one.__name__ for one in public_classes()]
    names += [file.stem for d in ("src", "tests") for file in (ROOT / d).rglob("*.py")]
    private = [
        name
        for name in names
        for word in re.sub("([a-z])([A-Z])", r"\1_\2", name).lower().split("_")
        if word in PRIVATE or word.removesuffix("s") in PRIVATE
    ]
    assert private == []


def test_functions_are_called_by_words_of_the_field() -> None:
    """Messages are sent and received. Of [Lehn] is the audience, of a result table the other."""
    private = {*PRIVATE, "hear", "heard", "said", "told"} - {"audience"}
    names = [
        one.name
        for one in defined()
        if not one.is_class
        if private & {part.removesuffix("s") for part in one.name.split("_")}
    ]
    assert set(names) <= {"heard_by_second"}


def test_papers_are_cited_by_key() -> None:
    """ "Seed" is the number from which random streams come, and nothing else."""
    cited = re.compile(r"seed 00[0-4]", re.IGNORECASE)
    files = [
        file
        for d in ("src", "tests", "docs", "benchmarks", "examples")
        for file in (ROOT / d).rglob("*")
        if file.suffix in (".py", ".md", ".html", ".js") and file != Path(__file__)
    ]
    assert [file.name for file in files if cited.search(file.read_text("utf-8"))] == []


def test_modules_that_the_architecture_names_are_there() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    for name in re.findall(r"`((?:[a-z_]+\.)+[a-z_]+)`", text):
        path = ROOT.joinpath("src", "nearcast", *name.split("."))
        function = path.parent.with_suffix(".py").exists()  # the last part is in that module
        assert path.is_dir() or path.with_suffix(".py").exists() or function, name


def test_no_word_is_twice_in_the_glossary() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    rows = re.findall(r"^\| (\*\*.*?) \|", glossary, re.MULTILINE)
    words = [word for row in rows for word in re.findall(r"\*\*(.*?)\*\*", row)]
    assert len(words) > 60
    assert [word for word in set(words) if words.count(word) > 1] == []
