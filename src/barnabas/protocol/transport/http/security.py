"""Shell: TLS and HTTP basic authentication of an HTTP server. Certificates and the file of users are read again when
they have changed.

    security = HttpSecurity(config, now)
    security.context                                        the TLS context of new connections
    await security.refusal(authorization, address)          None, or 401, 429 or 503
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from http import HTTPStatus

from barnabas.core.config import ConfigError
from barnabas.core.errors import BarnabasError
from barnabas.core.telemetry import get_logger
from barnabas.protocol.transport.http.doors import HttpRefusal
from barnabas.protocol.transport.http.logins import HttpUsers, Logins, TooManyLoginsError, decode_basic
from barnabas.protocol.transport.http.settings import HttpSecurityConfig, HttpTlsConfig, parse_users
from barnabas.protocol.transport.http.users import UsersFile
from barnabas.protocol.transport.tls_files import StoreFiles
from barnabas.protocol.transport.tls_server import TlsServerConfig, build_server_context
from barnabas.protocol.transport.tls_stores import load_own_certificate, load_trusted_certificates

log = get_logger("barnabas.protocol.transport.http")


class HttpSecurity:
    """The security of one HTTP server. Raises ConfigError if a setting cannot be used. `now` gives a monotonic time in
    seconds. `users` replaces the file of users."""

    def __init__(self, config: HttpSecurityConfig, now: Callable[[], float], users: HttpUsers | None = None) -> None:
        self._tls = None if config.tls is None else _HttpTls(config.tls, now)
        self._config = config.login
        self._logins: Logins | None = None
        if config.login is not None:
            self._logins = Logins(_users_in_file(config) if users is None else users, now)

    @property
    def context(self) -> ssl.SSLContext | None:
        """The context of all connections; None without TLS."""
        return None if self._tls is None else self._tls.context

    @property
    def has_login(self) -> bool:
        """Whether clients say who they are, by a password or a certificate."""
        return self._logins is not None or (self._tls is not None and self._tls.needs_certificates)

    def refresh(self) -> None:
        """Use changed certificates for later connections. Called for each connection."""
        if self._tls is not None:
            self._tls.refresh()

    async def refusal(self, authorization: str, address: str) -> HttpRefusal | None:
        """Why a request with this `Authorization` header, from this address, is refused; None if it may pass."""
        if self._logins is None or self._config is None:
            return None
        credentials = decode_basic(authorization)
        try:
            if credentials is not None and await self._logins.accepts(*credentials, address):
                return None
        except TooManyLoginsError as error:
            return HttpRefusal(HTTPStatus.TOO_MANY_REQUESTS, str(error), {"Retry-After": str(error.wait_s)})
        except BarnabasError as error:
            log.warning("a login could not be checked", reason=str(error))
            return HttpRefusal(HTTPStatus.SERVICE_UNAVAILABLE, "The login could not be checked.")
        challenge = {"WWW-Authenticate": f'Basic realm="{self._config.realm}"'}
        return HttpRefusal(HTTPStatus.UNAUTHORIZED, self._config.refusal, challenge)


def _users_in_file(config: HttpSecurityConfig) -> HttpUsers:
    assert config.login is not None, "a login is configured"
    assert config.login.users_file is not None, "checked when the settings are read"
    roles = config.login.roles
    return UsersFile(config.login.users_file, parse_users, lambda user: not roles or bool(roles & user.roles))


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
