"""What every workload promises, whatever its parameters (the contract of workloads/workload.py)."""

import subprocess
import sys
from itertools import islice, takewhile
from math import dist
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.model.commands import Move, Publish, Subscribe
from nearcast.model.subscription import Subscription
from nearcast.space.motion import SECOND, Time
from nearcast.workloads import WORKLOADS
from nearcast.workloads.workload import NUMBERS, Scheduled, Workload, first_id
from support.examples import examples

EXAMPLES = examples(20)

RECORDING = """t,entity,x,y,z
0,a,0,0,5
0.5,b,10,10,5
1,a,4,3,5
1.25,b,10,10,5
2,a,4,9,5
2,b,12,14,6
3.5,a,0,0,0
4,b,11,11,5
"""


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> str:
    file: Path = tmp_path_factory.mktemp("recorded") / "two.csv"
    file.write_text(RECORDING)
    return str(file)


walkers = st.fixed_dictionaries(
    {
        "dims": st.sampled_from((2, 3)),
        "size": st.floats(1, 1e6),
        "rate": st.floats(0.1, 50),
        "motion": st.sampled_from(("line", "steps", "path")),
        "legs": st.integers(1, 6),
        "payload": st.integers(0, 100),
    }
).flatmap(
    lambda chosen: st.fixed_dictionaries(
        {
            **{name: st.just(value) for name, value in chosen.items()},
            "speed": st.floats(1e-3, 100 * chosen["size"]),
            "radius": st.floats(0, chosen["size"]),
        }
    )
)
residents = st.fixed_dictionaries(
    {
        "dims": st.sampled_from((2, 3)),
        "hotspots": st.sampled_from(("cold", "warm", "hot", "burning")),
        "spread": st.floats(0, 200),
        "side_min": st.floats(0, 20),
        "side_max": st.floats(20, 100),
        "rate": st.floats(0.1, 50),
        "payload": st.integers(0, 100),
    }
)


recordings = st.fixed_dictionaries(
    {
        "radius": st.floats(0, 10),
        "faster": st.floats(0.5, 1000),
        "motion": st.sampled_from(("steps", "line")),
    }
)
players = st.fixed_dictionaries(
    {
        "size": st.floats(10, 1e4),
        "scale": st.floats(0, 20),
        "stride": st.floats(1, 1e4),
        "speed": st.floats(0.01, 100),
        "follow": st.sampled_from((0.0, 0.5, 1.0)),
        "rate": st.floats(0.1, 50),
        "payload": st.integers(0, 100),
    }
)
# Traders have several interests, said anew rather than moved: they keep promises of their own.
SETTINGS = {
    "mammoth": players,
    "hotspots": residents,
    "waypoint": st.tuples(walkers, st.sampled_from((0.0, 0.1, 5.0))).map(
        lambda drawn: {**drawn[0], "pause": drawn[1]}
    ),
    "clustering": walkers,
    "recorded": recordings,
}


@st.composite
def made(draw: st.DrawFn, file: str) -> tuple[Workload, str]:
    """A workload, and how its regions follow their owners."""
    name = draw(st.sampled_from(sorted(SETTINGS)))
    chosen = draw(SETTINGS[name])
    entities = draw(st.integers(1, 50))
    if name == "recorded":
        chosen, entities = {**chosen, "file": file}, 0
    kind = WORKLOADS[name]
    workload = kind.make(kind.parameters(**chosen), entities, 60.0, draw(st.integers(0, 5)))
    return workload, chosen.get("motion", "none")


def some(workload: Workload, entity: int, stay: int, begins: Time) -> list[Scheduled]:
    return list(islice(workload.life(entity, stay, begins).commands(), 120))


lives = st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(0, 3 * SECOND))


@EXAMPLES
@given(data=st.data(), life=lives)
def test_commands_come_in_order_and_interests_before_publications(
    data: st.DataObject, life: tuple[int, int, Time], recording: str
) -> None:
    workload, _ = data.draw(made(recording))
    commands = some(workload, *life)
    kinds = [(t, isinstance(command, Publish)) for t, command in commands]
    assert kinds == sorted(kinds)
    assert isinstance(commands[0][1], Subscribe)
    assert all(isinstance(command, Move | Publish) for _, command in commands[1:])
    assert commands[0][0] >= life[2]


