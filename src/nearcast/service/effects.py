"""What a service wants done, beside the effects of every node (`nearcast.node`).

Effects are carried out in their order, and before the next input: they refer to slots, which are
used again.
"""

from collections.abc import Sequence

from nearcast.client_protocol import messages
from nearcast.client_protocol.close_codes import CloseCode
from nearcast.model.subscription import NodeId, PublicationId, SubscriptionId
from nearcast.node import Effect
from nearcast.service.client_state import AcceptedPublication, ClientState, FlushDeliveries
from nearcast.service.connection import Connection
from nearcast.space.motion import Time


class Reply(Effect, frozen=True, eq=False):
    """Send a notice to one client. `cost`: of its request, in requests beyond the one."""

    connection: Connection
    notice: messages.Notice
    cost: int = 0


class Refuse(Effect, frozen=True, eq=False):
    """A request was refused, and changed nothing: send the error, and count it."""

    connection: Connection
    error: messages.ErrorNotice


class Notify(Effect, frozen=True, eq=False):
    """Send notices to many clients; those that get the same one share the object."""

    notices: Sequence[tuple[ClientState, messages.Notice]]


class DeliverFlush(Effect, frozen=True, eq=False):
    """Deliver the publications of one flush."""

    flushed: FlushDeliveries


class DeliverMissed(Effect, frozen=True, eq=False):
    """Deliver to one client a publication that was flushed before it came to this node."""

    connection: Connection
    client: ClientState
    publication: AcceptedPublication
    t: Time
    numbers: Sequence[int]  # of the client's subscriptions, as the client numbers them
    subscriptions: Sequence[SubscriptionId]


class DeliverDirect(Effect, frozen=True, eq=False):
    """Deliver a direct message to one client, in its encoding."""

    connection: Connection
    client: ClientState
    notice: messages.DirectNotice


class Serve(Effect, frozen=True, eq=False):
    """From now on this connection serves this client."""

    connection: Connection
    client: ClientState


class StopServing(Effect, frozen=True, eq=False):
    """This connection does not serve this client any more."""

    connection: Connection
    client: ClientState


class CloseConnection(Effect, frozen=True, eq=False):
    """Send a bye notice and close the connection. The service has forgotten it."""

    connection: Connection
    reason: str
    code: CloseCode


class Counted(Effect, frozen=True):
    """How many subscriptions a publication matched; `silent`: nodes that did not answer."""

    publication: PublicationId
    t: Time
    readers: int
    silent: int


class Fault(Effect, frozen=True, eq=False):
    """An internal error, to be logged. `lost`: publications and requests lost by it."""

    what: str
    error: Exception
    lost: int
    publication: PublicationId | None = None  # which could not be matched


class ProbeNode(Effect, frozen=True):
    """The link to this node has ended: find out whether the node still accepts connections."""

    node: NodeId
