"""Machine: who may knock at an HTTP server: the Host, Origin and content type of a request, and whether a listener may
be open without a login.

A web page that a person visits can make the browser send requests to any address that the browser reaches, such as
servers on 127.0.0.1 and in the company's network. It chooses method, path and body, but not these:

| Header | Sent by browsers | Allowed |
|---|---|---|
| Host | always; a page that rebinds its name to our address has that name | addresses, localhost, the server's names |
| Origin, Sec-Fetch-Site | with every change that a page requests | our own pages |
| Content-Type | text/plain, forms and multipart need no permission of ours | JSON, and Confluent's types |

A server with a login does not check Host: a rebound name has no password. It checks the others, because browsers add
passwords that they remember.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from socket import gethostname
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct, field

from barnabas.core.addresses import is_literal, is_loopback
from barnabas.core.errors import BarnabasError

CONTENT_TYPES: Final = frozenset(
    {
        "application/json",
        "application/vnd.schemaregistry.v1+json",
        "application/vnd.schemaregistry+json",
        "application/octet-stream",
    }
)
"""The types of bodies of Confluent's registry and of Connect. A browser asks for permission before it sends one."""
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class OpenListenerError(BarnabasError):
    """A listener that other hosts reach has no login."""


class HttpRefusal(Struct, frozen=True):
    """Why a request is not handled, as a status and a sentence, and the headers of the answer."""

    status: int
    message: str
    headers: Mapping[str, str] = field(default_factory=dict)


class HttpDoors:
    """Decides by the head of a request. `names` are the host names of the server, besides addresses, localhost and the
    name of this host; None stands for a server with a login, which does not check Host."""

    def __init__(self, names: Collection[str] | None, content_types: Collection[str] | None = CONTENT_TYPES) -> None:
        """`content_types` is None for a server that checks them itself."""
        own = gethostname().lower()
        self._names = None if names is None else frozenset({own, *(name.lower() for name in names if name)})
        self._content_types = None if content_types is None else frozenset(content_types)

    def refusal(self, method: str, headers: Mapping[str, str]) -> HttpRefusal | None:
        """None if the request may pass. Names of headers are lower case."""
        host = headers.get("host", "")
        name = host_name(host)
        if self._names is not None and host and not (is_literal(name) or name == "localhost" or name in self._names):
            return HttpRefusal(
                403,
                f"This server does not answer to the name {name[:100]!r}: use its address, or let its settings"
                " advertise the name.",
            )
        if _is_foreign(method, host, headers):
            return HttpRefusal(403, "This server does not answer to the pages of other web sites.")
        if self._content_types is None or method in _READING or not has_body(headers):
            return None
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind in self._content_types or (not kind and not _is_browser(headers)):
            return None
        return HttpRefusal(
            415, f"HTTP 415 Unsupported Media Type: send application/json, not {kind[:100] or 'nothing'}"
        )


def host_name(host: str) -> str:
    """The name or address of a Host header, without its port, in lower case."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().rstrip(".")


def _is_foreign(method: str, host: str, headers: Mapping[str, str]) -> bool:
    """Whether a page of another site has sent the request. A link that a person follows is not foreign."""
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
        return True
    if headers.get("sec-fetch-site", "") not in ("cross-site", "same-site"):
        return False
    return method not in _READING or headers.get("sec-fetch-mode", "") != "navigate"


def _is_browser(headers: Mapping[str, str]) -> bool:
    return "origin" in headers or "sec-fetch-site" in headers


def has_body(headers: Mapping[str, str]) -> bool:
    return "transfer-encoding" in headers or headers.get("content-length", "0").strip("0 ") != ""


def require_login(what: str, host: str, *, has_login: bool, insecure: bool, remedy: str) -> None:
    """Raises OpenListenerError if other hosts reach a listener at `host`, and the listener has no login."""
    if has_login or insecure or is_loopback(host):
        return
    where = f"at {host}" if host else "on all addresses of this host"
    raise OpenListenerError(
        f"{what} would listen {where} without a login: everybody who can connect could use it. {remedy}, or let it"
        " listen on 127.0.0.1. With --insecure it starts all the same."
    )
