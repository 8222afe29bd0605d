"""Push-sum: everybody comes to know how many there are, and nobody is counted twice."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.peer.bootstrap import BOOTSTRAPS
from nearcast.protocols.bubblestorm.gossip import Measurement
from nearcast.protocols.bubblestorm.messages import Gossip
from nearcast.protocols.bubblestorm.sizes import ALONE, NetworkEstimate
from nearcast.sim.network import ConstantDelay
from support.bubblestorm_worlds import BubbleStormWorld
from support.examples import examples


def play(degrees: list[int], exchanges: int, seed: int = 1) -> list[Measurement]:
    rng = Random(seed)
    peers = [Measurement(Random(number)) for number in range(len(degrees))]
    for peer, degree in zip(peers, degrees, strict=True):
        peer.begin(1, degree, contributes=True)
    for _ in range(exchanges):
        one, other = rng.sample(range(len(degrees)), 2)
        peers[other].receive(peers[one].share(0, degrees[one], degrees[other]), degrees[other])
    return peers


@pytest.mark.parametrize("count", [2, 10, 100])
def test_everybody_measures_the_network_exactly(count: int) -> None:
    degrees = [64 if number % 7 == 0 else 16 for number in range(count)]
    for peer in play(degrees, 150 * count):
        network = peer.finished
        assert peer.took_part
        assert peer.round > 1
        assert network.peers == pytest.approx(count, rel=0.03)
        assert network.ends == pytest.approx(sum(degrees), rel=0.03)
        assert network.squares == pytest.approx(sum(d * d for d in degrees), rel=0.03)
        assert network.largest == 64.0


def test_a_newcomer_adds_nothing_to_the_round_under_way() -> None:
    peers = play([16] * 20, 1000)
    newcomer = Measurement(Random(99))
    newcomer.join(peers[0].round, peers[0].network)
    assert newcomer.network == peers[0].network
    gossip = newcomer.share(0, 16, 16)
    assert (gossip.weight, gossip.peers, gossip.ends, gossip.squares) == (0.0, 0.0, 0.0, 0.0)


def test_a_newer_round_is_joined_and_an_older_one_is_ignored() -> None:
    peer = Measurement(Random(1))
    peer.begin(5, 16, contributes=True)
    peer.receive(Gossip(0, 4, 7, 0.5, 9.0, 9.0, 9.0, 9.0, 16), 16)
    assert peer.round == 5
    assert peer.share(0, 16, 16).peers == 0.5
    peer.receive(Gossip(0, 6, 7, 0.5, 0.5, 8.0, 128.0, 16.0, 16), 16)
    assert peer.round == 6
    assert peer.share(0, 16, 16).peers == pytest.approx(0.75), "its own value, and what it received"
    peer.receive(Gossip(0, 9, 7, 0.5, 0.5, 8.0, 128.0, 16.0, 16), 16)
    assert peer.share(0, 16, 16).peers == pytest.approx(0.25), "it has missed a beginning"


NUMBER = st.floats() | st.sampled_from([0.0, 1.0, 1e300, -1.0])


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_new_peers_hurry_so_an_overlay_is_ready_in_seconds(seed: int) -> None:
    def seconds_until_ready(**parameters: Any) -> int:
        world = BubbleStormWorld(ConstantDelay(50_000), **parameters)
        for number in range(16):
            world.join(100 * seed + number)
            world.pass_seconds(0.1)
        for passed in range(100):
            if all(peer.ready for peer in world.peers()):
                return passed
            world.pass_seconds(1)
        raise AssertionError("never ready")

    hurried = seconds_until_ready(**BOOTSTRAPS["bubblestorm"].settings)
    assert 3 * hurried < seconds_until_ready()


@given(
    st.integers(0, 2**53 - 1), st.integers(0, 2**53 - 1), st.lists(NUMBER, min_size=5, max_size=5)
)
@examples(300)
def test_no_gossip_makes_a_measurement_invalid(
    round_: int, token: int, numbers: list[float]
) -> None:
    peer = Measurement(Random(1))
    peer.begin(1, 16, contributes=True)
    for _ in range(40):
        peer.receive(Gossip(0, round_, token, *numbers, 16), 16)
    assert peer.network.sound
    peer.join(round_, NetworkEstimate(*numbers[:4]))
    assert peer.network.sound


def test_a_peer_without_measurement_assumes_that_it_is_alone() -> None:
    assert Measurement(Random(1)).network == ALONE
