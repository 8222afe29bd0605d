"""A trace played back, against its rows read one by one."""

from pathlib import Path
from random import Random

import pytest

from nearcast.errors import TraceError
from nearcast.model.publication import Publication
from nearcast.model.subscription import Subscription
from nearcast.monitor import replay as module
from nearcast.monitor.replay import TraceReplay
from nearcast.space.earth import lon_lat
from nearcast.space.earth_shapes import earth_bounds, earth_disc, great_circle_line
from nearcast.space.motion import SECOND, Moving
from nearcast.space.motion import Path as MotionPath
from nearcast.space.outlines import POLYGON, Outline, pack
from nearcast.space.shapes import EVERYWHERE, Shape, ShapeKind, ball, box, point
from nearcast.trace.recorder import Recorder
from nearcast.trace.sinks import TraceFolder
from support.snapshot_reader import read, read_all, same

NODES = 12
SECONDS = 20


class Life:
    """What was recorded, as plain lists."""

    def __init__(self) -> None:
        self.interests: list[tuple[int, int, Moving | None]] = []  # t, node; None: it ended
        self.publications: dict[int, Publication] = {}
        self.deliveries: list[tuple[int, int, int]] = []  # t, node, publication
        self.positions: list[tuple[int, int, float, float]] = []

    def in_force(self, t: int) -> dict[int, Moving]:
        state: dict[int, Moving] = {}
        for at, node, region in self.interests:
            if at > t:
                break
            state.pop(node, None)
            if region is not None:
                state[node] = region
        return state


def a_shape(rng: Random) -> Shape:
    x, y = rng.uniform(0, 100), rng.uniform(0, 100)
    return rng.choice([ball(x, y, 0.0, 7.0), box(x, y, 6.0, 4.0), point(x, y), EVERYWHERE])


