"""Messages between the members of a DR-tree. A member's address is node · SLOTS + slot.

A message goes to the node; the slot, mostly 0, is in the message.

joiner                contact … root … owner of the level above
  │── Join ───────────────▶│── Join ──▶│  climbs to the root, descends by least enlargement
  │◀───────────────── ParentState ─────│  adopted; a new root is made where heights are equal

child                      parent             when a node is split, handed over or left
  │── ChildState ────────────▶│               owner ── TakeOver ──▶ promoted child
  │   each check, and when    │               promoted child ── ParentState ──▶ its children
  │   its box changes         │               promoted child ── ChildState ──▶ its new parent
  │◀─ ParentState, each check │
  │◀─ NotMyChild ─────────────│ I do not list you
  │── RemoveChild ───────────▶│ do not list me
  │◀─ Dissolve ───────────────│ your node is too small     child ── Merge ──▶ its brother

brother ── Ping ──▶ brother ── Pong ──▶ brother   where latency decides who owns a node

Publications: PublishUp and PublishDown along the tree, PublishToBrother, PublishToRoot, and
PublishForOutsider from a node outside the tree.
"""

from typing import Annotated, ClassVar, TypeAlias

from msgspec import Meta, Struct

from nearcast.model.publication import Publication
from nearcast.model.subscription import PublicationId
from nearcast.node import Message
from nearcast.protocols.drtree.boxes import Box, require_numbers
from nearcast.space.motion import Time
from nearcast.wire import Codec

SLOTS = 256  # members that one node may have
Address: TypeAlias = Annotated[int, Meta(ge=0, lt=2**61)]
Slot: TypeAlias = Annotated[int, Meta(ge=0, lt=SLOTS)]
LevelNumber: TypeAlias = Annotated[int, Meta(ge=0, lt=64)]  # leaves are at 0
Hops: TypeAlias = Annotated[int, Meta(ge=0, lt=2**31)]
MAX_HOPS = 128  # a request after so many hops goes round in circles
MAX_FORWARDS = 16  # of a message for a tree node that has another owner now


class NodeEntry(Struct, frozen=True, array_like=True):
    """A node of the tree as its parent lists it: owner, box, and number of children."""

    address: Address
    box: Box
    count: Annotated[int, Meta(ge=0, lt=2**31)] = 0

    def __post_init__(self) -> None:
        require_numbers(self.box)


class TreeMessage(Message, frozen=True):
    """A message between the members of a DR-tree."""

    protocol: ClassVar[str] = "drtree"


class Join(TreeMessage, frozen=True, tag=1):
    """A request to take `child`, a node of level `level`, into the tree.

    `at`: the level down to which the request has descended; 0 while it climbs to the root.
    """

    child: NodeEntry
    level: LevelNumber
    at: LevelNumber = 0
    hops: Hops = 0
    slot: Slot = 0


class ParentState(TreeMessage, frozen=True, tag=2):
    """A parent's report to its child: the parent's node of this level, and its box.

    `adopted`: you are my child from now on. `above`, for links to ancestors or to the root: the
    owners of the path from my node upwards, each with its lowest level. `brothers`, for links to
    brothers: all children of my node. `passed`: the address that I list, if it has forwarded this
    message to the new owner of its node.
    """

    by: Address
    level: LevelNumber
    box: Box
    is_root: bool
    adopted: bool = False
    above: tuple[tuple[Address, LevelNumber], ...] = ()
    brothers: tuple[NodeEntry, ...] = ()
    passed: Address | None = None
    hops: Hops = 0
    slot: Slot = 0

    def __post_init__(self) -> None:
        require_numbers(self.box)


class ChildState(TreeMessage, frozen=True, tag=3):
    """A child's report to the parent of its node of this level.

    `former`: the owner of the node before me. `brother_latency`: my mean round trip to my brothers,
    if I have measured it.
    """

    level: LevelNumber
    child: NodeEntry
    former: Address | None = None
    hops: Hops = 0
    slot: Slot = 0
    brother_latency: Time | None = None


class NotMyChild(TreeMessage, frozen=True, tag=4):
    """The answer to a ChildState: my node of this level does not list you."""

    by: Address
    level: LevelNumber
    slot: Slot = 0


class RemoveChild(TreeMessage, frozen=True, tag=5):
    """Remove me, `by`, from the children of your node of this level."""

    by: Address
    level: LevelNumber
    hops: Hops = 0
    slot: Slot = 0


class TakeOver(TreeMessage, frozen=True, tag=6):
    """You own these nodes from now on: a chain from `level` upwards, with the children of each.

    You are a child in each of them yourself, and not listed.
    """

    level: LevelNumber
    chain: tuple[tuple[NodeEntry, ...], ...]
    parent: Address | None
    former: Address | None
    hops: Hops = 0
    slot: Slot = 0


class Dissolve(TreeMessage, frozen=True, tag=7):
    """Your node of this level has too few children: give them to your brother `into`."""

    level: LevelNumber
    into: Address
    hops: Hops = 0
    slot: Slot = 0


class Merge(TreeMessage, frozen=True, tag=8):
    """The children of a dissolved node, for your node of this level."""

    level: LevelNumber
    children: tuple[NodeEntry, ...]
    hops: Hops = 0
    slot: Slot = 0


class PublicationMessage(TreeMessage, frozen=True):
    """A message that carries a publication; `hops` counts the messages so far, with this one."""

    publication: Publication
    hops: Hops

    def carries(self) -> PublicationId:
        return self.publication.id

    def levels(self, top: int) -> tuple[int, int]:
        """The levels of the tree nodes from which and to which it goes.

        `top` is the highest level that the receiver owns.
        """
        return 0, top


class PublishDown(PublicationMessage, frozen=True, tag=9):
    """From the parent into your node of this level."""

    level: LevelNumber
    slot: Slot = 0

    def levels(self, top: int) -> tuple[int, int]:  # noqa: ARG002
        return self.level + 1, self.level


class PublishToBrother(PublicationMessage, frozen=True, tag=10):
    """From a brother of your node of this level into that node."""

    level: LevelNumber
    slot: Slot = 0

    def levels(self, top: int) -> tuple[int, int]:  # noqa: ARG002
        return self.level, self.level


class PublishUp(PublicationMessage, frozen=True, tag=11):
    """From `child`, a child of this level, to its parent."""

    child: Address
    level: LevelNumber
    slot: Slot = 0

    def levels(self, top: int) -> tuple[int, int]:  # noqa: ARG002
        return self.level, self.level + 1


class PublishToRoot(PublicationMessage, frozen=True, tag=12):
    """For the root, which sends it down; any other member forwards it to its parent."""

    slot: Slot = 0


class PublishForOutsider(PublicationMessage, frozen=True, tag=13):
    """From a node outside the tree: publish this for me."""

    slot: Slot = 0


class Ping(TreeMessage, frozen=True, tag=14):
    """Answer with a Pong at once; `sent` is by the clock of the sender."""

    by: Address
    sent: Time
    slot: Slot = 0


class Pong(TreeMessage, frozen=True, tag=15):
    """The answer to a Ping, with its `sent`."""

    by: Address
    sent: Time
    slot: Slot = 0


CODEC = Codec(
    Join, ParentState, ChildState, NotMyChild, RemoveChild, TakeOver, Dissolve, Merge,
    PublishDown, PublishToBrother, PublishUp, PublishToRoot, PublishForOutsider,
    Ping, Pong,
)  # fmt: skip
