"""Machine: the server's end of SASL: PLAIN (RFC 4616), SCRAM-SHA-256/512 (RFC 5802, KIP-84), OAUTHBEARER (RFC 7628).

A mechanism evaluates the client's messages, one after the other, until it knows the client's user name. The
conversation around it (`sasl_conversation.py`) carries the messages in requests and responses. `sasl_client.py` is the
other end.

An unknown user gets the same answers as a user with a wrong password, in the same steps: PLAIN compares the password
with a text that no user has, and SCRAM answers with a salt that is always the same for one name. A client that logs in
with a delegation token (KIP-48) gives the token id as the user name, and becomes the owner of the token. The
exchange of GSSAPI (RFC 4752) is in `kerberos/exchange.py`.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from msgspec import Struct

from barnabas.core.errors import BarnabasError
from barnabas.protocol.security import scram
from barnabas.protocol.security.credentials import (
    PASSWORD_MECHANISMS,
    SCRAM_ITERATIONS_MIN,
    SCRAM_MECHANISMS,
    ScramCredential,
)
from barnabas.protocol.security.kerberos.exchange import GssContext, GssError, GssServerExchange
from barnabas.protocol.security.kerberos.names import KerberosNameError, KerberosShortNamer, parse_kerberos_name
from barnabas.protocol.security.oauth.messages import (
    LAST_WORD,
    OAuthMessageError,
    OAuthRefusal,
    decode_first,
    encode_refusal,
)
from barnabas.protocol.security.oauth.tokens import BearerToken, TokenError

SUPPORTED_MECHANISMS: Final = (*PASSWORD_MECHANISMS, "OAUTHBEARER", "GSSAPI")
NONCE_BYTES: Final = 18
_WRONG_ID: Final = "Authentication failed: Client requested an authorization id that is different from username"


class AuthenticationFailedError(BarnabasError):
    """The client did not authenticate. `answer` is the text for the client, or None for the text that is the same for
    all causes; the message of the exception is for the log."""

    def __init__(self, reason: str, answer: str | None = None) -> None:
        super().__init__(reason)
        self.answer = answer


class SaslIdentity(Struct, frozen=True):
    """The user that has authenticated."""

    user: str
    token_authenticated: bool = False
    """True if the user has authenticated with a delegation token, which does not permit to create more tokens."""
    expires_at_ms: int | None = None
    """The wall-clock time at which the user's credential expires; None if it does not expire."""


class TokenLogin(Struct, frozen=True):
    """What a login with a delegation token is checked against, and what the client becomes."""

    credential: ScramCredential
    owner: str
    """The name of the user that owns the token."""
    expires_at_ms: int
    """The wall-clock time at which the token expires."""


def no_tokens(mechanism: int, token_id: str) -> TokenLogin | None:
    """The delegation tokens of a cluster without delegation.token.secret.key: none."""
    return None


class TokenValidator(Protocol):
    """Checks a token of OAUTHBEARER. Raises TokenError."""

    def validate(self, text: str, wall_ms: int) -> BearerToken: ...


class KerberosUsers(Struct, frozen=True):
    """How the clients of GSSAPI prove who they are, and which users they become."""

    context: Callable[[], GssContext]
    """A new security context for one client."""
    names: KerberosShortNamer


class SaslCredentials(Struct, frozen=True):
    """What the mechanisms of one listener check credentials against."""

    plain_users: Mapping[str, str]
    """The passwords of the users of PLAIN, by name."""
    scram_credential: Callable[[int, str], ScramCredential | None]
    """The credential of a user, by the number of the mechanism and the name."""
    decoy_key: bytes = b""
    """Random bytes of this process, from which the salts of unknown users are made."""
    token_login: Callable[[int, str], TokenLogin | None] = no_tokens
    """The login with a delegation token, by the number of the mechanism and the token id."""
    token_validator: TokenValidator | None = None
    """How the tokens of OAUTHBEARER are checked; None if the mechanism is not enabled."""
    kerberos: KerberosUsers | None = None
    """The keys and the names of GSSAPI; None if the mechanism is not enabled."""

    def __repr__(self) -> str:
        return "SaslCredentials(...)"


