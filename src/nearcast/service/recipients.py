"""Direct messages: who of a node's clients is the entity that one is for."""

from msgspec import Raw, Struct

from nearcast.client_protocol import messages
from nearcast.client_protocol.limits import Limits, check_name
from nearcast.errors import Refused
from nearcast.model.subscription import PublicationId
from nearcast.service.client_state import ClientState
from nearcast.space.motion import Time


class AcceptedDirect(Struct, frozen=True, gc=False):
    """A direct message that a node has accepted, for its own clients and those of other nodes."""

    number: PublicationId
    source: int  # the entity that sends it
    name: str  # of the sender
    t: Time
    to: messages.EntityKey
    payload: Raw
    form: messages.Encoding

    def notice(self, recipient: ClientState) -> messages.DirectNotice:
        """What the client is told that is this entity, or publishes for it."""
        payload = self.form.translate_payload(self.payload, recipient.form)
        to = recipient.name if recipient.owner is not None else ""
        return messages.DirectNotice(self.source, self.number, self.t, payload, self.name, to)


class Recipients:
    """The entities of a node by their names and by their numbers."""

    def __init__(self) -> None:
        self._numbered: dict[int, ClientState] = {}
        self._named: dict[str, dict[int, ClientState]] = {}  # by name, then by number

    def add(self, client: ClientState) -> None:
        self._numbered[client.entity] = client
        if client.name:
            self._named.setdefault(client.name, {})[client.entity] = client

    def remove(self, client: ClientState) -> None:
        del self._numbered[client.entity]
        if client.name:
            alike = self._named[client.name]
            del alike[client.entity]
            if not alike:
                del self._named[client.name]

    def find(self, to: messages.EntityKey) -> list[ClientState]:
        """All entities of this name, or the one with this number."""
        if isinstance(to, str):
            return list(self._named.get(to, {}).values())
        found = self._numbered.get(to)
        return [] if found is None else [found]


def check_recipient(to: messages.EntityKey, limits: Limits) -> None:
    """Refused if nobody can have such a name or number."""
    if to == "":
        raise Refused("a direct message is for an entity: give its name or its number")
    if isinstance(to, str):
        check_name("a name", to, limits)
    elif not 0 <= to < 2**53:
        raise Refused("an entity's number is from 0 to 2**53 - 1")


def unknown_recipient(to: messages.EntityKey) -> str:
    """Why a direct message is refused."""
    return f"there is no entity {to!a} here: nobody has received your message"
