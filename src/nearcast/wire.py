"""Messages to bytes and back. The simulator uses the same codec for a message's true size."""

from typing import Any, Union

import msgspec

from nearcast.errors import WireError
from nearcast.node import Message

LONGEST = 1 << 20  # bytes of one message; longer ones are refused


class Codec:
    """Encodes and decodes the messages of one protocol; the struct's tag tells them apart."""

    def __init__(self, *messages: type[Message]) -> None:
        self.messages = messages
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Union[messages])  # noqa: UP007
        self.encode = self._encoder.encode

    def size(self, message: Message) -> int:
        return len(self.encode(message))

    def decode(self, data: bytes) -> Message:
        if len(data) > LONGEST:
            raise WireError(f"a message of {len(data)} bytes is longer than {LONGEST}")
        try:
            message: Message = self._decoder.decode(data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as why:
            raise WireError(" ".join(str(why)[:200].split())) from None  # names may be long
        return message
