"""Hypothesis strategies for messages of every protocol."""

import enum
from functools import cache
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from nearcast.model.publication import Publication
from nearcast.model.subscription import Filter, Formula, Subscription
from nearcast.node import Message
from nearcast.protocols.relays.compression import CompressedUpdate, deflate
from nearcast.protocols.relays.messages import CODEC, Update
from nearcast.space.motion import Moving, Path
from nearcast.space.shapes import Shape
from support.strategies import movings, publications, regions, shapes, subscriptions

FINITE = st.floats(allow_nan=False, allow_infinity=False)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)


VALUES = st.booleans() | st.integers(-(2**63), 2**63 - 1) | FINITE | TEXTS


# What has a meaning of its own is drawn by the strategies that know it.
PIECES: dict[type, st.SearchStrategy[Any]] = {
    Shape: shapes(),
    Moving: movings(),
    Path: regions().filter(lambda region: isinstance(region, Path)),
    Formula: regions().filter(lambda region: isinstance(region, Formula)),
    Filter: st.just(Filter('kind != "pear"', 5)),
    Subscription: subscriptions(),
    Publication: st.builds(
        msgspec.structs.replace,
        publications(),
        payload=st.binary(max_size=40),
        attributes=st.dictionaries(TEXTS.map("_{}".format), VALUES, max_size=3),
        channel=TEXTS,
    ),
}


def integers(kind: inspect.IntType) -> st.SearchStrategy[int]:
    low, high = -(2**63), 2**63 - 1
    if kind.ge is not None or kind.gt is not None:
        low = kind.ge if kind.ge is not None else (kind.gt or 0) + 1
    if kind.le is not None or kind.lt is not None:
        high = kind.le if kind.le is not None else (kind.lt or 0) - 1
    return st.integers(low, high) | st.sampled_from([low, high])


def values(kind: inspect.Type) -> st.SearchStrategy[Any]:
    """Any value of a type that msgspec has looked at."""
    match kind:
        case inspect.StructType(cls=cls, fields=fields):
            parts = {field.name: values(field.type) for field in fields}
            return PIECES[cls] if cls in PIECES else st.builds(cls, **parts)
        case inspect.IntType():
            return integers(kind)
        case inspect.UnionType(types=types):
            return st.one_of(*map(values, types))
        case inspect.VarTupleType(item_type=item):
            return st.lists(values(item), max_size=2).map(tuple)  # more are too much to draw
        case inspect.TupleType(item_types=items):
            return st.tuples(*map(values, items))
        case inspect.ListType(item_type=item):
            return st.lists(values(item), max_size=2)
        case inspect.DictType(key_type=key, value_type=value):
            return st.dictionaries(values(key), values(value), max_size=3)
        case inspect.EnumType(cls=cls):
            members: type[enum.Enum] = cls
            return st.sampled_from(list(members))
        case inspect.LiteralType(values=literals):
            return st.sampled_from(list(literals))
        case inspect.FloatType(ge=low):
            return FINITE if low is None else st.floats(low, allow_infinity=False)
        case inspect.BoolType():
            return st.booleans()
        case inspect.StrType():
            return TEXTS
        case inspect.BytesType():
            return st.binary(max_size=12)
        case inspect.NoneType():
            return st.none()
    raise AssertionError(f"say here how to draw {kind}")


@cache  # to make a strategy takes longer than to draw from it
def messages(kind: type[Message]) -> st.SearchStrategy[Any]:
    return values(inspect.type_info(kind))


PIECES[CompressedUpdate] = messages(Update).map(lambda update: deflate(CODEC.encode(update)))