@EXAMPLES
@given(data=st.data(), life=lives)
def test_no_two_interests_of_an_entity_share_a_moment(
    data: st.DataObject, life: tuple[int, int, Time], recording: str
) -> None:
    workload, _ = data.draw(made(recording))
    moments: list[Time] = []
    for t, command in some(workload, *life):
        if not isinstance(command, Publish):
            legs = getattr(command.region.stamped(t), "legs", None)
            moments += [leg.since for leg in legs] if legs else [t]
    assert moments == sorted(set(moments))


@EXAMPLES
@given(data=st.data(), life=lives)
def test_identifiers_are_fresh_and_stay_in_the_range_of_the_stay(
    data: st.DataObject, life: tuple[int, int, Time], recording: str
) -> None:
    entity, stay, _ = life
    commands = [command for _, command in some(data.draw(made(recording))[0], *life)]
    publications = [c.publication for c in commands if isinstance(c, Publish)]
    subscriptions = {c.subscription for c in commands if not isinstance(c, Publish)}
    assert len(subscriptions) == 1
    assert publications == sorted(set(publications))
    assert not subscriptions & set(publications)
    low = first_id(entity, stay)
    assert all(low <= number < low + NUMBERS for number in (*publications, *subscriptions))


@EXAMPLES
@given(data=st.data(), life=lives)
def test_a_script_does_not_depend_on_those_played_before(
    data: st.DataObject, life: tuple[int, int, Time], recording: str
) -> None:
    workload, _ = data.draw(made(recording))
    alone = some(workload, *life)
    lived = workload.life(*life)
    for t in range(0, 10 * SECOND, SECOND):
        lived.position(life[2] + t)
    some(workload, 1 - life[0], 0, 0)
    assert list(islice(lived.commands(), 120)) == alone
    assert some(workload, *life) == alone


@EXAMPLES
@given(data=st.data(), life=lives)
def test_the_true_position_is_the_centre_of_the_region(
    data: st.DataObject, life: tuple[int, int, Time], recording: str
) -> None:
    """At all times if the region moves by itself, otherwise whenever the entity publishes."""
    workload, motion = data.draw(made(recording))
    entity, stay, begins = life
    lived = workload.life(entity, stay, begins)
    tolerance = 1e-6
    subscription: Subscription | None = None
    before = begins
    for t, command in some(workload, *life):
        if subscription and motion != "steps":
            between = (before + t) // 2
            here = subscription.region.at(between)
            assert dist(lived.position(between), (here.x, here.y, here.z)) <= tolerance
        before = t
        if isinstance(command, Subscribe):
            subscription = command.stamped(entity, t)
        elif isinstance(command, Move):
            assert subscription is not None
            subscription = subscription.moved(command.region, t)
        else:
            assert subscription is not None
            here = subscription.region.at(t)
            assert dist(lived.position(t), (here.x, here.y, here.z)) <= tolerance


SMALL = {name: WORKLOADS[name].parameters for name in ("hotspots", "waypoint", "clustering")}


def opening(name: str, entity: int, stay: int, seed: int, begins: Time = 0) -> list[Scheduled]:
    workload = WORKLOADS[name].make(SMALL[name](), 20, 60.0, seed)
    return some(workload, entity, stay, begins)


@pytest.mark.parametrize("name", SMALL)
def test_equal_seeds_give_equal_scripts_and_all_others_differ(name: str) -> None:
    lives = [opening(name, *life) for life in ((3, 0, 1), (4, 0, 1), (3, 1, 1), (3, 0, 2))]
    assert lives[0] == opening(name, 3, 0, 1)
    # Not by their identifiers alone: each is somewhere else, and speaks at other moments.
    assert len({str(commands[0][1].region) for commands in lives}) == 4
    publications = [tuple(t for t, c in commands if isinstance(c, Publish)) for commands in lives]
    assert len(set(publications)) == 4


@pytest.mark.parametrize("name", SMALL)
def test_a_later_beginning_shifts_the_whole_script(name: str) -> None:
    shifted = opening(name, 3, 0, 1, begins=7 * SECOND)
    assert shifted == [(t + 7 * SECOND, command) for t, command in opening(name, 3, 0, 1)]


