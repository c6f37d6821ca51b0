"""Machine: reads the settings of TLS and of users for an HTTP server. The names are those of Confluent's REST servers.

    ssl.keystore.location, ssl.keystore.type, ...      the certificate of an https listener, as for a Kafka listener
    ssl.client.authentication                          NONE, REQUESTED or REQUIRED: certificates of clients
    authentication.method                              NONE, or BASIC: users with passwords
    authentication.realm                               the realm that a browser shows
    authentication.roles                               the roles that may use the server; * for every user
    authentication.users.file                          a file with a line `user: password, role, role` for each user

The file of users has the format of Jetty's HashLoginService. A password is written as it is, or as its hash of
`protocol/security/password_hash.py`.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from barnabas.core.config import ConfigError
from barnabas.protocol.security.config import TlsConfig

METHOD: Final = "authentication.method"
USERS_FILE: Final = "authentication.users.file"
ROLES: Final = "authentication.roles"
ANY_ROLE: Final = "*"
_REALM: Final = "authentication.realm"
_CLIENT_AUTH: Final = "ssl.client.authentication"
_JAVA: Final = "JKS"
_HASHED: Final = ("OBF:", "MD5:", "CRYPT:")
SETTINGS: Final[Mapping[str, str]] = {
    METHOD: "NONE: everybody may use the server; BASIC: users with passwords. Without it, NONE.",
    USERS_FILE: "A file with a line `user: password, role, role` for each user, which is read again when it changes.",
    ROLES: "The roles that may use the server, separated by commas; without it, or with *, every user may.",
    _REALM: "The realm that a browser shows when it asks for a password.",
    _CLIENT_AUTH: "NONE, REQUESTED or REQUIRED: whether clients present certificates. Without it, NONE.",
    "ssl.client.auth": "true: the same as ssl.client.authentication=REQUIRED.",
    "ssl.keystore.location": "The file with the certificate and private key of an https listener.",
    "ssl.keystore.type": "The format of the key store: PEM, PKCS12 or JKS. Without it, JKS.",
    "ssl.keystore.password": "The password of a PKCS12 or JKS key store.",
    "ssl.keystore.key": "The private key as PEM text, in place of a file.",
    "ssl.keystore.certificate.chain": "The certificate chain as PEM text, in place of a file.",
    "ssl.key.password": "The password of the private key.",
    "ssl.truststore.location": "The file with the authorities that may sign the certificates of clients.",
    "ssl.truststore.type": "The format of the trust store: PEM, PKCS12 or JKS. Without it, JKS.",
    "ssl.truststore.password": "The password of a PKCS12 or JKS trust store.",
    "ssl.truststore.certificates": "The authorities as PEM text, in place of a file.",
    "ssl.enabled.protocols": "The versions of TLS: TLSv1.2, TLSv1.3. Without it, those of the Python that runs.",
    "ssl.cipher.suites": "The cipher suites of TLS 1.2; without it, those of OpenSSL.",
}
"""The settings that have an effect, each with its meaning."""


_OURS: Final = ("ssl.", "authentication.")
_WITHOUT_EFFECT: Final = (
    "ssl.protocol",
    "ssl.provider",
    "ssl.keymanager.algorithm",
    "ssl.trustmanager.algorithm",
    "ssl.endpoint.identification.algorithm",
)
"""Settings of Java, which OpenSSL does not need, and those of clients."""


class HttpLoginConfig(Struct, frozen=True):
    """Who may use an HTTP server with HTTP basic authentication."""

    realm: str
    roles: frozenset[str]
    """A user needs one of these roles; empty if none is needed."""
    users_file: str | None
    """None if the users are not in a file."""
    refusal: str = "Unauthorized"
    """What the answer 401 says."""


class HttpTlsConfig(Struct, frozen=True):
    """The certificate of an https listener, and whether clients need one."""

    tls: TlsConfig
    client_auth: str


class HttpSecurityConfig(Struct, frozen=True):
    """The security of one HTTP server; without arguments that of one that everybody may use."""

    tls: HttpTlsConfig | None = None
    login: HttpLoginConfig | None = None


class HttpUser(Struct, frozen=True):
    """One line of the file of users. `secret` is the password, or its hash."""

    secret: str
    roles: frozenset[str]

    def __repr__(self) -> str:
        return f"HttpUser(roles={sorted(self.roles)}, ...)"


def read_http_security(
    texts: Mapping[str, str], *, is_https: bool, prefix: str = "", needs_file: bool = True
) -> HttpSecurityConfig:
    """The security that `texts` configure under names that begin with `prefix`. With `needs_file` a login needs a file
    of users. Raises ConfigError."""
    own = {name.removeprefix(prefix): text.strip() for name, text in texts.items() if name.startswith(prefix)}
    for name in sorted(own):
        if name.startswith(_OURS) and name not in (*SETTINGS, *_WITHOUT_EFFECT):
            near = difflib.get_close_matches(name, SETTINGS, n=1)
            hint = f"Did you mean {prefix}{near[0]}?" if near else f"The settings are {', '.join(SETTINGS)}."
            raise ConfigError(f"{prefix}{name} is not supported. {hint}")
    method = own.get(METHOD, "").upper()
    if method not in ("", "NONE", "BASIC"):
        raise ConfigError(f"{prefix}{METHOD}={own[METHOD]}: use NONE or BASIC.")
    login = None
    if method == "BASIC":
        roles = frozenset(part.strip() for part in own.get(ROLES, "").split(",") if part.strip())
        users = own.get(USERS_FILE) or None
        if users is None and needs_file:
            raise ConfigError(f"{prefix}{METHOD}=BASIC needs {prefix}{USERS_FILE}, a file with the users.")
        login = HttpLoginConfig(own.get(_REALM) or "Barnabas", frozenset() if ANY_ROLE in roles else roles, users)
    if not is_https:
        unused = sorted(name for name in own if name.startswith("ssl."))
        if unused:
            raise ConfigError(f"{prefix}{unused[0]} has no effect without an https:// listener.")
        return HttpSecurityConfig(None, login)
    return HttpSecurityConfig(read_tls(own, prefix), login)


def _client_auth(own: Mapping[str, str], prefix: str) -> str:
    """Confluent's older setting `ssl.client.auth` is true or false; Kafka's has the values of the newer one."""
    text = own.get(_CLIENT_AUTH) or own.get("ssl.client.auth") or "none"
    found = {"true": "required", "false": "none"}.get(text.lower(), text.lower())
    if found not in ("none", "requested", "required"):
        raise ConfigError(f"{prefix}{_CLIENT_AUTH}={text}: use NONE, REQUESTED or REQUIRED.")
    return found


def read_tls(own: Mapping[str, str], prefix: str = "") -> HttpTlsConfig:
    """The certificate in these settings, whose names have lost their prefix. Raises ConfigError."""
    tls = TlsConfig(
        ssl_truststore_location=own.get("ssl.truststore.location"),
        ssl_truststore_certificates=own.get("ssl.truststore.certificates"),
        ssl_certificate_location=own.get("ssl.keystore.location"),
        ssl_keystore_certificate_chain=own.get("ssl.keystore.certificate.chain"),
        ssl_keystore_key=own.get("ssl.keystore.key"),
        ssl_key_password=own.get("ssl.key.password"),
        ssl_enabled_protocols=_list(own, "ssl.enabled.protocols"),
        ssl_cipher_suites=_list(own, "ssl.cipher.suites"),
        ssl_keystore_type=(own.get("ssl.keystore.type") or _JAVA).upper(),
        ssl_keystore_password=own.get("ssl.keystore.password"),
        ssl_truststore_type=(own.get("ssl.truststore.type") or _JAVA).upper(),
        ssl_truststore_password=own.get("ssl.truststore.password"),
    )
    return HttpTlsConfig(tls, _client_auth(own, prefix))


def _list(own: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in own.get(name, "").split(",") if part.strip())


def parse_users(text: str, place: str) -> dict[str, HttpUser]:
    """The users in a file with the path `place`. Raises ConfigError, which never contains a password."""
    users: dict[str, HttpUser] = {}
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        name, colon, rest = stripped.partition(":")
        password, *roles = (part.strip() for part in rest.strip().split(","))
        if not colon or not name.strip() or not password:
            raise ConfigError(f"{place}, line {number}: write `user: password, role, role`; the roles may be left out.")
        if password.startswith(_HASHED):
            raise ConfigError(
                f"{place}, line {number}: hashed passwords of Jetty are not supported; write the password itself, and"
                " protect the file, or a hash scrypt$n$r$p$SALT$KEY as `barnabas console add-user` writes it."
            )
        users[name.strip()] = HttpUser(password, frozenset(role for role in roles if role))
    if not users:
        raise ConfigError(f"{place} has no users: write a line `user: password` for each.")
    return users
