"""The delegation tokens of a running controller: which token an HMAC belongs to, and when expired tokens go.

Sleeps take virtual time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import Struct

from barnabas.core.errors import ErrorCode
from barnabas.protocol.security.delegation_tokens import hmac_of_token
from barnabas.protocol.security.principals import KafkaPrincipal
from barnabas.protocol.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.protocol.wire.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from barnabas.protocol.wire.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from barnabas.server.metadata.controller.delegation_tokens import REMOVED_AT_ONCE
from barnabas.server.metadata.records.other import DelegationTokenRecord
from tests.unit.server.metadata.controller_house import House, play

SECRET = "key"
INTERVAL_MS = 60_000


class Client(Struct, frozen=True):
    connection_id: int = 1
    client_id: str | None = None
    principal: KafkaPrincipal = KafkaPrincipal("User", "alice")


def with_tokens(scenario: Callable[[House], Awaitable[None]], secret: str | None = SECRET) -> None:
    house = House(delegation_token_secret_key=secret, delegation_token_expiry_check_interval_ms=INTERVAL_MS)

    async def elected(house: House) -> None:
        house.log.elect(1)
        await scenario(house)

    play(elected, house)


async def create(house: House) -> CreateDelegationTokenResponse:
    made = await house.service.call(CreateDelegationTokenRequest(max_lifetime_ms=-1), 3, Client())
    assert isinstance(made, CreateDelegationTokenResponse)
    return made


async def renew(house: House, hmac: bytes) -> int:
    response = await house.service.call(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=-1), 2, Client())
    assert isinstance(response, RenewDelegationTokenResponse)
    return response.error_code


async def remove(house: House, hmac: bytes) -> int:
    response = await house.service.call(ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1), 2, Client())
    assert isinstance(response, ExpireDelegationTokenResponse)
    return response.error_code


def token(token_id: str, expiry_ms: int = 2**62) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner="User:alice",
        requester="User:alice",
        token_id=token_id,
        expiration_timestamp=expiry_ms,
        max_timestamp=2**62,
    )


def test_a_token_is_found_by_its_hmac_until_it_is_removed() -> None:
    async def run(house: House) -> None:
        first, second = await create(house), await create(house)
        assert first.hmac == hmac_of_token(SECRET, first.token_id)
        assert await renew(house, bytes(first.hmac)) == ErrorCode.NONE
        assert await renew(house, b"another") == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert await remove(house, bytes(first.hmac)) == ErrorCode.NONE
        for call in (renew, remove):
            assert await call(house, bytes(first.hmac)) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        assert await renew(house, bytes(second.hmac)) == ErrorCode.NONE

    with_tokens(run)


def test_a_controller_finds_the_tokens_that_others_have_created() -> None:
    async def run(house: House) -> None:
        assert await renew(house, hmac_of_token(SECRET, "early")) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
        house.log.elect(-1)
        house.log.elect(1)
        made = await create(house)
        await house.log.propose([token("early"), *(token(f"t{number}") for number in range(2_000))])
        house.log.elect(-1)
        house.log.elect(1)
        for token_id in ("early", "t0", "t1999", made.token_id):
            assert await renew(house, hmac_of_token(SECRET, token_id)) == ErrorCode.NONE
        assert await renew(house, hmac_of_token("another key", "early")) == ErrorCode.DELEGATION_TOKEN_NOT_FOUND

    with_tokens(run)


def test_expired_tokens_are_removed_at_the_start_and_then_at_each_interval() -> None:
    async def run(house: House) -> None:
        live = (await create(house)).token_id
        await house.log.propose([token("expired", 0)])
        await asyncio.sleep(INTERVAL_MS / 1000 - 1)
        assert set(house.image.tokens.by_id) == {live, "expired"}
        await asyncio.sleep(2)
        assert set(house.image.tokens.by_id) == {live}
        await house.log.propose([token(f"expired {number}", 0) for number in range(2 * REMOVED_AT_ONCE + 1)])
        house.log.elect(-1)
        house.log.elect(1)
        await asyncio.sleep(1)  # in several batches, with short pauses
        assert set(house.image.tokens.by_id) == {live}

    with_tokens(run)


def test_without_a_secret_key_nothing_is_removed_or_found() -> None:
    async def run(house: House) -> None:
        assert (await create(house)).error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        await house.log.propose([token("expired", 0)])
        await asyncio.sleep(2 * INTERVAL_MS / 1000)
        assert set(house.image.tokens.by_id) == {"expired"}
        assert await renew(house, b"x") == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED

    with_tokens(run, secret=None)
