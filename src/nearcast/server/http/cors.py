"""Which web pages may speak to a node, and what their browsers are told (the setting `cors`).

Browsers say in `Origin` where a page comes from. They let it read an answer only if that names the
page's origin, and ask with OPTIONS before requests that a plain form could not make.
"""

from collections.abc import Mapping
from typing import TypeAlias
from urllib.parse import urlsplit

from nearcast.server.access.tokens import foreign_page_refusal
from nearcast.server.http.head import Headers

Origins: TypeAlias = frozenset[str]  # like https://example.org, or *
REMEMBER_S = 600  # for which a browser need not ask again


def origin_allowed(origin: str | None, origins: Origins) -> bool:
    return origin is not None and ("*" in origins or origin.lower() in origins)


def page_refusal(headers: Mapping[str, str], open_to_all: bool, origins: Origins) -> str | None:
    """Why a page may not speak to this node; None if it may, or if no page speaks.

    A token is said by the page itself, in a header, in the address or in `join`; it is not added by
    the browser, as a cookie would be. So a page that knows one is as good as any other client,
    wherever it comes from, unless `cors` names origins: then these and the node's own may speak.
    Without tokens pages of this machine may, and those that `cors` names; and all must call the
    node by a loopback name, because any other could be made to mean this machine (DNS rebinding).
    """
    origin, host = headers.get("origin"), headers.get("host", "")
    if origin_allowed(origin, origins):
        return foreign_page_refusal({"host": host}, open_to_all)
    if reason := foreign_page_refusal(headers, open_to_all):
        return reason
    if origin is not None and origins and not open_to_all and urlsplit(origin).netloc != host:
        return f"pages from {origin[:80]!r} may not speak to this node: see the setting cors"
    return None


def answer_headers(
    asked: Mapping[str, str], origins: Origins, methods: tuple[str, ...] = ()
) -> Headers:
    """For an answer to a page; with `methods`, for the answer to its browser's OPTIONS."""
    if not origins:
        return ()
    origin = asked.get("origin")
    if origin is None or not origin_allowed(origin, origins):
        return (("Vary", "Origin"),)
    headers: Headers = (("Access-Control-Allow-Origin", origin), ("Vary", "Origin"))
    if methods:
        headers += (
            ("Access-Control-Allow-Methods", ", ".join(methods)),
            ("Access-Control-Allow-Headers", "Authorization, Content-Type"),
            ("Access-Control-Max-Age", str(REMEMBER_S)),
        )
    return headers
