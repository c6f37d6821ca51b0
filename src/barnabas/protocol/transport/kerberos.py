"""Shell: Kerberos tickets, keys and security contexts, by MIT Kerberos and the package `gssapi` (the extra `gssapi`).

A client waits for the server of tickets in `KerberosClient`, which therefore runs in a worker thread. A server reads
its key table only, so that `KerberosAcceptor` runs on the event loop. The realm and the servers of tickets are those of
the file /etc/krb5.conf, or of the environment variable KRB5_CONFIG.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from types import ModuleType
from typing import Any, Final, TypeVar

from barnabas.core.config import ConfigError
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.security.kerberos.exchange import GssClientExchange, GssContext, GssError
from barnabas.protocol.security.kerberos.settings import KerberosLogin
from barnabas.protocol.security.sasl_client import SaslClient

T = TypeVar("T")
_UNREACHABLE: Final = -1_765_328_228
"""KRB5_KDC_UNREACH: no server of tickets answers."""


def import_gssapi() -> ModuleType:
    """The package. Raises ConfigError if it is not installed."""
    try:
        import gssapi
    except (ImportError, OSError) as error:
        raise ConfigError(
            "GSSAPI needs the package gssapi and MIT Kerberos. Install them (on Debian: apt-get install libkrb5-dev;"
            " pip install 'barnabas[gssapi]'), or use another mechanism, for example SCRAM-SHA-512."
        ) from error
    module: ModuleType = gssapi
    return module


def begin_exchange(login: KerberosLogin, host: str) -> tuple[SaslClient, bytes]:
    """A new exchange and its first message. Waits for tickets. Raises ConfigError and KafkaError."""
    client = KerberosClient(login, host)
    return client, client.first()


class KerberosClient:
    """An exchange with the broker on `host` (a `SaslClient`). Every method may wait for tickets, and raises KafkaError
    if there is no valid ticket."""

    def __init__(self, login: KerberosLogin, host: str) -> None:
        """Raises ConfigError, too."""
        whose = login.principal or "the user of kinit"
        keys = "" if login.keytab is None else f" with {login.keytab}"
        self._what = f"Kerberos refuses {whose}{keys} a ticket for {login.service_name}@{host}"
        self._exchange = self._checked(lambda: GssClientExchange(_Context(lambda: _initiate(login, host))))

    @property
    def done(self) -> bool:
        return self._exchange.done

    def first(self) -> bytes:
        return self._checked(self._exchange.first)

    def is_long(self, challenge: bytes) -> bool:
        """A step may wait for tickets."""
        return True

    def next(self, challenge: bytes) -> bytes:
        return self._checked(lambda: self._exchange.next(challenge))

    def verify(self, final: bytes) -> bytes | None:
        self._checked(lambda: self._exchange.verify(final))
        return None

    def _checked(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except GssError as error:
            raise KafkaError(
                ErrorCode.SASL_AUTHENTICATION_FAILED,
                f"{self._what}: {error}. Check the principal, its keys, sasl.kerberos.service.name, and that the host"
                " has the name that the principal of the broker has.",
            ) from error


class KerberosAcceptor:
    """The keys of a listener."""

    def __init__(self, principal: str | None, keytab: str | None) -> None:
        """Raises ConfigError if the key table cannot be read or lacks the principal."""
        gssapi = import_gssapi()
        store = {} if keytab is None else {"keytab": keytab}
        try:
            name = None if principal is None else _principal(gssapi, principal)
            self._credentials = gssapi.Credentials(name=name, usage="accept", store=store)
            self.default_realm = _default_realm(gssapi)
        except gssapi.exceptions.GSSError as error:
            raise ConfigError(
                f"The key table {keytab or 'of this host'} has no key of {principal or 'a service'}: {_text(error)}."
                " Create one with kadmin: ktadd -k FILE PRINCIPAL."
            ) from error

    def context(self) -> GssContext:
        """A new context for one client."""
        gssapi = import_gssapi()
        return _Context(lambda: gssapi.SecurityContext(creds=self._credentials, usage="accept"))


class _Context:
    """A `GssContext`."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._context = _guarded(make)

    @property
    def complete(self) -> bool:
        return bool(self._context.complete)

    @property
    def initiator(self) -> str:
        return str(self._context.initiator_name)

    def step(self, token: bytes | None) -> bytes | None:
        answer: bytes | None = _guarded(lambda: self._context.step(token))
        return answer

    def wrap(self, message: bytes) -> bytes:
        wrapped: bytes = _guarded(lambda: self._context.wrap(message, False).message)
        return wrapped

    def unwrap(self, message: bytes) -> bytes:
        unwrapped: bytes = _guarded(lambda: self._context.unwrap(message).message)
        return unwrapped


def _initiate(login: KerberosLogin, host: str) -> Any:
    gssapi = import_gssapi()
    target = gssapi.Name(f"{login.service_name}@{host}", gssapi.NameType.hostbased_service)
    name = None if login.principal is None else _principal(gssapi, login.principal)
    credentials = None
    if login.keytab is not None:
        # The library gets tickets with the key table when they are needed, and keeps them in this cache of the process.
        cache = sha256(f"{login.principal} {login.keytab}".encode()).hexdigest()
        store = {"client_keytab": login.keytab, "ccache": f"MEMORY:barnabas-{cache}"}
        credentials = gssapi.Credentials(name=name, usage="initiate", store=store)
    elif login.ticket_cache is not None or name is not None:
        store = {} if login.ticket_cache is None else {"ccache": login.ticket_cache}
        credentials = gssapi.Credentials(name=name, usage="initiate", store=store)
    flag = gssapi.RequirementFlag
    return gssapi.SecurityContext(
        name=target,
        creds=credentials,
        usage="initiate",
        mech=gssapi.MechType.kerberos,
        flags=flag.mutual_authentication | flag.integrity | flag.replay_detection | flag.out_of_sequence_detection,
    )


def _guarded(call: Callable[[], T]) -> T:
    """The result of a call of the library. Raises GssError, or KafkaError if no server of tickets answers."""
    gssapi = import_gssapi()
    try:
        return call()
    except gssapi.exceptions.GSSError as error:
        if getattr(error, "min_code", 0) & 0xFFFFFFFF == _UNREACHABLE & 0xFFFFFFFF:
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, f"No Kerberos server answers: {_text(error)}") from error
        raise GssError(_text(error)) from error


def _principal(gssapi: ModuleType, text: str) -> Any:
    return gssapi.Name(text, gssapi.NameType.kerberos_principal)


def _default_realm(gssapi: ModuleType) -> str:
    """The realm that the library adds to names without a realm; empty if krb5.conf has none."""
    try:
        name = _principal(gssapi, "any-name").canonicalize(gssapi.MechType.kerberos)
    except gssapi.exceptions.GSSError:
        return ""
    return str(name).rpartition("@")[2]


def _text(error: Exception) -> str:
    return " ".join(str(error).split())
