"""Scenarios: the hash names the value, whoever computes it and in whatever order it was written."""

import os
import subprocess
import sys
from itertools import pairwise
from math import inf, nan
from typing import Any

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nearcast.scenario import RECORDS, SCHEMA, Scenario, Setting, from_json, stream, to_json
from support.examples import examples

NAMES = st.text(st.characters(codec="utf-8"), max_size=12)
SETTINGS = st.dictionaries(
    NAMES,
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | NAMES,
    max_size=5,
)
# How to draw each field: a field that is new to Scenario must be named here.
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "protocol": NAMES,
    "workload": NAMES,
    "nodes": st.integers(1, 2_000_000),
    "seconds": st.floats(0, 1e7, exclude_min=True),
    "seed": st.integers(-(2**63), 2**63 - 1),
    "record": st.sampled_from(RECORDS),
    "settings": SETTINGS,
}
SCENARIOS = st.builds(Scenario, **FIELDS)
PLAIN = Scenario(protocol="client-server", workload="hotspots", nodes=10, seconds=60.0)


def test_every_field_is_tested() -> None:
    assert {field.name for field in msgspec.structs.fields(Scenario)} == {*FIELDS, "schema"}


# The value and its name.


@examples(40)
@given(SCENARIOS)
def test_a_scenario_survives_json_and_keeps_its_name(scenario: Scenario) -> None:
    text = to_json(scenario)
    again = from_json(text)
    assert again == scenario
    assert to_json(again) == text
    assert again.run == scenario.run
    assert len(scenario.run) == 16
    assert set(scenario.run) <= set("0123456789abcdef")


@pytest.mark.parametrize("field", FIELDS)
@examples(12)
@given(scenario=SCENARIOS, drawn=st.data())
def test_any_other_value_of_any_field_is_another_run(
    field: str, scenario: Scenario, drawn: st.DataObject
) -> None:
    value = drawn.draw(FIELDS[field])
    assume(value != getattr(scenario, field))
    assert msgspec.structs.replace(scenario, **{field: value}).run != scenario.run


@pytest.mark.parametrize(
    ("one", "other"), [(True, "true"), (1, "1"), (1.5, "1.5"), (0.1, 0.1 + 2**-56), (0, False)]
)
def test_settings_that_look_alike_are_different_runs(one: Any, other: Any) -> None:
    runs = {msgspec.structs.replace(PLAIN, settings={"loss": v}).run for v in (one, other)}
    assert len(runs) == 2


def test_seconds_given_as_a_whole_number_name_the_same_run() -> None:
    whole, broken = (msgspec.structs.replace(PLAIN, seconds=s) for s in (60, 60.0))
    assert whole == broken
    assert whole.run == broken.run == from_json(to_json(whole)).run


@examples(40)
@given(SCENARIOS, st.randoms(use_true_random=False))
def test_the_order_of_keys_means_nothing(scenario: Scenario, rng: Any) -> None:
    fields = msgspec.to_builtins(scenario)
    fields["settings"] = dict(shuffled(fields["settings"].items(), rng))
    reordered = from_json(msgspec.json.encode(dict(shuffled(fields.items(), rng))))
    assert reordered == scenario
    assert reordered.run == scenario.run


def shuffled(items: Any, rng: Any) -> list[Any]:
    result = list(items)
    rng.shuffle(result)
    return result


ELSEWHERE = """
from nearcast.scenario import Scenario, stream
settings = {"loss": 0.02, "matcher": "grid", "dims": 3, "relays": True}
print(Scenario(protocol="p", workload="wörk", nodes=7, seconds=1.5, settings=settings).run)
print(stream(7, "node", 12).random(), stream(7, "faults").getrandbits(64))
"""


def test_names_and_streams_are_the_same_in_every_process() -> None:
    """Python salts its own hashes anew for each process; ours must not show it."""
    choices: dict[str, Setting] = {"relays": True, "dims": 3, "matcher": "grid", "loss": 0.02}
    here = Scenario(protocol="p", workload="wörk", nodes=7, seconds=1.5, settings=choices).run
    draws = f"{stream(7, 'node', 12).random()} {stream(7, 'faults').getrandbits(64)}"
    for salt in ("1", "2"):
        said = subprocess.run(
            [sys.executable, "-c", ELSEWHERE],
            env={**os.environ, "PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert said.split("\n")[:2] == [here, draws]


# Bounds.


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("nodes", 0, "nodes must be between 1 and 2,000,000, not 0"),
        ("nodes", -1, "nodes must be between 1 and 2,000,000, not -1"),
        ("nodes", 2_000_001, "nodes must be between 1 and 2,000,000, not 2000001"),
        ("seconds", 0.0, "seconds must be above 0 and at most 10,000,000, not 0.0"),
        ("seconds", -1.0, "seconds must be above 0 and at most 10,000,000, not -1.0"),
        ("seconds", 1e7 + 1, "seconds must be above 0 and at most 10,000,000, not 10000001.0"),
        ("record", "some", "record must be one of all, sampled, sums, brief, none, not 'some'"),
        ("schema", SCHEMA + 1, f"this scenario has schema {SCHEMA + 1}; we read {SCHEMA}"),
        ("schema", 0, f"this scenario has schema 0; we read {SCHEMA}"),
    ],
)
def test_an_invalid_scenario_is_refused_in_one_sentence_in_code_and_from_json(
    field: str, value: Any, sentence: str
) -> None:
    with pytest.raises(ValueError) as at_home:
        msgspec.structs.replace(PLAIN, **{field: value})
    assert str(at_home.value) == sentence
    with pytest.raises(ValueError) as from_file:
        from_json(msgspec.json.encode({**msgspec.to_builtins(PLAIN), field: value}))
    assert str(from_file.value) == sentence


