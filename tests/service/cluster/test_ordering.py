"""Nothing is missed, repeated or overtaken in a cluster, whatever links and nodes take for it."""

from support.examples import seeds
from support.staying_crowd import check_staying_crowd


@seeds([0], range(1, 5))
def test_whatever_the_delays_every_client_receives_everything_once_and_in_order(seed: int) -> None:
    check_staying_crowd(seed)


@seeds([1], [0])
def test_the_same_holds_when_nodes_are_too_busy_to_publish_everything_at_once(seed: int) -> None:
    check_staying_crowd(seed, busy=True)
