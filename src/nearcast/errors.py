"""All errors of Nearcast. Whatever it raises on purpose is a `NearcastError`.

Wrong arguments of plain values (a disc of negative radius) are `ValueError`, as everywhere in
Python. Errors that say that something given is wrong are both.
"""

SHOWN = 30  # characters that an error shows of a word, and of the text on each side of its place


def printable(text: str) -> str:
    """One line, whatever the text: line ends and control characters are shown escaped."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


class NearcastError(Exception):
    """Base of all errors of Nearcast. The text is one line for a person."""


class Refused(NearcastError):  # noqa: N818 (a refusal is no fault)
    """A request is refused; nothing was changed."""


class Busy(Refused):
    """Refused because the node has too much to do. The same request may be accepted later."""


class InvalidRequestError(Refused, ValueError):
    """The client library does not send this request: no node would accept it."""


class NotOfferedError(InvalidRequestError):
    """The overlay that this peer is in cannot do this; the text says who can."""


class ClosedError(NearcastError, ConnectionError):
    """The connection has ended. `code` is its WebSocket close code; 1006 if it just broke."""

    def __init__(self, reason: str, code: int = 1006) -> None:
        super().__init__(reason)
        self.reason, self.code = reason, code


class JoinError(NearcastError, OSError):
    """This node cannot join the cluster, or this peer the overlay."""


class FormulaError(NearcastError, ValueError):
    """Why a formula or filter is not accepted, and where: `position` counts characters from 0."""

    def __init__(self, text: str, position: int, reason: str) -> None:
        super().__init__(text, position, reason)
        self.text = text
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        start, end = max(0, self.position - SHOWN), self.position + SHOWN
        before = "…" if start > 0 else ""
        after = "…" if end < len(self.text) else ""
        excerpt = before + printable(self.text[start:end]) + after
        return f'{self.reason} at character {self.position} of "{excerpt}"'


class ConfigError(NearcastError, ValueError):
    """What is wrong with the settings, and where: a file's line, a variable or a flag."""


class KeyFileError(NearcastError, ValueError):
    """A cluster's key file that cannot be used."""


class AccessError(NearcastError, ValueError):
    """A file of tokens or keys that cannot be used."""


class IdentityError(NearcastError, ValueError):
    """A node's key file that cannot be used."""


class MalformedMessageError(NearcastError, ValueError):
    """A frame of the client protocol that is no message."""


class WireError(NearcastError, ValueError):
    """Bytes that are no message of a protocol. The receiver drops them, its state unchanged."""


class SignatureError(NearcastError, ValueError):
    """A signed publication that this peer does not accept; the text is the reason."""


class TraceError(NearcastError):
    """A trace cannot be written or read."""


class StorageError(NearcastError, OSError):
    """A store does not do what it is asked for: it is out of reach, refuses, or takes too long.

    The text is the URI, a colon, and the reason.
    """

    @property
    def reason(self) -> str:
        return str(self).partition(": ")[2]


class NoJavaError(NearcastError, RuntimeError):
    """Spark needs a Java, and none that works was found."""


class SparkUnavailableError(NearcastError, RuntimeError):
    """Spark cannot be started or reached, or is too old; the text says where and why."""


class StoppedError(NearcastError):
    """A batch of a stream was not begun, because the stream is being stopped."""


class InvariantError(NearcastError, AssertionError):
    """An invariant of a protocol does not hold in a simulation."""


class ColumnsError(NearcastError, ValueError):
    """Columns of a DataFrame that are not there, or not of a type that can be used."""