def a_move(rng: Random, t: int) -> Moving:
    shape = a_shape(rng)
    velocity = (rng.uniform(-5, 5), rng.uniform(-5, 5), 0.0) if rng.random() < 0.7 else (0.0,) * 3
    duration = rng.choice([None, rng.randrange(1, 3 * SECOND)])
    growth = (0.5, 0.0, 0.0) if shape.kind == 1 and rng.random() < 0.5 else (0.0, 0.0, 0.0)
    return Moving(shape, velocity, growth, duration, t)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Life]:
    """Many small parts, as a live run leaves them. Half of the entities have sampled positions."""
    path = tmp_path_factory.mktemp("replays") / "run"
    rng, life = Random(5), Life()
    recorder = Recorder(TraceFolder(path, b'{"schema": 1, "protocol": "live", "workload": "test"}'))
    for tick in range(SECONDS * 10):
        t = SECOND + tick * SECOND // 10
        node = rng.randrange(NODES)
        if rng.random() < 0.2 and node in life.in_force(t):
            life.interests.append((t, node, None))
            recorder.ended(t, node, node)
        else:
            region = a_move(rng, t)
            life.interests.append((t, node, region))
            recorder.interest(t, Subscription(node, node, region))
        made = Publication(tick, node, t + 1, point(rng.uniform(0, 100), rng.uniform(0, 100)))
        life.publications[tick] = made
        recorder.published(made)
        for other in rng.sample(range(NODES), 3):
            late = rng.randrange(1_000, 90_000)
            life.deliveries.append((t + 1 + late, other, tick))
            recorder.delivered(t + 1 + late, other, tick, [other], 1)
        recorder.sent(t, node, 99, "publish", 50, None, None, False)
        if tick % 10 == 0:
            for sampled in range(NODES // 2):
                x, y = rng.uniform(0, 100), rng.uniform(0, 100)
                life.positions.append((t, sampled, x, y))
                recorder.position(t, sampled, x, y, 0.0)
        if tick % 3 == 2:
            recorder.flush()
    recorder.close()
    return path, life


def moments(seed: int) -> list[int]:
    """To and fro."""
    rng = Random(seed)
    return [rng.randrange(SECOND, (SECONDS + 1) * SECOND) for _ in range(40)]


@pytest.mark.parametrize("kept", [2, 32])
def test_areas_are_those_in_force_wherever_one_jumps(
    recorded: tuple[Path, Life], kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHECKPOINTS", kept)
    path, life = recorded
    replay = TraceReplay(path)
    assert len(replay.tables["interests"].groups) > 40
    for t in moments(kept):
        t = min(max(t, replay.first), replay.last)
        areas = []
        for node, region in life.in_force(t).items():
            s = region.at(t)
            if s.rx == float("inf"):
                continue
            going = region.moves and t < region.until
            ry = s.rx if s.kind == 1 else s.ry
            areas.append((node, s.kind, s.x, s.y, s.rx, ry, going))
        _, _, drawn, _ = read(replay.world(t))
        assert same([row[:6] for row in drawn], [row[:6] for row in sorted(areas)])
        assert [row[10] > 0 for row in drawn] == [row[6] for row in sorted(areas)]


def test_entities_are_between_their_samples_or_in_the_middle_of_their_area(
    recorded: tuple[Path, Life],
) -> None:
    path, life = recorded
    replay = TraceReplay(path)
    for t in moments(9):
        t = min(max(t, replay.first), replay.last)
        _, drawn, _, _ = read(replay.world(t))
        places = {row[0]: row[1:3] for row in drawn}
        assert len(places) == len(drawn), "nobody is in two places"
        for node in range(NODES // 2):
            own = [row for row in life.positions if row[1] == node]
            before = [row for row in own if row[0] <= t]
            after = [row for row in own if row[0] > t and row[0] <= t + module.SAMPLE_REACH]
            if not before or before[-1][0] <= t - module.SAMPLE_REACH:
                continue
            (t0, _, x0, y0) = before[-1]
            share = (t - t0) / (after[0][0] - t0) if after else 0.0
            (_, _, x1, y1) = after[0] if after else before[-1]
            wanted = (x0 + share * (x1 - x0), y0 + share * (y1 - y0))
            assert places[node] == pytest.approx(wanted, rel=1e-4, abs=1e-3)
        for node, region in life.in_force(t).items():
            s = region.at(t)
            if node >= NODES // 2 and s.rx < float("inf"):
                assert places[node] == pytest.approx((s.x, s.y), rel=1e-4, abs=1e-3)


def test_deliveries_are_shown_from_publisher_to_subscriber(
    recorded: tuple[Path, Life],
) -> None:
    path, life = recorded
    replay = TraceReplay(path)
    for t in moments(11):
        t = min(max(t, replay.first), replay.last)
        _, _, _, delivered = read(replay.world(t))
        lately = [
            (life.publications[publication].node, node)
            for at, node, publication in life.deliveries
            if t - module.SHOWN_FOR < at <= t
        ]
        assert delivered == sorted(lately)


def test_every_second_counts_what_happened_in_it_and_how_late(
    recorded: tuple[Path, Life],
) -> None:
    path, life = recorded
    replay = TraceReplay(path)
    replay.seconds.start()
    replay.seconds._thread.join()
    table = replay.seconds.table()
    assert table["done"] and table["step_s"] == 1
    for second in range(SECONDS):
        low = replay.first + second * SECOND
        delivered = [row for row in life.deliveries if low <= row[0] < low + SECOND]
        made = [one for one in life.publications.values() if low <= one.t < low + SECOND]
        wanted = [row for row in life.interests if low <= row[0] < low + SECOND]
        assert table["deliveries"][second] == len(delivered)
        assert table["publications"][second] == len(made)
        assert table["interests"][second] == len(wanted)
        assert (table["messages"][second], table["bytes"][second]) == (10, 500)
        late = sorted(
            (at - life.publications[publication].t) / 1000 for at, _, publication in delivered
        )
        middle = late[(len(late) + 1) // 2 - 1]
        assert middle <= table["p50_ms"][second] <= middle * 1.13


def test_a_folder_without_rows_is_refused_in_one_line(tmp_path: Path) -> None:
    TraceFolder(tmp_path / "empty", b'{"schema": 1}')
    with pytest.raises(TraceError, match="no rows"):
        TraceReplay(tmp_path / "empty")


def test_on_earth_places_and_motions_are_in_degrees(tmp_path: Path) -> None:
    """Half of the ships have sampled positions; all of them go east, across the antimeridian."""
    path = tmp_path / "earth"
    recorder = Recorder(TraceFolder(path, b'{"schema": 2, "settings": {"geometry": "earth"}}'))
    starts = [(179.9 + number / 20, -20.0 + number) for number in range(6)]
    ways: dict[int, Moving] = {}
    for number, (lon, lat) in enumerate(starts):
        way = great_circle_line(earth_disc(lon - 360 * (lon > 180), lat, 700.0), (-179.0, lat), 50)
        leg = way.legs[0] if isinstance(way, MotionPath) else way
        ways[number] = leg.stamped(SECOND)
        recorder.interest(SECOND, Subscription(number, number, ways[number]))
        for second in range(1, 5):
            s = ways[number].at(second * SECOND)
            if number % 2:
                recorder.position(second * SECOND, number, s.x, s.y, s.z)
    fence = earth_bounds(179.0, -21.0, -179.0, -14.0)
    recorder.interest(SECOND, Subscription(9, 9, Moving(fence, since=SECOND)))
    recorder.interest(SECOND, Subscription(10, 10, Moving(EVERYWHERE, since=SECOND)))
    recorder.close()
    t = 2 * SECOND + SECOND // 2
    _, entities, areas, _, vertices = read_all(TraceReplay(path).world(t))
    places = {row[0]: row[1:5] for row in entities}
    assert sorted(places) == [*ways, 9]
    for number, way in ways.items():
        s, soon = way.at(t), way.at(t + SECOND // 10)
        lon, lat = lon_lat(s.x, s.y, s.z)
        east = (lon_lat(soon.x, soon.y, soon.z)[0] - lon + 180) % 360 - 180
        x, y, vx, vy = places[number]
        assert ((x - lon + 180) % 360 - 180, y) == pytest.approx((0, lat), abs=1e-7)
        assert vx == pytest.approx(10 * east, rel=1e-3) and abs(vy) < 1e-4
        (area,) = [row for row in areas if row[0] == number]
        assert area[2:4] == pytest.approx((lon, lat), abs=1e-7)
        assert area[4:6] == pytest.approx((s.rx, s.rx))
    row = next(i for i, area in enumerate(areas) if area[0] == 9)
    assert areas[row][2] % 360 == pytest.approx(180)
    assert areas[row][3:6] == pytest.approx((-17.5, 1.0, 3.5))
    assert {corner[0] for corner in vertices} == {row} and len(vertices) == 4


def test_outlines_of_a_plane_are_drawn_where_their_area_is(tmp_path: Path) -> None:
    outline = Outline(POLYGON, False, pack([-1.0, -1.0, 3.0, 0.0, 0.0, 2.0]), (0,))
    shape = Shape(ShapeKind.BOX, 10.0, 20.0, 0.0, 3.0, 2.0, 0.0, outline)
    recorder = Recorder(TraceFolder(tmp_path / "plane", b'{"schema": 2}'))
    recorder.interest(SECOND, Subscription(1, 1, Moving(shape, (2.0, 0.0, 0.0), since=SECOND)))
    recorder.position(3 * SECOND, 2, 0.0, 0.0, 0.0)
    recorder.close()
    _, _, areas, _, vertices = read_all(TraceReplay(tmp_path / "plane").world(3 * SECOND))
    assert areas[0][:4] == (1, ShapeKind.BOX, 14.0, 20.0)
    assert vertices == [(0, 0, -1, -1), (0, 0, 3, 0), (0, 0, 0, 2)]
