"""What members of a DR-tree say to each other. An address is a member: node · SLOTS + slot.

The node is where a message goes; the slot, mostly 0, is in the message.

joiner                contact … root … owner of the level above
  │── Join ───────────────▶│── Join ──▶│  climbs to the root, descends by least enlargement
  │◀───────────────────────── Yours ───│  adopted; a new root is made where heights are equal

child                    parent                      a split, a swap, a goodbye
  │── Mine (each check,  ─▶│                          owner ── Take ──▶ promoted child
  │   and when it grows)   │                          promoted child ── Yours ──▶ its children
  │◀─ Yours (each check) ──│                          promoted child ── Mine ──▶ its new parent
  │◀─ NotYours ────────────│ I do not list you
  │── Gone ───────────────▶│ do not list me
  │◀─ Dissolve ────────────│ your node is too small    child ── Merge ──▶ its brother

brother ── Ping ──▶ brother ── Pong ──▶ brother        where latency decides who owns a node

publication: Up and Down along the tree, Side to brothers, ToRoot, Enter from outside the tree.
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
MAX_HOPS = 128  # a request that has come so far goes round in circles
MAX_FORWARDS = 16  # of a message for a node that has changed hands


class NodeEntry(Struct, frozen=True, array_like=True):
    """A node of the tree as its parent knows it: owner, box, and how many children it has."""

    address: Address
    box: Box
    count: Annotated[int, Meta(ge=0, lt=2**31)] = 0

    def __post_init__(self) -> None:
        require_numbers(self.box)


class TreeMessage(Message, frozen=True):
    """A message between the members of a DR-tree."""

    protocol: ClassVar[str] = "drtree"


class Join(TreeMessage, frozen=True, tag=1):
    """Take this node of level `level` into the tree. `at` 0: on its way up to the root."""

    child: NodeEntry
    level: LevelNumber
    at: LevelNumber = 0
    hops: Hops = 0
    slot: Slot = 0


class ParentState(TreeMessage, frozen=True, tag=2):
    """You are a child of my node of this level, which has this box; and what a child should know.

    `above`: for links to ancestors or to the root: who owns the path from my node upwards, and
    from which level on. `brothers`: for links to brothers. `adopted`: from now on.
    `passed`: whom I list; it has passed this on to whom it has handed its node.
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
    """You are the parent of my node of this level. `former`: who owned it before me.

    `apart`: my mean round trip to my brothers, if I have measured it.
    """

    level: LevelNumber
    child: NodeEntry
    former: Address | None = None
    hops: Hops = 0
    slot: Slot = 0
    brother_latency: Time | None = None


class NotMyChild(TreeMessage, frozen=True, tag=4):
    by: Address
    level: LevelNumber
    slot: Slot = 0


class RemoveChild(TreeMessage, frozen=True, tag=5):
    """I am no child of your node of this level."""

    by: Address
    level: LevelNumber
    hops: Hops = 0
    slot: Slot = 0


class TakeOver(TreeMessage, frozen=True, tag=6):
    """Own these nodes, from `level` upwards; you yourself are a child in each, and not listed."""

    level: LevelNumber
    chain: tuple[tuple[NodeEntry, ...], ...]
    parent: Address | None
    former: Address | None
    hops: Hops = 0
    slot: Slot = 0


class Dissolve(TreeMessage, frozen=True, tag=7):
    """Give the children of your node of this level to this brother of yours."""

    level: LevelNumber
    into: Address
    hops: Hops = 0
    slot: Slot = 0


class Merge(TreeMessage, frozen=True, tag=8):
    """Take these as children of your node of this level."""

    level: LevelNumber
    children: tuple[NodeEntry, ...]
    hops: Hops = 0
    slot: Slot = 0


class PublicationMessage(TreeMessage, frozen=True):
    """A publication on its way, after `hops` messages including this one."""

    publication: Publication
    hops: Hops

    def carries(self) -> PublicationId:
        return self.publication.id

    def levels(self, top: int) -> tuple[int, int]:
        """Of the nodes of the tree between which it goes; `top` is the receiver's uppermost."""
        return 0, top


class PublishDown(PublicationMessage, frozen=True, tag=9):
    """Into your node of this level."""

    level: LevelNumber
    slot: Slot = 0

    def levels(self, top: int) -> tuple[int, int]:  # noqa: ARG002
        return self.level + 1, self.level


class PublishToBrother(PublicationMessage, frozen=True, tag=10):
    """Into your node of this level, from a brother of it."""

    level: LevelNumber
    slot: Slot = 0

    def levels(self, top: int) -> tuple[int, int]:  # noqa: ARG002
        return self.level, self.level


class PublishUp(PublicationMessage, frozen=True, tag=11):
    """From this child, of this level, of a node of yours."""

    child: Address
    level: LevelNumber
    slot: Slot = 0

    def levels(self, top: int) -> tuple[int, int]:  # noqa: ARG002
        return self.level, self.level + 1


class PublishToRoot(PublicationMessage, frozen=True, tag=12):
    """The root sends it down; whoever is not the root passes it to its parent."""

    slot: Slot = 0


class PublishForOutsider(PublicationMessage, frozen=True, tag=13):
    """Publish this for me: I am not in the tree."""

    slot: Slot = 0


class Ping(TreeMessage, frozen=True, tag=14):
    """Send this back to me at once; `sent` is my own clock's."""

    by: Address
    sent: Time
    slot: Slot = 0


class Pong(TreeMessage, frozen=True, tag=15):
    by: Address
    sent: Time
    slot: Slot = 0


CODEC = Codec(
    Join, ParentState, ChildState, NotMyChild, RemoveChild, TakeOver, Dissolve, Merge,
    PublishDown, PublishToBrother, PublishUp, PublishToRoot, PublishForOutsider,
    Ping, Pong,
)  # fmt: skip
