"""What is lost delays nobody else, and what is urgent goes first: QUIC on a played network."""

import asyncio
from typing import Any

import pytest

from nearcast.node import Priority
from nearcast.transport import links as bounds
from nearcast.transport.links import LinkLimits
from nearcast.transport.quic import LONGEST_ALONE
from support.played_quic import DELAY, QuicScene, play

UPKEEP, PUBLICATION, BULK = Priority
ORDERED: tuple[Any, ...] = (False, PUBLICATION, True)
UNORDERED: tuple[Any, ...] = (False, PUBLICATION, False)
LOSSY: tuple[Any, ...] = (True, PUBLICATION)
STEP_S = 0.02
ON_TIME_S = 1.5 * DELAY  # played time; what is sent again takes two round trips and more


async def send_steadily(scene: QuicScene, how: tuple[Any, ...], lost: int) -> dict[int, float]:
    """Twenty frames, one by one; the packet with one of them is lost. How long each took."""
    sent = {}
    for number in range(20):
        if number == lost:
            scene.lose_next()
        sent[bytes([number])] = scene.loop.time()
        scene.send(bytes([number]), *how)
        await asyncio.sleep(STEP_S)
    await asyncio.sleep(2.0)
    assert len(scene.at_ben.frames) == len(set(scene.at_ben.frames))
    return {frame[0]: t - sent[frame] for frame, t in scene.at_ben.times.items() if frame in sent}


@pytest.mark.parametrize("how", [UNORDERED, LOSSY])
def test_a_lost_packet_delays_no_other_frame(how: tuple[Any, ...]) -> None:
    async def scene(scene: QuicScene) -> None:
        took = await send_steadily(scene, how, lost=5)
        late = {number for number, seconds in took.items() if seconds > ON_TIME_S}
        assert late == (set() if how is LOSSY else {5})
        assert set(range(20)) - set(took) == ({5} if how is LOSSY else set())

    play(scene)


def test_ordered_frames_wait_for_the_one_that_was_lost_and_stay_in_order() -> None:
    async def scene(scene: QuicScene) -> None:
        took = await send_steadily(scene, ORDERED, lost=5)
        assert [number for number, seconds in took.items() if seconds > ON_TIME_S][:3] == [5, 6, 7]
        assert scene.at_ben.frames == [bytes([number]) for number in range(20)]

    play(scene)


def test_a_lost_packet_delays_no_other_priority() -> None:
    async def scene(scene: QuicScene) -> None:
        scene.lose_next()
        scene.send(b"lost", False, BULK)
        await asyncio.sleep(STEP_S)
        for priority in Priority:
            scene.send(b"after %d" % priority, False, priority)
        await asyncio.sleep(2.0)
        assert scene.at_ben.frames == [b"after 0", b"after 1", b"lost", b"after 2"]

    play(scene)


@pytest.mark.parametrize("lossy", [False, True])
@pytest.mark.parametrize("size", [0, LONGEST_ALONE, LONGEST_ALONE + 1, 50_000])
def test_frames_too_large_for_a_packet_take_the_stream_of_their_priority(
    lossy: bool, size: int
) -> None:
    frames = [bytes([number]) + bytes(size - 1) if size else b"" for number in range(3)]

    async def scene(scene: QuicScene) -> None:
        scene.lose_next()
        for frame in frames:
            scene.send(frame, lossy, PUBLICATION, False)
        await asyncio.sleep(5.0)
        if lossy and size <= LONGEST_ALONE:
            assert len(scene.at_ben.frames) < 3
            assert set(scene.at_ben.frames) <= set(frames)
        else:
            assert sorted(scene.at_ben.frames) == sorted(frames)

    play(scene)


def test_what_is_urgent_overtakes_what_waits() -> None:
    """On a slow line: 200 kB of bulk, then one frame of each kind."""

    async def scene(scene: QuicScene) -> None:
        scene.network.rate = 125_000.0
        for number in range(200):
            scene.send(bytes([number]) * 1000, False, BULK)
        await asyncio.sleep(0.2)
        scene.send(b"bulk", False, BULK)
        scene.send(b"update", *LOSSY)
        scene.send(b"publication", *UNORDERED)
        scene.send(b"upkeep", False, UPKEEP)
        await asyncio.sleep(10.0)
        urgent = [frame for frame in scene.at_ben.frames if frame.isalpha() and len(frame) < 99]
        assert set(urgent[:-1]) == {b"upkeep", b"publication", b"update"}
        assert len(scene.at_ben.frames) == 204
        bulk = [frame for frame in scene.at_ben.frames if len(frame) == 1000]
        assert bulk == [bytes([number]) * 1000 for number in range(200)]
        # Far less than all that waited has gone before it.
        assert max(map(scene.at_ben.frames.index, urgent[:-1])) < 100
        assert urgent[-1] == b"bulk" == scene.at_ben.frames[-1]

    play(scene)