class SaslServer(Protocol):
    """One exchange."""

    @property
    def identity(self) -> SaslIdentity | None:
        """The user; None until the exchange is complete."""
        ...

    @property
    def refusal(self) -> str | None:
        """Why the answer refuses the client, for the log; None if it does not. The client may still send its last word,
        after which `evaluate` raises AuthenticationFailedError."""
        ...

    def evaluate(self, message: bytes, wall_ms: int) -> bytes:
        """The answer to the client's next message. Raises AuthenticationFailedError."""
        ...


def sasl_server(mechanism: str, credentials: SaslCredentials, nonce: bytes) -> SaslServer:
    """A new exchange. `nonce` is `NONCE_BYTES` random bytes. The mechanism is one of SUPPORTED_MECHANISMS."""
    if mechanism == "PLAIN":
        return _PlainServer(credentials)
    if mechanism == "OAUTHBEARER":
        assert credentials.token_validator is not None, "checked when the settings are read"
        return _OAuthServer(credentials.token_validator)
    if mechanism == "GSSAPI":
        assert credentials.kerberos is not None, "checked when the settings are read"
        return _KerberosServer(credentials.kerberos)
    assert mechanism in SCRAM_MECHANISMS, mechanism
    return _ScramServer(mechanism, credentials, nonce)


class _PlainServer:
    """One message: authorization id, user name and password, with NUL between them. The texts are Kafka's."""

    refusal = None

    def __init__(self, credentials: SaslCredentials) -> None:
        self.identity: SaslIdentity | None = None
        self._users = credentials.plain_users

    def evaluate(self, message: bytes, wall_ms: int) -> bytes:
        parts = message.decode("utf-8", "replace").split("\0", 3)
        if len(parts) != 3:
            raise _refused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        authorization_id, username, password = parts
        if not username:
            raise _refused("Authentication failed: username not specified")
        if not password:
            raise _refused("Authentication failed: password not specified")
        expected = self._users.get(username)
        matches = hmac.compare_digest(password.encode(), ("\0" if expected is None else expected).encode())
        if expected is None or not matches:
            raise _refused("Authentication failed: Invalid username or password")
        if authorization_id and authorization_id != username:  # CVE-2017-12610
            raise _refused(_WRONG_ID)
        self.identity = SaslIdentity(username)
        return b""


class _ScramServer:
    """The two answers of the server (see the drawing in `scram.py`)."""

    refusal = None

    def __init__(self, mechanism: str, credentials: SaslCredentials, nonce: bytes) -> None:
        self.identity: SaslIdentity | None = None
        self._mechanism = mechanism
        self._hash_name = scram.HASHES[mechanism]
        self._credentials = credentials
        self._nonce = scram.encode_base64(nonce)
        self._first: scram.ClientFirst | None = None
        self._challenge = ""
        self._credential = _decoy("", credentials.decoy_key)
        self._identity = SaslIdentity("")
        """The user that the client becomes if it proves that it knows the password."""
        self._known = False

    def evaluate(self, message: bytes, wall_ms: int) -> bytes:
        try:
            return self._begin(message, wall_ms) if self._first is None else self._end(self._first, message, wall_ms)
        except scram.ScramError as error:
            raise AuthenticationFailedError(str(error)) from error

    def _begin(self, message: bytes, wall_ms: int) -> bytes:
        first = scram.parse_client_first(message)
        if first.authorization_id and first.authorization_id != first.username:  # CVE-2017-12610
            raise _refused(_WRONG_ID)
        found = self._find(first, wall_ms)
        if found is not None and found.iterations < SCRAM_ITERATIONS_MIN:
            raise AuthenticationFailedError(
                f"the credential of {first.username[:64]!r} has {found.iterations} iterations, and"
                f" {SCRAM_ITERATIONS_MIN} is the minimum: set the user's password again"
            )
        self._known = found is not None
        self._credential = found or _decoy(first.username, self._credentials.decoy_key)
        self._nonce = first.nonce + self._nonce
        salt = scram.encode_base64(self._credential.salt)
        self._first = first
        self._challenge = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        return self._challenge.encode()

    def _find(self, first: scram.ClientFirst, wall_ms: int) -> ScramCredential | None:
        """The credential that the client claims to have; None if it does not exist."""
        mechanism = SCRAM_MECHANISMS[self._mechanism]
        if not first.token_authenticated:
            self._identity = SaslIdentity(first.username)
            return self._credentials.scram_credential(mechanism, first.username)
        login = self._credentials.token_login(mechanism, first.username)
        if login is None or login.expires_at_ms <= wall_ms:
            return None
        self._identity = SaslIdentity(login.owner, token_authenticated=True, expires_at_ms=login.expires_at_ms)
        return login.credential

    def _end(self, first: scram.ClientFirst, message: bytes, wall_ms: int) -> bytes:
        final = scram.parse_client_final(message)
        if not hmac.compare_digest(final.nonce.encode(), self._nonce.encode()):  # CVE-2024-56128
            raise AuthenticationFailedError("the nonce of the client's last message is not that of this exchange")
        signed = scram.auth_message(first.bare, self._challenge, final.without_proof)
        proved = scram.proves_password(self._hash_name, self._credential.stored_key, signed, final.proof)
        # The user may have been removed, or may have got another password, since the first message.
        if not proved or not self._known or self._find(first, wall_ms) != self._credential:
            kind = "delegation token" if first.token_authenticated else "user"
            raise AuthenticationFailedError(
                f"the {kind} {first.username[:64]!r} is unknown or has expired, or the password is wrong"
            )
        self.identity = self._identity
        signature = scram.server_signature(self._hash_name, self._credential.server_key, signed)
        return f"v={scram.encode_base64(signature)}".encode()


