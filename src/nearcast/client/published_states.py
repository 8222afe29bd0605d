"""The retained states of one client, to publish them again to a node that does not know them."""

from collections.abc import Iterable
from typing import Any, TypeAlias

from nearcast.client_protocol.messages import PublishRequest, WithdrawRequest

StateKey: TypeAlias = tuple[str, str]  # the entity's name, "" for the client itself; the channel

# States that are published again before their answers are awaited. A node reads 500 requests and
# 2 MiB of a client per second: so many are answered long before a request counts as lost.
BATCH = 256


class PublishedStates:
    """The last publication with `retain` of each of the client's entities on each channel.

    At most `channels` x (`entities` + 1) of the node's limits: it refuses more, and what is sent
    without confirmation and refused must not fill the memory either.
    """

    def __init__(self) -> None:
        self._most = 0
        # With the number of the request: answers may come in another order than requests.
        self._states: dict[StateKey, tuple[int, PublishRequest]] = {}
        self._missing: dict[StateKey, None] = {}  # those that the node has not been told again

    def __len__(self) -> int:
        return len(self._states)

    def requests(self) -> list[PublishRequest]:
        """The states as they were published."""
        return [request for _, request in self._states.values()]

    def set_limits(self, limits: dict[str, float]) -> None:
        """Those of the node that serves us, or its defaults."""
        self._most = int(limits.get("channels", 64) * (limits.get("entities", 1_000) + 1))

    def remember(self, number: int, request: PublishRequest) -> None:
        """This is a state from now on, unless a later request has given another."""
        key = request.name, request.channel
        known = self._states.get(key)
        if len(self._states) < self._most if known is None else known[0] < number:
            self._states[key] = number, request
            self._missing.pop(key, None)

    def forget(self, number: int, withdrawn: WithdrawRequest) -> None:
        """These states have ended, but for those of later requests."""
        ended = [
            key for key, (n, _) in self._states.items() if n < number and _ends(withdrawn, key)
        ]
        for key in ended:
            del self._states[key]
            self._missing.pop(key, None)

    def clear(self) -> None:
        self._states.clear()
        self._missing.clear()

    # A node that does not know them.

    def all_missing(self) -> None:
        """The node that has welcomed us knows none of them."""
        self._missing = dict.fromkeys(self._states)

    def next_batch(self, waiting: Iterable[Any]) -> list[PublishRequest]:
        """Those to publish next, besides what these requests replace that wait to be sent."""
        replaced = _replaced(waiting)
        batch = [key for key in self._missing if key not in replaced][:BATCH]
        for key in batch:
            del self._missing[key]
        return [self._states[key][1] for key in batch]

    def take_missing(self, sent: list[Any]) -> list[PublishRequest]:
        """Those that none of these requests, which were sent and have no answer, may change."""
        left = [key for key in self._missing if not any(_changes(request, key) for request in sent)]
        for key in left:
            del self._missing[key]
        return [self._states[key][1] for key in left]

    def mark_missing(self, request: PublishRequest) -> None:
        """The node wants it later, or may not have got it."""
        key = request.name, request.channel
        if key in self._states:
            self._missing[key] = None

    def refused(self, request: PublishRequest) -> None:
        del self._states[request.name, request.channel]


def retains(request: Any) -> bool:
    """Does it give an entity a state?"""
    return isinstance(request, PublishRequest) and request.retain


def unretains(withdrawn: WithdrawRequest, request: Any) -> bool:
    """Is what this publishes, if sent before, no state after the withdrawal?"""
    return retains(request) and _ends(withdrawn, (request.name, request.channel))


def _ends(withdrawn: WithdrawRequest, key: StateKey) -> bool:
    name, channel = key
    return name == withdrawn.name and withdrawn.channel in (None, channel)


def _changes(request: Any, key: StateKey) -> bool:
    if isinstance(request, WithdrawRequest):
        return _ends(request, key)
    return retains(request) and (request.name, request.channel) == key


def _replaced(waiting: Iterable[Any]) -> set[StateKey]:
    """A withdrawal needs what it ends: a node refuses it for an entity that it does not know."""
    replaced: set[StateKey] = set()
    withdrawn: set[str] = set()
    for request in waiting:
        if isinstance(request, WithdrawRequest):
            withdrawn.add(request.name)
        elif retains(request) and request.name not in withdrawn:
            replaced.add((request.name, request.channel))
    return replaced
