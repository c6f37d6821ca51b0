"""Value: how one end of a connection gets its Kerberos tickets and keys: the options of Java's `Krb5LoginModule`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from barnabas.core.config import ConfigError

SERVICE_NAME: Final = "sasl.kerberos.service.name"
EXAMPLE: Final = (
    'com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true keyTab="/etc/kafka.keytab"'
    ' principal="kafka/host.example.com@EXAMPLE.COM";'
)


class KerberosLogin(Struct, frozen=True):
    """A client's own credentials and the service to which they are presented. Without a key table and a ticket cache
    the tickets are those of the process's user (kinit)."""

    service_name: str
    """The first component of the principals of the brokers."""
    principal: str | None = None
    keytab: str | None = None
    ticket_cache: str | None = None


def read_kerberos_login(
    options: Mapping[str, str], service_name: str | None, names: str = "sasl.jaas.config"
) -> KerberosLogin:
    """The login that the options of `sasl.jaas.config` (the config `names`) and `sasl.kerberos.service.name` describe.
    Raises ConfigError."""
    option = options.get("serviceName")
    if option and service_name and option != service_name:
        raise ConfigError(f"serviceName={option} in {names} contradicts {SERVICE_NAME}={service_name}. Remove one.")
    service = service_name or option
    if not service:
        raise ConfigError(
            "GSSAPI (Kerberos), the default mechanism of SASL, needs the name of the brokers' service. Set"
            f" {SERVICE_NAME}=kafka, or choose another sasl.mechanism, for example SCRAM-SHA-512."
        )
    keytab = keytab_of(options, names)
    principal = options.get("principal")
    if keytab is not None and principal is None:
        raise ConfigError(f'The key table in {names} needs a principal: principal="alice@EXAMPLE.COM".')
    ticket_cache = options.get("ticketCache") if _is_true(options, "useTicketCache") else None
    return KerberosLogin(service, principal, keytab, ticket_cache)


def keytab_of(options: Mapping[str, str], names: str) -> str | None:
    """The path of the key table; None if the options use none. Raises ConfigError."""
    if not _is_true(options, "useKeyTab"):
        return None
    path = options.get("keyTab")
    if not path:
        raise ConfigError(f'useKeyTab=true in {names} needs the path of the key table: keyTab="/etc/kafka.keytab".')
    return path.removeprefix("FILE:")


def _is_true(options: Mapping[str, str], name: str) -> bool:
    return options.get(name, "").lower() == "true"
