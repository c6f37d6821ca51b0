"""The tokens of a client: shared by clients with the same settings, replaced in the background, and discarded."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.security.oauth.logins import (
    AssertionLogin,
    OAuthLogin,
    TokenCallback,
    TokenEndpoint,
    TokenFile,
    TokenFunction,
)
from barnabas.protocol.security.oauth.refreshing import TokenRefresh
from barnabas.protocol.security.oauth.tokens import TokenError
from barnabas.protocol.security.oauth.unsecured import UnsecuredLogin
from barnabas.protocol.transport.oauth import login_tokens
from barnabas.protocol.transport.oauth.login_tokens import LoginTokens, token_of_callback
from tests.progress import until

LONG = TokenRefresh()
SOON = TokenRefresh(window_factor=0.0, window_jitter=0.0, min_period_ms=0, buffer_ms=0)


@dataclass
class Calls:
    """A user's function that numbers its tokens. It is not hashable."""

    lifetime_s: float = 3600
    count: int = 0
    failing: bool = False

    def __call__(self, _config: str) -> tuple[str, float]:
        self.count += 1
        if self.failing:
            raise ValueError("the provider is away")
        return f"t{self.count}", time.time() + self.lifetime_s


def tokens_of(function: TokenFunction, refresh: TokenRefresh = LONG) -> LoginTokens:
    return LoginTokens(OAuthLogin(TokenCallback(function, "x"), (("team", "a"),), refresh), Random(1))


async def test_clients_with_the_same_settings_share_a_token_until_it_is_discarded() -> None:
    calls = Calls()
    one, other = tokens_of(calls), tokens_of(calls)
    found = await asyncio.gather(one.token(), one.token(), one.token())
    assert [token.text for token in found] == ["t1"] * 3
    assert found[0].extensions == (("team", "a"),)
    assert (await other.token()).text == "t1"
    one.discard(found[0])
    assert (await one.token()).text == "t2"
    assert (await other.token()).text == "t1", "each client finds out by itself that its token is refused"
    other.discard(found[0])
    assert (await other.token()).text == "t2"
    one.close()
    other.close()


async def test_a_token_is_replaced_in_the_background() -> None:
    calls = Calls()
    tokens = tokens_of(calls, SOON)
    assert (await tokens.token()).text == "t1"
    await until(lambda: calls.count >= 3, "the function is called again")
    tokens.close()
    count = calls.count
    await asyncio.sleep(0.05)  # nothing is expected to happen
    assert calls.count <= count + 1


async def test_a_token_that_cannot_be_replaced_stays_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_tokens, "RETRY_MS", 1)
    calls = Calls()
    tokens = tokens_of(calls, TokenRefresh(window_factor=1e-5, window_jitter=0.0, min_period_ms=0, buffer_ms=0))
    first = await tokens.token()
    calls.failing = True
    await until(lambda: calls.count >= 3, "the function is called again")
    assert await tokens.token() == first
    calls.failing = False
    while await tokens.token() == first:
        await asyncio.sleep(0.005)  # the next attempt has a time of its own
    tokens.close()


async def test_a_coroutine_function_and_a_failing_function() -> None:
    async def function(config: str) -> tuple[str, float, str, dict[str, str]]:
        return f"token-{config}", time.time() + 60, "alice", {"traceId": "9", "team": "b"}

    tokens = tokens_of(function)
    token = await tokens.token()
    assert (token.text, token.principal, token.extensions) == ("token-x", "alice", (("team", "b"), ("traceId", "9")))
    tokens.close()
    calls = Calls()
    calls.failing = True
    with pytest.raises(KafkaError, match="oauth_cb failed: ValueError: the provider is away") as caught:
        await tokens_of(calls).token()
    assert caught.value.code is ErrorCode.NETWORK_EXCEPTION, "which is retriable"


async def test_a_token_that_has_expired_is_an_error() -> None:
    with pytest.raises(KafkaError, match="has already expired") as caught:
        await tokens_of(Calls(lifetime_s=-1)).token()
    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED


async def test_who_waits_for_a_token_of_a_closed_client_gets_an_error() -> None:
    async def never(_config: str) -> str:
        return str(await asyncio.get_running_loop().create_future())

    tokens = tokens_of(never)
    waiting = asyncio.create_task(tokens.token())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    tokens.close()
    with pytest.raises(KafkaError, match="was closed"):
        await waiting


@pytest.mark.parametrize(
    "found", [None, 7, ("t",), ("t", "soon"), (7, 7), ("t", 1, 7), ("t", 1, "a", ["b"]), "no.token"]
)
def test_what_a_function_must_not_return(found: object) -> None:
    with pytest.raises(TokenError):
        token_of_callback(found)


async def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    async def error(method: Any) -> str:
        with pytest.raises(KafkaError) as caught:
            await LoginTokens(OAuthLogin(method), Random(1)).token()
        return str(caught.value)

    path = tmp_path / "token"
    assert f"sasl.oauthbearer.token.endpoint.url: {path} cannot be read" in await error(TokenFile(str(path)))
    path.write_text("no token")
    assert "not a JSON web token" in await error(TokenFile(str(path)))
    path.write_bytes(b"x" * 2_000_000)
    assert "has more than" in await error(TokenFile(str(path)))
    wrong = AssertionLogin(TokenEndpoint("http://127.0.0.1:9/"), private_key_file=str(path), template_file="/nowhere")
    path.write_text("no key")
    assert "assertion.template.file: /nowhere cannot be read" in await error(wrong)
    wrong = AssertionLogin(TokenEndpoint("http://127.0.0.1:9/"), private_key_file=str(path))
    assert "assertion.private.key.file: the private key cannot be read" in await error(wrong)


async def test_tokens_without_a_signature_are_made_on_the_spot() -> None:
    tokens = LoginTokens(OAuthLogin(UnsecuredLogin((("sub", "alice"),))), Random(1))
    assert (await tokens.token()).principal == "alice"
    tokens.close()
