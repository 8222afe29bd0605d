"""Bots that are peers: the workload's own game, and external ships in it."""

import asyncio
import json
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from nearcast.client_protocol import messages
from nearcast.demo.peer_bots import BotSettings, PeerBots
from nearcast.demo.planetpi4_live import (
    GONE,
    KEPT,
    MAX_EXTERNAL_SHIPS,
    NO_TEAM,
    SILENT,
    ExternalShips,
    LiveGameLog,
    apply_damage,
)
from nearcast.demo.ship_control import ShipControl
from nearcast.model.publication import Publication
from nearcast.peer.host import run
from nearcast.peer.peer import PeerOptions
from nearcast.scenario import Setting, stream
from nearcast.space.motion import SECOND
from nearcast.space.shapes import point
from nearcast.trace.validate import validate
from nearcast.workloads.planetpi4_log import GameLog
from nearcast.workloads.planetpi4_reckoning import UPDATE, ShipUpdate, pack
from nearcast.workloads.planetpi4_rules import SHIELD, TICK, Rules
from support.fork_server import fork_server
from support.patience import PATIENCE_S
from support.peer_bots import awareness_of

RULES = Rules(8, 2, 300.0, 150.0, 40.0, 2.5, 10, 2, 10)
STILL = (0.0, 0.0, 0.0)


def a_game_log(kind: type[GameLog], rules: Rules = RULES) -> Any:
    return kind(rules, stream(3, "landscape"), stream(3, "game"))


def at(x: float, y: float = 150.0, z: float = 150.0, velocity: Any = STILL) -> ShipUpdate:
    return ShipUpdate((x, y, z), STILL, velocity, STILL)


def test_without_external_ships_the_game_is_the_workloads_own_and_old_ticks_are_dropped() -> None:
    log, game_log = a_game_log(GameLog), a_game_log(LiveGameLog)
    for tick in range(400):
        for ship in range(RULES.ships):
            t = tick * TICK
            assert game_log.flight(ship, t) == log.flight(ship, t)
            assert game_log.events(ship, t) == log.events(ship, t)
            assert game_log.is_alive(ship, t) == log.is_alive(ship, t)
    kept = sum(len(flights) > 0 for flights in game_log._flights)
    assert kept == KEPT
    oldest = (400 - KEPT) * TICK
    assert game_log.flight(0, oldest - TICK) == game_log.flight(0, 0) == log.flight(0, oldest)
    assert game_log.is_alive(0, 0) == log.is_alive(0, oldest)
    assert game_log.events(0, 0) == []


def test_bots_hunt_an_external_ship_and_do_not_apply_their_hits_to_it() -> None:
    game_log = a_game_log(LiveGameLog, replace(RULES, teams=1))  # nobody else to fight with
    external_ships = game_log.external_ships = ExternalShips(game_log.game, lambda _: NO_TEAM)
    external_ships.update(77, at(150.0))
    slot = external_ships.slots[77]
    hits = 0
    for tick in range(1, 300):
        external_ships.update(77, at(150.0))
        game_log.flight(0, tick * TICK)
        assert game_log.game.alive[slot] and game_log.game.shield[slot] > 0
        events = [event for events in game_log.game.events.values() for event in events]
        hits += sum(event.other == slot and event.damage > 0 for event in events)
    assert hits > 5


def test_an_external_ship_flies_on_until_its_next_update_and_is_removed_without_one() -> None:
    game_log = a_game_log(LiveGameLog)
    game = game_log.game
    external_ships = game_log.external_ships = ExternalShips(game, lambda name: name % 2)
    external_ships.update(5, at(100.0, velocity=(20.0, 0.0, 0.0)))
    slot = external_ships.slots[5]
    assert game.team[slot] == 1
    for tick in range(1, 6):
        game_log.flight(0, tick * TICK)
    assert np.allclose(game.place[slot], (110.0, 150.0, 150.0))
    game_log.flight(0, (6 + SILENT) * TICK)
    external_ships.remove_silent()
    assert game.back_at[slot] == GONE and not game.alive[slot]
    external_ships.update(6, at(20.0))
    assert external_ships.slots == {6: slot}, "the slot of a ship that has left is used again"