@pytest.mark.parametrize("name", SMALL)
def test_entities_beyond_the_first_ones_have_scripts_too(name: str) -> None:
    commands = opening(name, 5000, 0, 1)
    assert len(commands) == 120
    assert commands[0][1].subscription == first_id(5000, 0)


@pytest.mark.parametrize("name", SMALL)
def test_publications_come_at_the_rate_and_size_that_were_set(name: str) -> None:
    kind = WORKLOADS[name]
    workload = kind.make(kind.parameters(rate=8.0, payload=5), 3, 60.0, 1)
    commands = workload.life(0, 0, 0).commands()
    minute = list(takewhile(lambda scheduled: scheduled[0] <= 60 * SECOND, commands))
    published = [command for _, command in minute if isinstance(command, Publish)]
    assert len(published) == 480
    assert all(c.payload == bytes(5) and c.attributes == {} for c in published)


@pytest.mark.parametrize("name", SMALL)
def test_a_run_with_more_publications_than_identifiers_is_refused(name: str) -> None:
    kind = WORKLOADS[name]
    with pytest.raises(ValueError, match="lower the rate"):
        kind.make(kind.parameters(rate=100.0), 3, 1e6, 1)


BAD = [
    ("hotspots", {"dims": 4}, "dims must be one of 2, 3, not 4"),
    (
        "hotspots",
        {"hotspots": "lukewarm"},
        "one of cold, warm, hot, burning, not 'lukewarm'",
    ),
    ("hotspots", {"side_min": 60.0}, "side_min .* above side_max"),
    ("hotspots", {"side_max": 2000.0}, "side_max must be between"),
    ("hotspots", {"spread": -1.0}, "spread must be between"),
    ("hotspots", {"size": 0.0}, "size must be between"),
    ("hotspots", {"rate": 0.0}, "rate must be between"),
    ("hotspots", {"payload": -1}, "payload must be between"),
    ("waypoint", {"pause": -1.0}, "pause must be between"),
    ("waypoint", {"speed": 0.0}, "speed must be between"),
    ("waypoint", {"speed": 1e9}, "speed must be between"),
    ("waypoint", {"radius": float("nan")}, "radius must be between"),
    ("waypoint", {"motion": "hop"}, "motion must be one of line, steps, path, not 'hop'"),
    ("clustering", {"legs": 0}, "legs must be between"),
    ("clustering", {"rate": float("inf")}, "rate must be between"),
    ("clustering", {"dims": 1}, "dims must be one of 2, 3"),
    ("recorded", {}, "needs its file"),
    ("recorded", {"file": "a.csv", "faster": 0.0}, "faster must be between"),
    ("recorded", {"file": "a.csv", "motion": "path"}, "motion must be one of steps, line"),
]


@pytest.mark.parametrize(("name", "chosen", "words"), BAD)
def test_invalid_parameters_are_refused(name: str, chosen: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        WORKLOADS[name].parameters(**chosen)


def test_the_register_loads_neither_arrow_nor_numpy() -> None:
    program = "import sys, nearcast.workloads as w; print(sorted(w.WORKLOADS)); " + (
        "sys.exit('pyarrow' in sys.modules or 'numpy' in sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == (
        "['clustering', 'hotspots', 'interest-graph', 'mammoth', 'notifications', 'planetpi4', "
        "'recorded', 'replayed', 'trading', 'virtual-reality', 'waypoint']"
    )


def test_scripts_do_not_depend_on_the_hash_seed() -> None:
    program = (
        "from itertools import islice\n"
        "from nearcast.workloads import WORKLOADS, churn\n"
        "for name in ('hotspots', 'waypoint', 'clustering', 'mammoth', 'trading'):\n"
        "    kind = WORKLOADS[name]\n"
        "    life = kind.make(kind.parameters(), 50, 60.0, 1).life(3, 0, 0)\n"
        "    print(list(islice(life.commands(), 50)))\n"
        "chosen = churn.Parameters(churn_rate=5.0, crash_at=3.0, crash_share=0.5)\n"
        "print(list(churn.population(chosen, 20, 10.0, 1)))\n"
    )
    received = [
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert received[0] == received[1]
    assert len(received[0]) > 10_000
