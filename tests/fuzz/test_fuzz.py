"""Every parser of bytes from outside withstands its corpus, and some damage to it."""

from random import Random

import pytest

from fuzz.mutations import mutations
from fuzz.targets import CORPUS, TARGETS, corpus

SLOW = {"trace": 60}  # files are written and read for each
COUNT = 250


def test_each_target_has_a_corpus_and_each_corpus_a_target() -> None:
    assert sorted(folder.name for folder in CORPUS.iterdir()) == sorted(TARGETS)
    assert all(corpus(name) for name in TARGETS)


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus_and_damage_to_it(name: str) -> None:
    """Always the same inputs; `python -m tests.fuzz` looks for others."""
    seeds = corpus(name)
    for data in (*seeds, *mutations(seeds, SLOW.get(name, COUNT), Random(name))):
        try:
            TARGETS[name](data)
        except Exception as why:
            raise AssertionError(f"{name} fails on {data!r}") from why