class _OAuthServer:
    """The answer of the server: empty, or the reason of a refusal (see the drawing in `oauth/messages.py`)."""

    def __init__(self, tokens: TokenValidator) -> None:
        self.identity: SaslIdentity | None = None
        self._tokens = tokens
        self.refusal: str | None = None
        self._answer = b""

    def evaluate(self, message: bytes, wall_ms: int) -> bytes:
        if self.refusal is not None:
            answer = self._answer.decode() if message == LAST_WORD else None
            raise AuthenticationFailedError(self.refusal, answer=answer)
        try:
            first = decode_first(message)
            token = self._tokens.validate(first.token, wall_ms)
        except OAuthMessageError as error:
            raise AuthenticationFailedError(str(error)) from error
        except TokenError as error:
            self.refusal = str(error)
            self._answer = encode_refusal(OAuthRefusal(error.status, error.scope))
            return self._answer
        if first.authorization_id and first.authorization_id != token.principal:
            raise _refused(
                "Authentication failed: Client requested an authorization id that is different from the token's"
                " principal name"
            )
        self.identity = SaslIdentity(token.principal, expires_at_ms=token.expires_at_ms)
        return b""


class _KerberosServer:
    """The exchange of `kerberos/exchange.py`, whose result is the principal of the client."""

    refusal = None

    def __init__(self, users: KerberosUsers) -> None:
        self.identity: SaslIdentity | None = None
        self._names = users.names
        try:
            self._exchange: GssServerExchange | None = GssServerExchange(users.context())
        except GssError as error:
            self._exchange, self._problem = None, str(error)

    def evaluate(self, message: bytes, wall_ms: int) -> bytes:
        if self._exchange is None:
            raise AuthenticationFailedError(self._problem)
        try:
            answer = self._exchange.evaluate(message)
            if self._exchange.initiator is not None:
                user = self._names.short_name(parse_kerberos_name(self._exchange.initiator))
                self.identity = SaslIdentity(user)
        except (GssError, KerberosNameError) as error:
            raise AuthenticationFailedError(str(error)) from error
        return answer


def _decoy(username: str, key: bytes) -> ScramCredential:
    """The credential of an unknown user: no password has it."""
    seed = hmac.digest(key, username.encode("utf-8", "replace"), "sha512")
    return ScramCredential(seed[:NONCE_BYTES], seed, seed, SCRAM_ITERATIONS_MIN)


def _refused(text: str) -> AuthenticationFailedError:
    return AuthenticationFailedError(text, answer=text)
