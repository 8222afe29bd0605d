"""A client's connection as the service knows it."""

from typing import TYPE_CHECKING

from nearcast.client_protocol import messages
from nearcast.model.subscription import NodeId
from nearcast.service.access.grants import Grant
from nearcast.service.access.token_bucket import TokenBucket
from nearcast.service.client_state import ClientState

if TYPE_CHECKING:
    from nearcast.service.access.quotas import HolderUsage


class Connection:
    """A client's connection. A host makes one for each, usually by a class of its own that also
    has its bytes; it sets `paused`, `encoding` and, while it waits for a token, `joining`."""

    def __init__(self, rate: int, now_s: float) -> None:
        self.client: ClientState | None = None
        self.encoding: messages.Encoding | None = None  # of its first request
        self.allow(None)
        self.use: HolderUsage | None = None  # of its token's holder, if that has quotas
        self.bucket = TokenBucket(rate, now_s)
        self.joining = False  # its token is looked at again or refused, or its ticket is claimed
        self.elsewhere: tuple[int, NodeId] | None = None  # entity, and the node that serves it now
        self.paused = False  # its transport takes nothing more at present
        self.ended = False  # it was closed, or will be

    def allow(self, grant: Grant | None) -> None:
        """Set what the client may do."""
        self.grant = grant
        self.limited = grant is not None and grant.limits_publishing
