"""Shell: the delegation tokens of the active controller: their requests, and the removal of expired tokens.

Tokens are requested by their HMACs. The controller computes the HMAC of each token once, when it needs one for the
first time after it has become active, and remembers which token it belongs to.
"""

from __future__ import annotations

import asyncio
from math import inf
from typing import Final

from barnabas.core.telemetry import get_logger
from barnabas.core.work import Pauses
from barnabas.protocol.security.principals import KafkaPrincipal
from barnabas.protocol.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.protocol.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.protocol.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.protocol.wire.schema import Message
from barnabas.server.metadata.controller.delegation_tokens import (
    REMOVED_AT_ONCE,
    decide_create_delegation_token,
    decide_expire_delegation_token,
    decide_remove_expired,
    decide_renew_delegation_token,
)
from barnabas.server.metadata.controller.settings import ControllerConfig
from barnabas.server.metadata.driver import ControllerDriver
from barnabas.server.metadata.session_keeper import BATCH_PAUSE_S

log = get_logger("barnabas.controller")

TokenRequest = CreateDelegationTokenRequest | RenewDelegationTokenRequest | ExpireDelegationTokenRequest
_HMACS_PER_TURN: Final = 500
"""The HMACs that are computed before other tasks may run; each takes a few microseconds."""


class DelegationTokens:
    """The tokens of the cluster, on its active controller."""

    def __init__(self, driver: ControllerDriver, settings: ControllerConfig) -> None:
        self._driver = driver
        self._settings = settings
        self._secret_key = settings.delegation_token_secret_key or ""
        self._ids: dict[bytes, str] = {}
        """The id of the token with an HMAC. A token that is not in the image does not exist any more."""
        self._has_all_ids = False
        self._remove_at = inf

    def start(self) -> None:
        """This controller has become active. Another one may have created tokens since it was active before."""
        self._ids = {}
        self._has_all_ids = False
        self._remove_at = asyncio.get_running_loop().time() if self._secret_key else inf

    async def handle(self, request: TokenRequest, version: int, requester: KafkaPrincipal) -> Message:
        """The response, when the records of the decision are committed. Raises KafkaError as `ControllerDriver.submit`
        does."""
        match request:
            case CreateDelegationTokenRequest():
                created: CreateDelegationTokenResponse = await self._driver.submit(
                    lambda image, ctx: decide_create_delegation_token(image, request, ctx, requester), version=version
                )
                if not created.error_code:
                    created.hmac = self._hmac_of(created.token_id)
                    self._ids[created.hmac] = created.token_id
                return created
            case RenewDelegationTokenRequest():
                token_id = await self._id_of(bytes(request.hmac))
                return await self._driver.submit(
                    lambda image, ctx: decide_renew_delegation_token(image, request, ctx, requester, token_id),
                    version=version,
                )
            case ExpireDelegationTokenRequest():
                token_id = await self._id_of(bytes(request.hmac))
                expired = await self._driver.submit(
                    lambda image, ctx: decide_expire_delegation_token(image, request, ctx, requester, token_id),
                    version=version,
                )
                if not expired.error_code and request.expiry_time_period_ms < 0:
                    self._ids.pop(bytes(request.hmac), None)
                return expired

    async def remove_expired(self) -> None:
        """Remove expired tokens if it is time. Raises KafkaError as `ControllerDriver.submit` does."""
        loop = asyncio.get_running_loop()
        if loop.time() < self._remove_at:
            return
        removed = await self._driver.submit(decide_remove_expired)
        for token_id in removed:
            self._ids.pop(self._hmac_of(token_id), None)
            log.info("delegation token expired", token=token_id)
        interval_s = self._settings.delegation_token_expiry_check_interval_ms / 1000
        self._remove_at = loop.time() + (BATCH_PAUSE_S if len(removed) == REMOVED_AT_ONCE else interval_s)

    def next_round_at(self) -> float:
        """The loop's time at which `remove_expired` has work to do next."""
        return self._remove_at

    def _hmac_of(self, token_id: str) -> bytes:
        # Imported here: hashlib and hmac load OpenSSL, which a controller without tokens does not need.
        from barnabas.protocol.security.delegation_tokens import hmac_of_token

        return hmac_of_token(self._secret_key, token_id)

    async def _id_of(self, token_hmac: bytes) -> str | None:
        """The id of the token with this HMAC; None if there is no such token."""
        if not self._secret_key:
            return None
        if not self._has_all_ids and token_hmac not in self._ids:
            pauses, ids = Pauses(_HMACS_PER_TURN), self._ids
            for token_id in self._driver.image.tokens.by_id:
                ids[self._hmac_of(token_id)] = token_id
                await pauses.after(1)
            self._has_all_ids = ids is self._ids  # not if this controller has become active anew in the meantime
        return self._ids.get(token_hmac)
