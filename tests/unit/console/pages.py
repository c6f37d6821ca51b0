"""A console over an embedded broker, for the tests of pages: a client that carries cookies and sends tokens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from barnabas.console.access.users import Role, user_line
from barnabas.console.settings import BrowseLimits, ConsoleSettings, SamplingLimits
from barnabas.console.web.app import ConsoleApp
from barnabas.protocol.security.password_hash import hash_password

LIMITS = BrowseLimits(records=20, scanned_records=5_000, live_views=1, live_seconds=30.0)


class Browser:
    """Requests pages, documents and changes."""

    def __init__(self, client: TestClient) -> None:
        self.client = client

    def page(self, path: str, status: int = 200) -> str:
        response = self.client.get(path)
        assert response.status_code == status, response.text
        assert response.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
        return unescape(response.text)

    def document(self, path: str, status: int = 200) -> Any:
        response = self.client.get(f"/api{path}")
        assert response.status_code == status, response.text
        return response.json()

    def change(self, path: str, status: int = 200, **fields: object) -> Any:
        token = self.client.get("/api/session").json()["csrf"]
        response = self.client.post(f"/api{path}", json=fields, headers={"x-csrf-token": token})
        assert response.status_code == status, response.text
        return response.json()


@contextmanager
def console(bootstrap_servers: str, **settings: Any) -> Iterator[Browser]:
    """A running console application."""
    given = ConsoleSettings(
        {"bootstrap.servers": bootstrap_servers}, browse=LIMITS, sampling=SamplingLimits(interval_s=0.5)
    )
    application = ConsoleApp(replace(given, **settings))
    with TestClient(application.app, base_url="http://127.0.0.1:8090") as client:
        yield Browser(client)


def write_users(path: Path, **users: Role) -> Path:
    """A users file in which each user's password is the name, repeated three times."""
    lines = [user_line(name, role, hash_password(name * 3, bytes(16))) for name, role in users.items()]
    path.write_text("\n".join(lines))
    path.chmod(0o600)
    return path
