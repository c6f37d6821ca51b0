"""Value: where a client of OAUTHBEARER gets its tokens, with the settings of each way.

No `__repr__` here shows a secret. The values are hashable, so that clients with the same settings share a token.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import Struct

from barnabas.protocol.security.config import TlsConfig
from barnabas.protocol.security.oauth.refreshing import TokenRefresh
from barnabas.protocol.security.oauth.unsecured import UnsecuredLogin

TokenFunction = Callable[[str], Any | Awaitable[Any]]
"""A user's function. It gets the text of sasl.oauthbearer.config, and returns a token and the time of its expiry in
seconds since 1970, as in confluent-kafka: (token, expiry), (token, expiry, principal) or (token, expiry, principal,
extensions). Without the expiry, a token alone, the token must be a JSON web token."""


class TokenEndpoint(Struct, frozen=True):
    """The HTTP side of a login."""

    url: str
    tls: TlsConfig = TlsConfig()
    connect_timeout_ms: int = 10_000
    read_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000


class ClientCredentials(Struct, frozen=True):
    """The grant client_credentials: the client's own id and secret (KIP-768)."""

    endpoint: TokenEndpoint
    client_id: str
    client_secret: str
    scope: str | None = None
    urlencode_header: bool = False

    def __repr__(self) -> str:
        return f"ClientCredentials(client_id={self.client_id!r}, ...)"


class ClaimsOfAssertion(Struct, frozen=True):
    """The claims of an assertion that the client makes (sasl.oauthbearer.assertion.claim.*)."""

    aud: str | None = None
    iss: str | None = None
    sub: str | None = None
    exp_seconds: int = 300
    nbf_seconds: int = 60
    jti_include: bool = False


class AssertionLogin(Struct, frozen=True):
    """An assertion instead of a secret. The assertion is in a file, or the client signs it with its key."""

    endpoint: TokenEndpoint
    is_grant: bool = False
    """True for the grant jwt-bearer, in which the assertion is about a user (KIP-1139). False for client_credentials,
    in which the assertion proves who the client is (KIP-1258)."""
    client_id: str | None = None
    """Sent with client_credentials; None if the assertion has it."""
    assertion_file: str | None = None
    private_key_file: str | None = None
    passphrase: str | None = None
    algorithm: str = "RS256"
    claims: ClaimsOfAssertion = ClaimsOfAssertion()
    template_file: str | None = None
    scope: str | None = None

    def __repr__(self) -> str:
        return (
            f"AssertionLogin(assertion_file={self.assertion_file!r}, private_key_file={self.private_key_file!r}, ...)"
        )


class TokenFile(Struct, frozen=True):
    """A file that contains the token; another process replaces the file before the token expires."""

    path: str


class TokenCallback(Struct, frozen=True, eq=False):
    """A function of the user. Equality is that of the object, which need not be hashable."""

    function: TokenFunction
    argument: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenCallback) and (
            self.function is other.function and self.argument == other.argument
        )

    def __hash__(self) -> int:
        return hash((id(self.function), self.argument))

    def __repr__(self) -> str:
        return "TokenCallback(...)"


TokenMethod = UnsecuredLogin | ClientCredentials | AssertionLogin | TokenFile | TokenCallback


class OAuthLogin(Struct, frozen=True):
    """A client's way to tokens, and what it sends and does with them."""

    method: TokenMethod
    extensions: tuple[tuple[str, str], ...] = ()
    refresh: TokenRefresh = TokenRefresh()
    subject_claim: str = "sub"

    def __repr__(self) -> str:
        return f"OAuthLogin({type(self.method).__name__}, ...)"
