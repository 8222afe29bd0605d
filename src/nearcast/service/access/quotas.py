"""What the holders of tokens with quotas use of this node at present: connections and requests.

A holder is a table of the token file or the subject of JWTs, whichever of several tokens is shown.
"""

from msgspec import Struct

from nearcast.errors import Refused
from nearcast.service.access.grants import Grant
from nearcast.service.access.token_bucket import TokenBucket
from nearcast.service.connection import Connection

IDLE_S = 3.0  # a bucket that nobody takes from is full again after two seconds


class HolderUsage(Struct, eq=False):
    """The connections of a holder, and its buckets: one for each rate that its tokens allow."""

    connections: set[Connection]
    buckets: dict[int, TokenBucket]
    used: float  # when somebody last asked for it


class Quotas:
    """By holder; without quotas in its token a holder is not counted at all."""

    def __init__(self, requests: int) -> None:
        self._most = requests  # a second, of any client: no token allows more
        self._uses: dict[str, HolderUsage] = {}

    def __len__(self) -> int:
        return len(self._uses)

    def enter(self, connection: Connection, grant: Grant, now: float) -> None:
        """A connection has shown its token. Refused if it is one too many."""
        if (grant.requests, grant.subscriptions, grant.connections) == (None, None, None):
            return
        use = self._use(grant, now)
        if grant.connections is not None and len(use.connections) >= grant.connections:
            raise Refused(
                f"your token allows {grant.connections} connections at one time on this node"
            )
        use.connections.add(connection)
        connection.use = use
        if grant.requests is not None:
            connection.bucket = self._bucket(use, grant.requests, now)

    def leave(self, connection: Connection) -> None:
        if connection.use is not None:
            connection.use.connections.discard(connection)
            connection.use = None

    def take(self, grant: Grant, now: float) -> bool:
        """One request outside of any connection: may it be made?"""
        if grant.requests is None:
            return True
        bucket = self._bucket(self._use(grant, now), grant.requests, now)
        return bucket.take() or bucket.fill(now)

    def forget(self, now: float) -> None:
        """Drop those who use nothing, and whose buckets are full again."""
        for holder, use in list(self._uses.items()):
            if use.connections:
                use.used = now
            elif now - use.used > IDLE_S:
                del self._uses[holder]

    def _use(self, grant: Grant, now: float) -> HolderUsage:
        use = self._uses.setdefault(grant.holder, HolderUsage(set(), {}, now))
        use.used = now
        return use

    def _bucket(self, use: HolderUsage, rate: int, now: float) -> TokenBucket:
        rate = min(rate, self._most)
        if rate not in use.buckets:
            use.buckets[rate] = TokenBucket(rate, now)
        return use.buckets[rate]


def check_subscriptions(connection: Connection, number: int) -> None:
    """One more subscription of this holder, unless it replaces one of the same number."""
    grant, client = connection.grant, connection.client
    if grant is None or grant.subscriptions is None or client is None or connection.use is None:
        return
    if number not in client.subscriptions:
        clients = [one.client for one in connection.use.connections]
        if sum(len(one.subscriptions) for one in clients if one) >= grant.subscriptions:
            raise Refused(f"your token allows {grant.subscriptions} subscriptions on this node")
