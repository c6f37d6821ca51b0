"""Shell: TLS and HTTP basic authentication of an HTTP server. Certificates and the file of users are read again when
they have changed.

    security = HttpSecurity(config, now)
    asyncio.start_server(..., ssl=security.context)
    await security.refusal(authorization)       None, or 401 or 503
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from barnabas.core.config import ConfigError
from barnabas.core.errors import BarnabasError
from barnabas.core.telemetry import get_logger
from barnabas.protocol.security.config import TlsConfig
from barnabas.protocol.transport.http_settings import (
    HttpLoginConfig,
    HttpSecurityConfig,
    HttpTlsConfig,
    HttpUser,
    parse_users,
)
from barnabas.protocol.transport.tls_files import StoreFiles
from barnabas.protocol.transport.tls_server import TlsServerConfig, build_server_context
from barnabas.protocol.transport.tls_stores import load_own_certificate, load_trusted_certificates

log = get_logger("barnabas.protocol.transport.http")

UNAUTHORIZED: Final = 401
UNAVAILABLE: Final = 503
_CREDENTIALS_MAX: Final = 4096
"""The longest `Authorization` header that is looked at."""


class HttpUsers(Protocol):
    """Checks passwords."""

    def knows(self, name: str, password: str) -> bool:
        """Whether the password is known to be right, without an effort that a flood of guesses could multiply."""
        ...

    async def accepts(self, name: str, password: str) -> bool:
        """Whether a user with this password may use the server. Raises BarnabasError if that cannot be found out."""
        ...


class HttpSecurity:
    """The security of one HTTP server. Raises ConfigError if a setting cannot be used. `now` gives a monotonic time in
    seconds. `users` replaces the file of users."""

    def __init__(self, config: HttpSecurityConfig, now: Callable[[], float], users: HttpUsers | None = None) -> None:
        self._tls = None if config.tls is None else _HttpTls(config.tls, now)
        self._login = config.login
        self._users = users
        if users is None and config.login is not None:
            self._users = FileUsers(config.login, now)

    @property
    def context(self) -> ssl.SSLContext | None:
        """The context of all connections; None without TLS."""
        return None if self._tls is None else self._tls.context

    @property
    def has_login(self) -> bool:
        """Whether clients say who they are, by a password or a certificate."""
        return self._users is not None or (self._tls is not None and self._tls.needs_certificates)

    def is_known(self, authorization: str) -> bool:
        """Whether everybody may pass, or this `Authorization` header is known to be right."""
        if self._users is None:
            return True
        credentials = decode_basic(authorization)
        return credentials is not None and self._users.knows(*credentials)

    @property
    def challenge(self) -> str:
        """The value of the header WWW-Authenticate of a refusal."""
        return f'Basic realm="{"" if self._login is None else self._login.realm}"'

    def refresh(self) -> None:
        """Use changed certificates for later connections. Called for each connection."""
        if self._tls is not None:
            self._tls.refresh()

    async def refusal(self, authorization: str) -> int | None:
        """The status with which a request is refused that has this `Authorization` header; None if it may pass."""
        if self._users is None:
            return None
        credentials = decode_basic(authorization)
        if credentials is None:
            return UNAUTHORIZED
        try:
            return None if await self._users.accepts(*credentials) else UNAUTHORIZED
        except BarnabasError as error:
            log.warning("a login could not be checked", reason=str(error))
            return UNAVAILABLE


def decode_basic(authorization: str) -> tuple[str, str] | None:
    """The user and the password of an `Authorization` header; None if it has none."""
    scheme, _, encoded = authorization.strip().partition(" ")
    if scheme.lower() != "basic" or len(encoded) > _CREDENTIALS_MAX:
        return None
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return (name, password) if colon else None


class FileUsers:
    """The users in a file, which is read again when it has changed. A file that cannot be used is logged, and the
    previous users stay."""

    def __init__(self, config: HttpLoginConfig, now: Callable[[], float]) -> None:
        assert config.users_file is not None, "checked when the settings are read"
        self._roles = config.roles
        self._path = config.users_file
        self._files = StoreFiles(TlsConfig(ssl_certificate_location=self._path), now)
        self._users = self._read()

    async def accepts(self, name: str, password: str) -> bool:
        return self.knows(name, password)

    def knows(self, name: str, password: str) -> bool:
        if self._files.have_changed():
            try:
                self._users = self._read()
            except ConfigError as error:
                log.error("the changed file of users is refused; the previous users stay", reason=str(error))
        user = self._users.get(name)
        same = hmac.compare_digest(password.encode(), b"" if user is None else user.password.encode())
        return user is not None and same and (not self._roles or bool(self._roles & user.roles))

    def _read(self) -> dict[str, HttpUser]:
        try:
            text = Path(self._path).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"The file of users {self._path} cannot be read: {error}") from error
        return parse_users(text, self._path)


class _HttpTls:
    """A TLS context into which changed certificates are loaded."""

    def __init__(self, config: HttpTlsConfig, now: Callable[[], float]) -> None:
        self._config = TlsServerConfig(config.tls, config.client_auth)
        self._files = StoreFiles(config.tls, now)  # before they are read: a change while they are read is noticed
        self.context = build_server_context(self._config)
        self.needs_certificates = config.client_auth == "required"

    def refresh(self) -> None:
        if not self._files.have_changed():
            return
        try:
            build_server_context(self._config)  # nothing is loaded into the context in use if a file does not fit
            load_own_certificate(self.context, self._config.tls)
            if self._config.ssl_client_auth != "none":
                load_trusted_certificates(self.context, self._config.tls)
        except ConfigError as error:
            log.error("the changed certificate files are refused; the previous ones stay in use", reason=str(error))
        else:
            log.info("certificate files reloaded", key_store=self._config.tls.ssl_certificate_location)
