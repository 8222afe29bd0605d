"""Settings: each goes to the part that knows it, and every mistake gets one clear sentence."""

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import fields

from nearcast.protocols import PROTOCOLS
from nearcast.scenario import Scenario, Setting, from_json, to_json
from nearcast.sim.settings import parameters_of
from nearcast.sim.world import SimulatedWorld, resolve
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import MemoryTrace
from nearcast.workloads import WORKLOADS

COMBINATIONS = [(protocol, workload) for protocol in PROTOCOLS for workload in WORKLOADS]
NEEDED: dict[str, dict[str, Setting]] = {
    "recorded": {"file": "somewhere.csv"},
    "replayed": {"trace": "somewhere"},
}


def scenario(
    settings: dict[str, Any] | None = None,
    protocol: str = "client-server",
    workload: str = "hotspots",
) -> Scenario:
    chosen = {**NEEDED.get(workload, {}), **(settings or {})}
    return Scenario(protocol=protocol, workload=workload, nodes=3, seconds=2.0, settings=chosen)


def refusal(wrong: Scenario) -> str:
    with pytest.raises(ValueError, match=r"\S") as caught:
        resolve(wrong)
    why = str(caught.value)
    assert "\n" not in why
    return why


# Names.


@pytest.mark.parametrize(("protocol", "workload"), COMBINATIONS)
def test_no_two_parts_have_a_setting_of_the_same_name(protocol: str, workload: str) -> None:
    parts = parameters_of(protocol, workload).values()
    names = Counter(field.name for part in parts for field in fields(part))
    assert [name for name, times in names.items() if times > 1] == []


@pytest.mark.parametrize(("protocol", "workload"), COMBINATIONS)
def test_every_default_is_filled_into_the_scenario(protocol: str, workload: str) -> None:
    parts = parameters_of(protocol, workload).values()
    resolved, _ = resolve(scenario({}, protocol, workload))
    defaults = {field.name: field.default for part in parts for field in fields(part)}
    assert resolved.settings == {**defaults, **NEEDED.get(workload, {})}


def test_an_unknown_setting_is_refused_with_the_nearest_known_one() -> None:
    why = refusal(scenario({"los": 0.1}))
    assert why == "no setting 'los' for client-server with hotspots; did you mean loss?"
    assert "did you mean jitter_ms?" in refusal(scenario({"jiter_ms": 5}))
    assert "did you mean hotspots?" in refusal(scenario({"hotspot": "cold"}))


def test_where_nothing_is_near_nothing_is_suggested() -> None:
    assert refusal(scenario({"qqqqq": 1})) == "no setting 'qqqqq' for client-server with hotspots"


def test_a_setting_of_another_workload_is_unknown_to_this_one() -> None:
    assert "speed" in resolve(scenario({"speed": 9.0}, workload="waypoint"))[0].settings
    assert refusal(scenario({"speed": 9.0})).startswith("no setting 'speed'")


def test_the_error_for_an_unknown_protocol_or_workload_names_what_there_is() -> None:
    why = refusal(scenario(protocol="telepathy"))
    assert why.startswith("no protocol 'telepathy'")
    assert all(name in why for name in PROTOCOLS)
    why = refusal(scenario(workload="dancing"))
    assert why.startswith("no workload 'dancing'")
    assert all(name in why for name in WORKLOADS)


# Values.


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"loss": "much"}, "loss must be float, not 'much'"),
        ({"loss": ""}, "loss must be float, not ''"),
        ({"loss": True}, "loss must be float, not True"),
        ({"dims": 2.5}, "dims must be int, not 2.5"),
        ({"dims": "two"}, "dims must be int, not 'two'"),
        ({"matcher": 5}, "matcher must be str, not 5"),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(settings: dict[str, Setting], says: str) -> None:
    assert refusal(scenario(settings)) == says


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("matcher", "guess"),
        ("memory_s", 0.0),
        ("memory_s", "inf"),
        ("memory_s", 1_000_001.0),
        ("hotspots", "tepid"),
        ("rate", -1.0),
        ("dims", 4),
        ("join_rate", -1.0),
        ("churn_by", "magic"),
        ("network", "pigeons"),
        ("loss", 1.5),
        ("loss", "nan"),
        ("crash", "2"),
        ("slow_ms", -1.0),
        ("sample_ms", -1.0),
        ("drain_s", "inf"),
        ("drain_s", 1_000_001.0),
        ("drain_s", -1.0),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name: str, value: Setting) -> None:
    why = refusal(scenario({name: value}))
    assert name in why
    assert str(value).strip("'") in why


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("loss", "0.02", 0.02),
        ("latency_ms", "50", 50.0),
        ("latency_ms", 70, 70.0),
        ("queue_ms", "1e3", 1000.0),
        ("dims", "3", 3),
        ("dims", 3.0, 3),
        ("flash_nodes", "12", 12),
        ("hotspots", "burning", "burning"),
    ],
)
def test_numbers_given_as_text_become_numbers_of_the_right_type(
    name: str, text: Setting, value: Setting
) -> None:
    got = resolve(scenario({name: text}))[0].settings[name]
    assert got == value
    assert type(got) is type(value)


