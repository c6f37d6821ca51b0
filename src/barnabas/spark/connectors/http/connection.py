"""Shell: one connection to a web service, kept from request to request."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from barnabas.spark.connectors.http.retrying import Answer

_TEXT_MAX: Final = 500
"""The number of bytes of an answer that an error shows."""
_ANSWER_MAX: Final = 1024 * 1024
"""An answer that is longer ends the connection instead of being read."""


class HttpConnection:
    """Sends requests one after another."""

    def __init__(self, url: str, timeout_s: float) -> None:
        parts = urlsplit(url)
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        host = parts.hostname or ""
        self._connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context()
            self._connection = http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=context)
        else:
            self._connection = http.client.HTTPConnection(host, parts.port, timeout=timeout_s)

    def send(self, method: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        """Send a request and read the answer. A connection that fails is an answer without a status."""
        reused = self._connection.sock is not None
        try:
            return self._send(method, body, headers)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError) as error:
            self.close()
            if not reused:
                return Answer(None, repr(error))
        except (OSError, http.client.HTTPException) as error:
            self.close()
            return Answer(None, repr(error))
        # The server has closed a connection that was idle. The request has a key, and may be sent twice.
        try:
            return self._send(method, body, headers)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            return Answer(None, repr(error))

    def _send(self, method: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        self._connection.request(method, self._path, body, dict(headers))
        response = self._connection.getresponse()
        content = response.read(_ANSWER_MAX)
        if not response.isclosed():
            self.close()
        text = content[:_TEXT_MAX].decode(errors="replace").strip() or response.reason
        return Answer(response.status, text, response.headers.get("Retry-After"), response.headers.get("Location"))

    def close(self) -> None:
        self._connection.close()
