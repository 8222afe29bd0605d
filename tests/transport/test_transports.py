"""One contract for all transports: loopback, TLS over TCP, QUIC."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from nearcast.node import Priority
from nearcast.peer.host import run
from nearcast.transport.identity import new_identity
from nearcast.transport.transport import Transport
from nearcast.wire import LONGEST
from support.patience import PATIENCE_S
from support.transports import ALL, WITH_LINKS, Net


@pytest.fixture(params=ALL)
def play(request: pytest.FixtureRequest) -> Callable[[Callable[[Net], Awaitable[None]]], None]:
    """Run a scene with a net of each kind, and close all that it has opened."""

    def played(scene: Callable[[Net], Awaitable[None]]) -> None:
        async def main() -> None:
            async with Net(request.param) as net:
                await scene(net)

        run(main())

    return played


def test_frames_of_all_sizes_arrive_whole_and_in_order(play):
    frames = [bytes([size % 251]) * size for size in (0, 1, 100, 1200, 65_537, LONGEST)]
    frames += [number.to_bytes(4) for number in range(3000)]

    async def scene(net: Net) -> None:
        (ann, _), (ben, recorder) = await net.open(), await net.open()
        await net.acquaint(ann, ben)
        for number, frame in enumerate(frames):
            ann.send(ben.name, frame, False)
            if number % 100 == 0:
                await asyncio.sleep(0)
        await recorder.until(len(frames))
        assert recorder.frames == [(ann.name, frame) for frame in frames]

    play(scene)


def test_two_that_call_each_other_at_once_lose_and_repeat_nothing(play):
    async def scene(net: Net) -> None:
        (ann, at_ann), (ben, at_ben) = await net.open(), await net.open()
        await net.acquaint(ann, ben)
        frames = [number.to_bytes(2) for number in range(600)]
        for frame in frames:
            ann.send(ben.name, frame, False)
            ben.send(ann.name, frame, False)
            await asyncio.sleep(0 if frame[1] % 7 else 0.001)
        await at_ann.until(600)
        await at_ben.until(600)
        assert at_ann.of(ben) == at_ben.of(ann) == frames

    play(scene)


def test_each_of_many_senders_is_received_under_its_own_name(play):
    async def scene(net: Net) -> None:
        ben, recorder = await net.open()
        others = [(await net.open())[0] for _ in range(4)]
        await net.acquaint(ben, *others)
        for turn in range(20):
            for number, other in enumerate(others):
                other.send(ben.name, bytes([number, turn]), False)
        await recorder.until(80)
        for number, other in enumerate(others):
            assert recorder.of(other) == [bytes([number, turn]) for turn in range(20)]

    play(scene)


def test_a_node_may_send_to_itself_and_receives_it_after_the_call(play):
    async def scene(net: Net) -> None:
        ann, recorder = await net.open()
        ann.send(ann.name, b"remember", False)
        assert not recorder.frames
        await recorder.until(1)
        assert recorder.frames == [(ann.name, b"remember")]

    play(scene)


async def send_until_received(speaker: Transport, recorder, to: int, frame: bytes) -> None:
    """What is said to nobody is lost: whoever wants to be heard says it again."""
    async with asyncio.timeout(PATIENCE_S):
        while not recorder.frames:
            speaker.send(to, frame, False)
            await asyncio.sleep(0.05)


def test_frames_to_an_absent_node_are_lost_until_it_comes(play):
    async def scene(net: Net) -> None:
        (ann, at_ann), (eve, _) = await net.open(), await net.open()
        late = new_identity()
        ann.send(late.name, b"anybody?", False)
        ann.send(late.name, b"anybody?", True)
        await asyncio.sleep(0.05)
        ben, recorder = await net.open(late)
        await net.acquaint(ann, ben, eve)
        await send_until_received(ann, recorder, ben.name, b"there you are")
        assert set(recorder.of(ann)) <= {b"there you are", b"anybody?"}
        assert not at_ann.frames

    play(scene)


def test_a_peer_that_comes_back_elsewhere_is_found_again(play):
    async def scene(net: Net) -> None:
        (ann, at_ann), who = await net.open(), new_identity()
        ben, recorder = await net.open(who)
        await net.acquaint(ann, ben)
        ann.send(ben.name, b"first life", False)
        ben.send(ann.name, b"yes", False)
        await recorder.until(1)
        await at_ann.until(1)
        await ben.close()
        again, recorder = await net.open(who)
        if net.kind != "loopback":
            assert await again.meet(ann.host, ann.port) == ann.name
        await send_until_received(ann, recorder, again.name, b"second life")
        assert set(recorder.of(ann)) == {b"second life"}

    play(scene)


def test_broken_links_are_made_again_when_there_is_something_to_send(play):
    async def scene(net: Net) -> None:
        (ann, _), (ben, recorder) = await net.open(), await net.open()
        await net.acquaint(ann, ben)
        ann.send(ben.name, b"one", False)
        await recorder.until(1)
        if net.kind != "loopback":
            for link in [*ann._links, *ben._links]:
                link.connection.cut()
        recorder.frames.clear()
        await send_until_received(ann, recorder, ben.name, b"two")
        assert set(recorder.of(ann)) == {b"two"}

    play(scene)


def test_frames_sent_before_a_close_arrive(play, monkeypatch):
    # A transport that closes waits for a second, in which a busy machine does not send all of it.
    monkeypatch.setattr("nearcast.transport.links.CLOSING_S", 60.0)
    frames = [bytes([number]) * 10_000 for number in range(200)]

    async def scene(net: Net) -> None:
        (ann, _), (ben, recorder) = await net.open(), await net.open()
        await net.acquaint(ann, ben)
        for frame in frames:
            ann.send(ben.name, frame, False)
        if net.kind == "loopback":
            await recorder.until(200)
        await ann.close()
        await recorder.until(200)
        assert recorder.of(ann) == frames

    play(scene)


def test_a_closed_transport_neither_receives_nor_sends(play):
    async def scene(net: Net) -> None:
        (ann, at_ann), (ben, at_ben) = await net.open(), await net.open()
        await net.acquaint(ann, ben)
        ann.send(ben.name, b"hello", False)
        await at_ben.until(1)
        await ben.close()
        ben.send(ann.name, b"from beyond", False)
        for _ in range(5):
            ann.send(ben.name, b"still there?", False)
            ann.send(ben.name, b"still there?", True)
            await asyncio.sleep(0.02)
        await ben.close()
        assert at_ben.frames == [(ann.name, b"hello")]
        assert not at_ann.frames

    play(scene)


@pytest.mark.parametrize("size", [0, 64, 1100, 1101, 20_000])
def test_lossy_frames_arrive_once_or_never(play, size):
    frames = [bytes([number]) + bytes(size) for number in range(100)]

    async def scene(net: Net) -> None:
        (ann, _), (ben, recorder) = await net.open(), await net.open()
        await net.acquaint(ann, ben)
        ann.send(ben.name, b"a link", False)
        await recorder.until(1)
        for frame in frames:
            ann.send(ben.name, frame, True)
            await asyncio.sleep(0.001)
        ann.send(ben.name, b"the end", False)
        await recorder.until_received(b"the end")
        received = [frame for frame in recorder.of(ann)[1:] if frame != b"the end"]
        assert len(received) > 50
        assert len(set(received)) == len(received)
        assert set(received) <= set(frames)

    play(scene)


def test_a_frame_that_is_too_long_is_not_sent_and_harms_nobody(play):
    async def scene(net: Net) -> None:
        (ann, _), (ben, recorder) = await net.open(), await net.open()
        await net.acquaint(ann, ben)
        if net.kind != "loopback":
            ann.send(ben.name, bytes(LONGEST + 1), False)
        ann.send(ben.name, b"small", False)
        await recorder.until(1)
        assert recorder.of(ann) == [b"small"]

    play(scene)


@pytest.mark.parametrize("kind", WITH_LINKS)
def test_nothing_is_left_behind_by_a_transport_that_has_closed(kind):
    async def main() -> None:
        async with Net(kind) as net:
            (ann, _), (ben, recorder) = await net.open(), await net.open()
            await net.acquaint(ann, ben)
            ann.send(ben.name, b"hello", False)
            await recorder.until(1)
            ann.send(new_identity().name, b"into the void", False)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        async with Net(kind) as net:  # its port is free again
            again, _ = await net.open(port=ben.port)
            assert again.port == ben.port

    run(main())


def test_frames_of_each_priority_stay_in_order_and_those_without_order_arrive_once(play):
    ordered = {p: [bytes([p, number]) for number in range(50)] for p in Priority}
    loose = [bytes([9, number]) for number in range(150)]

    async def scene(net: Net) -> None:
        (ann, _), (ben, recorder) = await net.open(), await net.open()
        await net.acquaint(ann, ben)
        for number in range(50):
            for priority in Priority:
                ann.send(ben.name, ordered[priority][number], False, priority)
                frame = loose[3 * number + priority]
                ann.send(ben.name, frame, False, priority, False)
            await asyncio.sleep(0)
        await recorder.until(300)
        received = recorder.of(ann)
        for priority in Priority:
            assert [frame for frame in received if frame[0] == priority] == ordered[priority]
        assert sorted(frame for frame in received if frame[0] == 9) == loose

    play(scene)
