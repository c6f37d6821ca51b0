"""Shell: the tokens of one client: gets one when the first connection needs it, and replaces it before it expires.

    connection needs a token -> fetched in a thread, with retries -> used by all connections
                                                                  -> replaced in the background (refreshing.py)

Clients of one process with the same settings share their tokens, so that a hundred clients do not ask the provider a
hundred times.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import OrderedDict
from typing import Any, Final
from uuid import UUID

from barnabas.core.clock import Clock, SystemClock
from barnabas.core.config import ConfigError
from barnabas.core.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.core.rng import Rng
from barnabas.core.telemetry import get_logger
from barnabas.protocol.security.oauth.login_settings import URL
from barnabas.protocol.security.oauth.logins import (
    AssertionLogin,
    ClientCredentials,
    OAuthLogin,
    TokenCallback,
    TokenEndpoint,
    TokenFile,
)
from barnabas.protocol.security.oauth.refreshing import RETRY_MS
from barnabas.protocol.security.oauth.token_requests import (
    assertion_request,
    client_credentials_request,
    token_of_response,
    unsigned_assertion,
)
from barnabas.protocol.security.oauth.tokens import BearerToken, TokenError, encode_base64url, read_token
from barnabas.protocol.security.oauth.unsecured import UnsecuredLogin
from barnabas.protocol.transport.blocking_calls import run_beside
from barnabas.protocol.transport.oauth.fetching import OAuthFetchError, OAuthRequest, fetch_url, read_file

log = get_logger("barnabas.protocol.transport")

_SHARED_MAX: Final = 64


class _SharedTokens:
    """The newest token of each login in this process."""

    def __init__(self) -> None:
        self._tokens: OrderedDict[OAuthLogin, tuple[BearerToken, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, login: OAuthLogin, now_ms: int) -> tuple[BearerToken, int] | None:
        """The token, and the time at which to replace it; None if there is none, or that time has passed."""
        with self._lock:
            found = self._tokens.get(login)
            return found if found is not None and now_ms < found[1] else None

    def put(self, login: OAuthLogin, token: BearerToken, refresh_at_ms: int) -> None:
        with self._lock:
            self._tokens[login] = (token, refresh_at_ms)
            self._tokens.move_to_end(login)
            if len(self._tokens) > _SHARED_MAX:
                self._tokens.popitem(last=False)

    def discard(self, login: OAuthLogin, token: BearerToken) -> None:
        with self._lock:
            if login in self._tokens and self._tokens[login][0] == token:
                del self._tokens[login]


_SHARED: Final = _SharedTokens()


class LoginTokens:
    """Gets and keeps the tokens of a client. Use it on one event loop, and `close` it."""

    def __init__(self, login: OAuthLogin, rng: Rng, clock: Clock | None = None) -> None:
        self._login = login
        self._rng = rng
        self._clock = clock or SystemClock()
        self._token: BearerToken | None = None
        self._attempt: asyncio.Task[BearerToken] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self.problem: str | None = None
        """Why the last request for a token has failed, while it is being repeated."""

    async def token(self) -> BearerToken:
        """A token that has not expired. Raises KafkaError if there is none to be had."""
        now_ms = self._clock.now_ms()
        if self._token is not None and now_ms < self._token.expires_at_ms:
            return self._token
        shared = _SHARED.get(self._login, now_ms)
        if shared is not None:
            self._use(*shared)
            return shared[0]
        attempt = self._begin()
        await asyncio.wait((attempt,))  # other connections wait for the same attempt: it is not cancelled with this one
        if attempt.cancelled():
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, "The client was closed while it waited for a token.")
        return attempt.result()

    def discard(self, token: BearerToken) -> None:
        """Do not use the token again."""
        _SHARED.discard(self._login, token)
        if self._token == token:
            self._token = None

    def close(self) -> None:
        """Stop replacing the token."""
        self._closed = True
        self._token = None
        if self._timer is not None:
            self._timer.cancel()
        if self._attempt is not None:
            self._attempt.cancel()

    # ---- inside

    def _begin(self) -> asyncio.Task[BearerToken]:
        if self._attempt is None:
            self._attempt = asyncio.get_running_loop().create_task(self._log_in(), name="get a token for OAUTHBEARER")
            self._attempt.add_done_callback(self._on_done)
        return self._attempt

    def _on_done(self, attempt: asyncio.Task[BearerToken]) -> None:
        self._attempt = self.problem = None
        if not attempt.cancelled():
            attempt.exception()  # marks it as retrieved: all who wait may have passed their deadlines

    def _refresh(self) -> None:
        self._begin().add_done_callback(self._on_refreshed)

    def _on_refreshed(self, attempt: asyncio.Task[BearerToken]) -> None:
        if attempt.cancelled() or self._closed:
            return
        error = attempt.exception()
        if error is not None:
            log.warning("the token of OAUTHBEARER could not be replaced; retrying", reason=str(error))
            self._timer = asyncio.get_running_loop().call_later(RETRY_MS / 1000, self._refresh)

    def _use(self, token: BearerToken, refresh_at_ms: int) -> None:
        self._token = token
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(refresh_at_ms - self._clock.now_ms(), 0) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._refresh)

    async def _log_in(self) -> BearerToken:
        shared = _SHARED.get(self._login, self._clock.now_ms())
        if shared is not None:  # another client was faster
            self._use(*shared)
            return shared[0]
        try:
            token = await self._get()
        except ConfigError:
            raise
        except OAuthFetchError as error:
            code = ErrorCode.NETWORK_EXCEPTION if error.retriable else ErrorCode.SASL_AUTHENTICATION_FAILED
            raise KafkaError(code, f"No token for OAUTHBEARER: {error}") from error
        except TokenError as error:
            raise _failed(f"The token for OAUTHBEARER cannot be used: {error}.") from error
        now_ms = self._clock.now_ms()
        if token.expires_at_ms <= now_ms:
            raise _failed("The token for OAUTHBEARER has already expired. Is the clock of this machine right?")
        token = BearerToken(
            token.text, token.principal, token.expires_at_ms, token.issued_at_ms,
            tuple(sorted({**dict(self._login.extensions), **dict(token.extensions)}.items())),
        )  # fmt: skip
        refresh_at_ms = self._login.refresh.refresh_at_ms(token, now_ms, self._rng)
        _SHARED.put(self._login, token, refresh_at_ms)
        self._use(token, refresh_at_ms)
        return token

    async def _get(self) -> BearerToken:
        method = self._login.method
        match method:
            case UnsecuredLogin():
                return method.token(self._clock.now_ms())
            case TokenCallback():
                return await _call(method)
            case TokenFile():
                content = await run_beside(read_file, URL, method.path)
                text = content.decode("utf-8", "replace").strip()
            case ClientCredentials():
                text = await self._request(method.endpoint, *client_credentials_request(method))
            case AssertionLogin():
                assertion = await run_beside(self._assertion, method)
                text = await self._request(method.endpoint, *assertion_request(method, assertion))
        return read_token(text, self._login.subject_claim)

    async def _request(self, endpoint: TokenEndpoint, headers: Any, body: bytes) -> str:
        """The token in the response; retries for sasl.login.retry.backoff.max.ms, as Kafka does."""
        request = OAuthRequest(
            URL, endpoint.url, endpoint.tls, headers, body, endpoint.connect_timeout_ms, endpoint.read_timeout_ms
        )
        loop = asyncio.get_running_loop()
        until = loop.time() + endpoint.retry_backoff_max_ms / 1000
        pause_s = endpoint.retry_backoff_ms / 1000
        while True:
            try:
                return token_of_response(await fetch_url(request))
            except OAuthFetchError as error:
                if not error.retriable or loop.time() + pause_s >= until:
                    raise
                self.problem = str(error)
            await asyncio.sleep(pause_s * (0.8 + 0.4 * self._rng.random()))
            pause_s = max(2 * pause_s, 0.01)

    def _assertion(self, method: AssertionLogin) -> str:
        """An assertion from a file, or one that the client signs. Blocks."""
        if method.assertion_file is not None:
            content = read_file("sasl.oauthbearer.assertion.file", method.assertion_file)
            return content.decode("utf-8", "replace").strip()
        try:
            from barnabas.protocol.security.oauth.signatures import sign
        except ImportError as error:
            raise ConfigError(
                "Signing an assertion needs the package cryptography: pip install 'barnabas[tls]'"
            ) from error
        assert method.private_key_file is not None, "checked when the settings were read"
        key = read_file("sasl.oauthbearer.assertion.private.key.file", method.private_key_file)
        template = None
        if method.template_file is not None:
            template = read_file("sasl.oauthbearer.assertion.template.file", method.template_file)
        token_id = str(UUID(int=self._rng.getrandbits(128), version=4))
        unsigned = unsigned_assertion(method.claims, method.algorithm, template, self._clock.now_ms(), token_id)
        signature = sign(method.algorithm, key, method.passphrase, unsigned.encode())
        return f"{unsigned}.{encode_base64url(signature)}"


async def _call(method: TokenCallback) -> BearerToken:
    """Call the user's function: in a thread, unless it is a coroutine function."""
    try:
        if inspect.iscoroutinefunction(method.function):
            found = await method.function(method.argument)
        else:
            found = await run_beside(method.function, method.argument)
            if inspect.isawaitable(found):
                found = await found
    except BarnabasError:
        raise
    except Exception as error:  # the function is the user's and may raise anything; the login fails with its error
        raise OAuthFetchError(
            f"the function oauth_cb failed: {type(error).__name__}: {error}", retriable=True
        ) from error
    return token_of_callback(found)


def token_of_callback(found: object) -> BearerToken:
    """The token that the user's function returned. Raises TokenError."""
    if isinstance(found, BearerToken):
        return found
    if isinstance(found, str):
        return read_token(found)
    parts = tuple(found) if isinstance(found, (tuple, list)) else ()
    if len(parts) not in (2, 3, 4) or not isinstance(parts[0], str) or not isinstance(parts[1], (int, float)):
        raise TokenError("oauth_cb must return (token, expiry in seconds since 1970[, principal[, extensions]])")
    principal = parts[2] if len(parts) > 2 and parts[2] else ""
    extensions = parts[3] if len(parts) > 3 and parts[3] else {}
    if not isinstance(principal, str) or not isinstance(extensions, dict):
        raise TokenError("the principal that oauth_cb returns must be a text, and the extensions a dict")
    pairs = tuple(sorted((str(name), str(value)) for name, value in extensions.items()))
    return BearerToken(parts[0], principal, int(parts[1] * 1000), extensions=pairs)


def _failed(message: str) -> KafkaError:
    return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, message)
