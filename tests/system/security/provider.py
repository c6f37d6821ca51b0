"""A provider of tokens for tests: a token endpoint and its keys, over HTTP. The tokens are signed by joserfc."""

from __future__ import annotations

import base64
import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENTS = {"orders": "orders-secret", "node": "node-secret"}
ISSUER = "https://provider.test"
AUDIENCE = "kafka"


class Provider:
    """Runs in a thread while the context is open."""

    def __init__(self) -> None:
        self.lifetime_s = 3600.0
        self.failures = 0
        """So many of the next requests for a token are answered with status 503."""
        self.token_requests = 0
        self.key_requests = 0
        self.rotate("k1")
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.key_requests += 1
                self._answer(200, {"keys": [outer.key.as_dict(private=False)]})

            def do_POST(self) -> None:
                outer.token_requests += 1
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self._answer(*outer.respond(self.headers.get("Authorization", ""), form))

            def _answer(self, status: int, body: object) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Provider:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def rotate(self, kid: str) -> None:
        """Sign with a new key, and forget the old one."""
        self.key: Any = RSAKey.generate_key(2048, {"kid": kid})

    def token(self, user: str = "orders", **claims: Any) -> str:
        now = time.time()
        full = {"sub": user, "iss": ISSUER, "aud": AUDIENCE, "iat": now, "exp": now + self.lifetime_s, **claims}
        return str(jwt.encode({"alg": "RS256", "kid": self.key.kid}, full, self.key))

    def respond(self, authorization: str, form: dict[str, list[str]]) -> tuple[int, object]:
        if self.failures > 0:
            self.failures -= 1
            return 503, {}
        name = "client_assertion" if form.get("grant_type") == ["client_credentials"] else "assertion"
        if name in form:  # the client must have signed the assertion with our own key
            claims = jwt.decode(form[name][0], self.key, algorithms=["RS256"]).claims
            return 200, {"access_token": self.token(f"{name}-of-{claims['sub']}"), "token_type": "Bearer"}
        user, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        if CLIENTS.get(user) != secret:
            return 401, {"error": "invalid_client"}
        return 200, {"access_token": self.token(user), "token_type": "Bearer"}