def test_impossible_states_are_ignored_and_external_ships_are_bounded() -> None:
    external_ships = ExternalShips(a_game_log(LiveGameLog).game, lambda _: NO_TEAM)
    for wrong in (at(float("nan")), at(float("inf")), at(1.0, velocity=(1e9, 0.0, 0.0))):
        external_ships.update(9, wrong)
    assert external_ships.slots == {}
    for name in range(MAX_EXTERNAL_SHIPS + 20):
        external_ships.update(name, at(1.0))
    assert len(external_ships.slots) == MAX_EXTERNAL_SHIPS


@pytest.mark.parametrize(
    ("damage", "left"), [(30.0, 70.0), (1e9, 100.0), (-5.0, 100.0), (float("nan"), 100.0)]
)
def test_damage_is_applied_within_bounds(damage: float, left: float) -> None:
    game = a_game_log(LiveGameLog).game
    apply_damage(game, 2, damage)
    assert game.shield[2] == left
    apply_damage(game, 2, SHIELD)
    assert game.shield[2] == max(0.0, left - SHIELD)


def test_a_pages_update_has_the_encoding_of_every_ship() -> None:
    said: list[messages.Notice] = []
    control = ShipControl(said.append)
    numbers = [float(number) for number in range(12)]
    packed = control.packed(msgspec.Raw(msgspec.json.encode(numbers)))
    assert packed == UPDATE.pack(*numbers)
    assert json.loads(bytes(control.opened(packed))) == numbers
    assert (
        control.opened(b"short") == messages.NO_PAYLOAD
        and control.packed(messages.NO_PAYLOAD) == b""
    )
    for wrong in ("[1, 2]", '"x"', "[1e99, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]"):
        with pytest.raises(ValueError, match="twelve numbers"):
            control.packed(msgspec.Raw(wrong.encode()))


def test_bot_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="bots must be between"):
        BotSettings(bots=0)
    with pytest.raises(ValueError, match="no workload 'golf'"):
        BotSettings(bots=1, workload="golf")
    with pytest.raises(ValueError, match="speed must be"):
        BotSettings(bots=1).split({"speed": -1})
    workload, rest = BotSettings(bots=3).split({"speed": "50", "lambda": "2"})
    assert workload.entities == 3 and rest == {"lambda": "2"}


def test_bots_of_a_game_in_3d_begin_an_overlay_in_its_3d_form() -> None:
    def begun(options: PeerOptions, **bot_settings: Any) -> dict[str, Setting]:
        return PeerBots(options, BotSettings(bots=2, **bot_settings)).options.settings

    assert begun(PeerOptions(overlay="psense")) == {"dimensions": 3}
    assert begun(PeerOptions(overlay="drtree", settings={"most": 9})) == {
        "dimensions": "x,y,z", "most": 9,
    }  # fmt: skip
    assert begun(PeerOptions(overlay="von")) == {}
    assert begun(PeerOptions(overlay="psense", settings={"dimensions": 2})) == {"dimensions": 2}
    assert begun(PeerOptions(overlay="psense"), workload="waypoint") == {}
    spatial = PeerOptions(overlay="psense", settings={"dims": 3})
    assert begun(spatial, workload="waypoint") == {"dimensions": 3}
    assert begun(PeerOptions(overlay="psense", join=("127.0.0.1", 9))) == {}


def test_bots_in_3d_say_that_the_overlay_that_they_join_is_flat() -> None:
    async def story() -> None:
        flat = {"dimensions": 2, "round_ms": 100.0, "asteroids": 0}
        one, two = (BotSettings(bots=1, seed=seed) for seed in (1, 2))
        first = PeerBots(PeerOptions(overlay="psense", settings=flat), one)
        said: list[str] = []
        where = await first.start_peers(said.append)
        second = PeerBots(PeerOptions(join=where), two)
        await second.start_peers(said.append)
        assert [text for text in said if "3-D" in text] == [
            "the game is in 3-D, but this overlay of psense sends by x and y alone:"
            " it should begin with --set dimensions=3"
        ] * 2
        await second.stop()
        await first.stop()

    run(story())