@pytest.mark.parametrize("seconds", [nan, inf, -inf])
def test_a_run_takes_a_finite_time(seconds: float) -> None:
    with pytest.raises(ValueError, match=r"^seconds must be above 0 and at most 10,000,000, not "):
        msgspec.structs.replace(PLAIN, seconds=seconds)


@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_a_setting_is_a_number_that_json_can_write(value: float) -> None:
    with pytest.raises(ValueError) as refusal:
        msgspec.structs.replace(PLAIN, settings={"loss": 0.1, "rate": value})
    assert str(refusal.value) == f"rate must be a finite number, not {value}"


@pytest.mark.parametrize(
    ("field", "value"),
    [("nodes", 1), ("nodes", 2_000_000), ("seconds", 5e-324), ("seconds", 1e7)],
)
def test_the_bounds_themselves_are_allowed(field: str, value: Any) -> None:
    edge = msgspec.structs.replace(PLAIN, **{field: value})
    assert from_json(to_json(edge)) == edge


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b'{"protocol": "p"',
        b'{"protocol": "p", "workload": "w", "nodes": 1}',
        b'{"protocol": "p", "workload": "w", "nodes": 1.5, "seconds": 1}',
        b'{"protocol": "p", "workload": "w", "nodes": "1", "seconds": 1}',
        b'{"protocol": "p", "workload": "w", "nodes": 1, "seconds": 1, "sead": 3}',
        b'{"protocol": "p", "workload": "w", "nodes": 1, "seconds": 1, "settings": {"a": 1e999}}',
        b'{"protocol": "p", "workload": "w", "nodes": 1, "seconds": 1, "settings": {"a": NaN}}',
        b'{"protocol": 5, "workload": "w", "nodes": 1, "seconds": 1}',
        b'{"protocol": "p", "workload": "w", "nodes": 1, "seconds": null}',
        b'{"protocol": "p", "workload": "w", "nodes": 1, "seconds": 1, "settings": {"a": [1]}}',
        b'{"protocol": "p", "workload": "w", "nodes": 1, "seconds": 1, "settings": {"a": null}}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_what_is_no_scenario_is_refused_with_one_line(text: bytes) -> None:
    with pytest.raises((ValueError, RecursionError), match=r"^[^\n]+$"):
        from_json(text)


# Random streams.


@examples(40)
@given(st.integers(), st.lists(NAMES | st.integers(0, 9), max_size=3), st.integers(0, 50))
def test_a_stream_is_its_name_and_nothing_else(
    seed: int, purpose: list[str | int], drawn_before: int
) -> None:
    first = stream(seed, *purpose)
    expected = [first.random() for _ in range(3)]
    busy = stream(seed, *purpose, "other")
    for _ in range(drawn_before):
        busy.random()
    again = stream(seed, *purpose)
    assert [again.random() for _ in range(3)] == expected


def test_streams_of_different_names_have_nothing_in_common() -> None:
    names: list[tuple[Any, ...]] = [
        (seed, purpose, *rest)
        for seed in range(-2, 12)
        for purpose in ("node", "nodes", "faults", "life", "", "node/1", "node, 1", "node', '1")
        for rest in ((), (0,), (1,), (11,), (1, 1), (12, 3), (1, 23), ("1",), ("1", "1"), ("1/1",))
    ]
    assert len(names) == len(set(names))
    draws = [stream(*name).getrandbits(64) for name in names]
    assert len(set(draws)) == len(names)


def test_the_streams_of_neighbouring_nodes_are_as_good_as_independent() -> None:
    """First draws of a thousand nodes: spread evenly, and each tells nothing of the next."""
    draws = [stream(1, "node", node, 0).random() - 0.5 for node in range(1000)]
    assert abs(sum(draws) / 1000) < 0.03
    neighbours = [a * b for a, b in pairwise(draws)]
    assert abs(sum(neighbours) / 999) < 0.01