def test_each_setting_reaches_its_part() -> None:
    chosen: dict[str, Setting] = {
        "matcher": "scan", "side_max": 40.0, "churn_rate": 1.0, "jitter_ms": 7.0, "crash": 0.25,
        "drain_s": 2.0,
    }  # fmt: skip
    _, parts = resolve(scenario(chosen))
    order = (
        parts.protocol, parts.workload, parts.churn, parts.network, parts.faults, parts.sampling
    )  # fmt: skip
    for (name, value), part in zip(chosen.items(), order, strict=True):
        assert getattr(part, name) == value


# The scenario as a value.


def test_a_scenario_that_is_complete_stays_as_it_is() -> None:
    resolved, parts = resolve(scenario({"loss": "0.02"}))
    assert resolve(resolved) == (resolved, parts)


def test_however_a_value_is_written_the_run_has_the_same_name() -> None:
    plain = resolve(scenario())[0].run
    for settings in ({"latency_ms": 50}, {"latency_ms": "50.0"}, {"latency_ms": 50.0, "loss": 0}):
        assert resolve(scenario(settings))[0].run == plain
    assert resolve(scenario({"latency_ms": 51}))[0].run != plain


def test_the_settings_that_were_typed_are_left_alone() -> None:
    typed: dict[str, Setting] = {"loss": "0.02"}
    asked = scenario(typed)
    resolve(asked)
    assert asked.settings == typed == {"loss": "0.02"}


@pytest.mark.parametrize("seconds", [2, 2.0, 0.5])
def test_a_scenario_read_back_names_the_same_run(seconds: float) -> None:
    asked = Scenario(protocol="client-server", workload="hotspots", nodes=3, seconds=seconds)
    resolved, _ = resolve(asked)
    again = from_json(to_json(resolved))
    assert again == resolved
    assert again.run == resolved.run


def test_a_world_gives_its_recorder_the_complete_scenario() -> None:
    scenarios: list[Scenario] = []

    def recorder(complete: Scenario) -> Recorder:
        scenarios.append(complete)
        return Recorder(MemoryTrace())

    world = SimulatedWorld(scenario({"matcher": "scan", "rate": "2"}), recorder)
    assert scenarios == [world.scenario]
    assert world.scenario == resolve(scenario({"matcher": "scan", "rate": 2.0}))[0]


def test_a_wrong_world_is_refused_before_anything_is_recorded() -> None:
    def recorder(complete: Scenario) -> Recorder:
        raise AssertionError(f"{complete} should never have been recorded")

    for wrong in ({"loss": 2.0}, {"flash_at": 50.0, "flash_nodes": 3}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            SimulatedWorld(scenario(wrong), recorder)


@pytest.mark.parametrize(
    ("name", "value"),
    [("sample_ms", 0.0004), ("reorder_ms", 0.0001), ("up_mbit", 1e-20), ("down_mbit", 0)],
)
def test_settings_too_small_to_mean_anything_are_refused(name: str, value: float) -> None:
    scenario = Scenario(
        protocol="client-server", workload="waypoint", nodes=3, seconds=1.0, settings={name: value}
    )
    with pytest.raises(ValueError, match=name):
        resolve(scenario)


@pytest.mark.parametrize("protocol", ["client-server", "psense"])
def test_a_lost_packet_takes_lossy_messages_with_it_and_makes_others_late(protocol: str) -> None:
    memory = MemoryTrace()
    world = SimulatedWorld(
        Scenario(
            protocol=protocol, workload="waypoint", nodes=5, seconds=1.0,
            settings={"packet_loss": 0.2, "latency_ms": 10.0},
        ),
        lambda _: Recorder(memory),
    )  # fmt: skip
    world.run()
    world.recorder.close()
    messages = memory.table("messages").to_pylist()
    took = {row["arrived"] - row["t"] for row in messages if not row["lost"]}
    assert any(row["lost"] for row in messages) == (protocol == "psense")
    assert (max(took) > 10_000) == (protocol == "client-server")