@pytest.mark.parametrize(
    ("overlay", "settings"),
    [
        ("psense", {"round_ms": 100.0, "limit": 100_000}),
        ("vso", {"matcher": "scan", "world": 200.0}),
    ],
)
def test_a_person_and_bots_meet_as_peers_and_hit_each_other(
    overlay: str, settings: dict[str, Any]
) -> None:
    async def story() -> None:
        game = {"size": 200.0, "asteroids": 0, "zones": 0, "teams": 1}
        peer_bots = PeerBots(
            PeerOptions(overlay=overlay, settings={**settings, **game}), BotSettings(bots=3)
        )
        await peer_bots.start_peers(lambda _: None)
        playing = asyncio.create_task(peer_bots.play())
        said: list[Any] = []
        control = ShipControl(said.append)
        me = await peer_bots.add_person(control, NO_TEAM)
        name, area = me.node.id, {"x": 100, "y": 100, "z": 100, "r": 300}

        def ask(**request: Any) -> None:
            control.obey(peer_bots.host, name, json.dumps(request).encode())

        ask(do="subscribe", subscription=1, area=area)
        ask(do="subscribe", subscription=2, area=area, channel=f"ship {name}")
        bot = peer_bots.bots[0].member.node.id
        hit = {"hit": "beam", "damage": 1.0}
        assert peer_bots.game_log is not None and peer_bots.external_ships is not None

        def payloads_on(channel: str) -> list[Any]:
            return [
                m for m in said if isinstance(m, messages.MessageNotice) and m.channel == channel
            ]

        async with asyncio.timeout(PATIENCE_S):
            while not (
                payloads_on("")
                and payloads_on(f"ship {name}")
                and name in peer_bots.external_ships.slots
                and peer_bots.game_log.game.shield[0] % 1
                == 0
                < SHIELD - peer_bots.game_log.game.shield[0]
            ):
                ask(do="publish", x=100, y=100, z=100, payload=[100.0] * 3 + [0.0] * 9)
                ask(do="publish", x=100, y=100, z=100, channel=f"ship {bot}", attributes=hit)
                await asyncio.sleep(0.1)
        update = json.loads(bytes(payloads_on("")[0].payload))
        assert len(update) == 12 and payloads_on("")[0].source in peer_bots.ships
        hit_update = payloads_on(f"ship {name}")[0]
        assert hit_update.attributes["damage"] > 0 and hit_update.source in peer_bots.ships
        assert not any(m.attributes for m in said if isinstance(m, messages.ErrorNotice))
        peer_bots.remove_person(me)
        await asyncio.wait_for(peer_bots.host.stopped(name), PATIENCE_S)
        playing.cancel()
        await peer_bots.stop()

    run(story())


def test_a_few_bots_know_of_each_other_and_leave_a_sound_trace(
    spark: SparkSession, tmp_path: Path
) -> None:
    """8 peers for 12 seconds, started as a person starts them.

    The soak compares how accurate they are with a simulation; in so short a time chance decides
    (0.76 to 0.82 in eight runs, 0.75 simulated), and how busy the machine is.
    """
    settings = {"gossip_s": 1.0, "size": 400.0, "rate": 4.0, "lambda": 2.0}
    options = [word for item in settings.items() for word in ("--set", "{}={}".format(*item))]
    command = [fork_server(), "peer", "--overlay", "bubblestorm", "--json"]
    command += ["--bots", "8", "--seconds", "12", "--trace", str(tmp_path / "live"), *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode == 0, ended.stderr
    where, *_, last = map(json.loads, ended.stdout.splitlines())
    assert where["join"].startswith("127.0.0.1:") and last["peers"] == 8
    report = validate(tmp_path / "live")
    assert report.finished and not report.problems
    (knew,) = awareness_of(spark, [tmp_path / "live"])
    assert knew["nodes"] == 8
    assert knew["accuracy"] > 0


def test_payloads_that_are_no_ship_state_are_ignored() -> None:
    """Publications with another payload, or without, move no external ship."""
    peer_bots = PeerBots(PeerOptions(overlay="psense"), BotSettings(bots=1))
    peer_bots.ships = {1: 0}
    peer_bots.game_log = a_game_log(LiveGameLog)
    peer_bots.external_ships = ExternalShips(peer_bots.game_log.game, lambda _: NO_TEAM)
    rng = Random(4)

    for number, payload in enumerate([b"", b"hello", rng.randbytes(47), rng.randbytes(49)]):
        peer_bots._deliver(1, Publication(number, 9, SECOND, point(1, 1), payload=payload), ())
    assert peer_bots.external_ships.slots == {}
    peer_bots._deliver(1, Publication(9, 9, SECOND, point(1, 1), payload=pack(at(1.0))), ())
    assert 9 in peer_bots.external_ships.slots