def test_of_lossy_frames_that_wait_the_oldest_are_dropped() -> None:
    async def scene(scene: QuicScene) -> None:
        scene.network.rate = 125_000.0
        for number in range(1000):
            scene.send(number.to_bytes(2) + bytes(998), *LOSSY)
        await asyncio.sleep(10.0)
        numbers = [int.from_bytes(frame[:2]) for frame in scene.at_ben.frames]
        assert numbers == sorted(numbers)
        assert numbers[-20:] == list(range(980, 1000))
        assert 20 <= len(numbers) <= 200

    play(scene, limits=LinkLimits(lossy=20_000))


def test_upkeep_is_not_starved_by_more_updates_than_fit() -> None:
    async def scene(scene: QuicScene) -> None:
        scene.network.rate = 125_000.0
        for turn in range(100):
            for _ in range(10):
                scene.send(bytes(1000), *LOSSY)
            if turn == 50:
                scene.send(b"heartbeat")
            await asyncio.sleep(0.02)
        assert b"heartbeat" in scene.at_ben.frames

    play(scene)


def test_all_of_many_unordered_frames_arrive_once() -> None:
    """More than streams that QUIC admits in a round trip."""
    frames = [number.to_bytes(2) for number in range(500)]

    async def scene(scene: QuicScene) -> None:
        for frame in frames:
            scene.send(frame, *UNORDERED)
        await asyncio.sleep(2.0)
        assert sorted(scene.at_ben.frames) == frames
        for frame in frames:
            scene.send(frame, *UNORDERED)
        await asyncio.sleep(2.0)
        assert sorted(scene.at_ben.frames) == sorted(2 * frames)

    play(scene)


@pytest.mark.parametrize("lost", range(6))
def test_what_overtakes_the_greeting_is_received_after_it(lost: int) -> None:
    """The first packets of a link, with one of them lost."""
    before = 0

    async def scene(scene: QuicScene) -> None:
        def drops(*_: Any) -> bool:
            nonlocal before
            before += 1
            return before == lost + 1

        scene.network.drops = drops
        for number in range(8):
            scene.send(b"%d unordered" % number, *UNORDERED)
            scene.send(b"%d bulk" % number + bytes(2000), False, BULK)
            scene.send(b"%d upkeep" % number)
        await asyncio.sleep(5.0)
        assert len(scene.at_ben.frames) == len(set(scene.at_ben.frames)) == 24
        for what in (b"bulk", b"upkeep"):
            assert sorted(f for f in scene.at_ben.frames if what in f) == [
                f for f in scene.at_ben.frames if what in f
            ]

    play(scene, linked=False)


@pytest.mark.parametrize("stream", ["bulk", "alone"])
def test_who_sends_much_before_its_greeting_is_cut(
    stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "MOST_EARLY", 5000)

    async def scene(scene: QuicScene) -> None:
        link = await scene.ann.dial(scene.ben.host, scene.ben.port)
        for _ in range(4):
            if stream == "bulk":
                link.connection.write(bytes(1000), BULK)
            else:
                link.connection.write_alone(bytes(1000), BULK)
        await asyncio.sleep(1.0)
        assert len(scene.ben._links) == 1
        for _ in range(4):
            link.connection.write(bytes(1000), BULK)
        await asyncio.sleep(1.0)
        assert not scene.ben._links

    play(scene, linked=False)


@pytest.mark.parametrize("nonsense", ["both ways", "too long", "hello late"])
def test_streams_that_are_not_as_agreed_end_their_link(nonsense: str) -> None:
    async def scene(scene: QuicScene) -> None:
        (link,) = scene.ann._links
        connection: Any = link.connection
        quic = connection._quic
        match nonsense:
            case "both ways":
                quic.send_stream_data(0, b"x")
            case "too long":
                quic.send_stream_data(connection._next_alone, bytes(LONGEST_ALONE + 1))
            case _:
                connection.write(b"".join(bounds.make_frame(bounds.HELLO, b"")), BULK)
        connection.transmit()
        await asyncio.sleep(1.0)
        assert not scene.ben._links and not scene.ann._links
        assert not scene.at_ben.frames

    play(scene)
