"""Shell: TLS and users of the registry's HTTP server.

The settings are those of `protocol/transport/http/settings.py`, whose names are Confluent's, and two more:

    authentication.users     file (authentication.users.file has the users), or cluster
    host.name                the name by which clients reach the registry

With `cluster` the users are those of the Kafka cluster: a user name and a password are right if the cluster accepts a
login with them, by the mechanism of the registry's own connection (SCRAM or PLAIN).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from barnabas.client.admin import AsyncAdmin
from barnabas.core.config import ConfigError
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.security.credentials import PASSWORD_MECHANISMS
from barnabas.protocol.transport.http.security import HttpSecurity
from barnabas.protocol.transport.http.settings import METHOD, ROLES, USERS_FILE, read_http_security

USERS: Final = "authentication.users"
HOST_NAME: Final = "host.name"
SETTINGS: Final[Mapping[str, str]] = {
    USERS: "file: the users of authentication.users.file; cluster: those of the Kafka cluster. Without it, file.",
    HOST_NAME: "The name by which clients reach a registry without a login, besides addresses, localhost and the name"
    " of its host. Requests for other names are refused, since they may come from a web page.",
}
"""The settings that only the registry has, each with its meaning."""
_TIMEOUT_MS: Final = 10_000
_OWN_LOGIN: Final = ("sasl.jaas.config", "sasl.username", "sasl.password", "sasl_plain_username", "sasl_plain_password")


def build_security(
    configs: Mapping[str, str], settings: Mapping[str, object], *, is_https: bool, prefix: str = ""
) -> HttpSecurity | None:
    """None if everybody may use the registry, without TLS. `settings` are those of the registry's Kafka client. Raises
    ConfigError."""
    own = {name.removeprefix(prefix): text for name, text in configs.items() if name.startswith(prefix)}
    source = own.pop(USERS, "file").strip().lower()
    if source not in ("file", "cluster"):
        raise ConfigError(f"{prefix}{USERS}={source}: use file or cluster.")
    config = read_http_security(own, is_https=is_https, prefix="", needs_file=source == "file")
    if config.tls is None and config.login is None:
        return None
    if config.login is None or source == "file":
        return HttpSecurity(config, time.monotonic)
    if config.login.users_file is not None or config.login.roles:
        unused = USERS_FILE if config.login.users_file is not None else ROLES
        raise ConfigError(f"{prefix}{unused} has no effect with {prefix}{USERS}=cluster. Remove one of them.")
    mechanism = str(settings.get("sasl.mechanism") or settings.get("sasl.mechanisms") or "").upper()
    if mechanism not in PASSWORD_MECHANISMS:
        raise ConfigError(
            f"{prefix}{METHOD}=BASIC with {prefix}{USERS}=cluster needs a registry that logs in to Kafka with"
            f" {', '.join(PASSWORD_MECHANISMS)}: set security.protocol, sasl.mechanism and the registry's own user."
        )
    return HttpSecurity(config, time.monotonic, ClusterUsers(_login_to(settings)))


LogIn = Callable[[str, str], Awaitable[None]]
"""Logs a user in to the cluster. Raises KafkaError SASL_AUTHENTICATION_FAILED for a wrong password."""


def _login_to(settings: Mapping[str, object]) -> LogIn:
    kept = {name: value for name, value in settings.items() if name not in _OWN_LOGIN}

    async def log_in(name: str, password: str) -> None:
        config = {**kept, "sasl.username": name, "sasl.password": password}
        async with AsyncAdmin(config) as admin:
            await admin.describe_cluster(timeout_ms=_TIMEOUT_MS)

    return log_in


class ClusterUsers:
    """The `HttpUsers` of a Kafka cluster."""

    def __init__(self, log_in: LogIn) -> None:
        self._log_in = log_in

    def secret(self, name: str) -> str:
        """The registry does not know when the password of a user changes."""
        return ""

    async def is_right(self, name: str, password: str) -> bool:
        """Raises KafkaError if the cluster does not answer."""
        try:
            await self._log_in(name, password)
        except KafkaError as error:
            if error.code is not ErrorCode.SASL_AUTHENTICATION_FAILED:
                raise
            return False
        return True
