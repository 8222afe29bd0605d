"""Checks of requests before they are sent: an error here instead of a refusal by the node."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import Raw

from nearcast.client_protocol import messages
from nearcast.errors import InvalidRequestError
from nearcast.model.publication import check_attributes
from nearcast.model.subscription import Value


@contextmanager
def _invalid() -> Iterator[None]:
    try:
        yield
    except ValueError as why:
        raise InvalidRequestError(" ".join(str(why).split())) from None


def checked_payload(encoding: messages.Encoding, payload: Any) -> Raw:
    """A payload as it is sent. Invalid if MessagePack cannot express it, or it nests too deep."""
    try:
        packed = encoding.encode_payload(payload)
    except RecursionError:
        raise InvalidRequestError("this payload cannot be sent: it is nested too deep") from None
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as why:
        raise InvalidRequestError(f"this payload cannot be sent: {why}") from None
    if len(packed):
        with _invalid():
            encoding.check_payload(packed)
    return packed


def checked_attributes(attributes: dict[str, Value] | None) -> dict[str, Value]:
    """Invalid unless each is a boolean, an integer of 64 bits, a finite number or a text."""
    for name, value in (attributes or {}).items():
        if type(name) is not str or type(value) not in (bool, int, float, str):
            kind = type(value).__name__
            raise InvalidRequestError(
                f"attribute {name!r} is a boolean, a number or a text, not a {kind}"
            )
    with _invalid():
        check_attributes(attributes or {})
    return attributes or {}


def check_request(request: messages.Request) -> None:
    """Invalid unless all fields, of a request without payload, have the types of the protocol."""
    try:
        plain = msgspec.to_builtins(request)
        msgspec.convert(plain, type(request))
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as why:
        raise InvalidRequestError(f"this request cannot be sent: {why}") from None
    if name := _not_a_number(plain):
        raise InvalidRequestError(f"this request cannot be sent: {name} is not a number (NaN)")


def _not_a_number(value: Any, name: str = "") -> str:
    """The name of a field that is NaN; "" if none is."""
    if isinstance(value, dict):
        return next(filter(None, (_not_a_number(inner, key) for key, inner in value.items())), "")
    if isinstance(value, list | tuple):
        return next(filter(None, (_not_a_number(inner, name) for inner in value)), "")
    return name if value != value else ""
