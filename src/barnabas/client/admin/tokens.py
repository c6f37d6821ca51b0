"""Shell: delegation tokens (KIP-48): creating, renewing, expiring and describing them.

A client logs in with a token by SCRAM: `DelegationToken.jaas_config` is the value of `sasl.jaas.config`.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from barnabas.client.admin.requests import item_error
from barnabas.client.cluster.cluster import Cluster
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.security.principals import KafkaPrincipal
from barnabas.protocol.wire.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from barnabas.protocol.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from barnabas.protocol.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.protocol.wire.messages.renew_delegation_token import RenewDelegationTokenRequest

_HINTS = {
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: "Set delegation.token.secret.key to the same text on every node.",
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "Log in with a password or a certificate, not with a token.",
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "The client needs CreateTokens on the owner of the token.",
}


@dataclass(frozen=True)
class DelegationToken:
    """A delegation token. Times are in milliseconds since 1970. `hmac` is the secret of the token."""

    token_id: str
    owner: KafkaPrincipal
    requester: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...]
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int
    hmac: bytes = field(repr=False)

    @property
    def hmac_text(self) -> str:
        """The HMAC in base64: the password with which a client logs in."""
        return b64encode(self.hmac).decode()

    @property
    def jaas_config(self) -> str:
        """The value of `sasl.jaas.config` of a client that logs in with this token."""
        return (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{self.token_id}" password="{self.hmac_text}" tokenauth="true";'
        )


async def create_delegation_token(
    cluster: Cluster,
    *,
    owner: KafkaPrincipal | None,
    renewers: Iterable[KafkaPrincipal],
    max_lifetime_ms: int,
    deadline: float,
) -> DelegationToken:
    """A new token. Raises KafkaError."""
    who = tuple(renewers)
    request = CreateDelegationTokenRequest(
        owner_principal_type=None if owner is None else owner.kind,
        owner_principal_name=None if owner is None else owner.name,
        renewers=[CreatableRenewers(principal_type=each.kind, principal_name=each.name) for each in who],
        max_lifetime_ms=max_lifetime_ms,
    )
    made: CreateDelegationTokenResponse = await _ask(cluster, request, "Creating a delegation token", deadline)
    principal = KafkaPrincipal(made.principal_type, made.principal_name)
    requester = KafkaPrincipal(made.token_requester_principal_type, made.token_requester_principal_name)
    if owner is not None and principal != owner:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"The brokers created a token of {principal}, because they support no other owners (KIP-373).",
        )
    return DelegationToken(
        made.token_id,
        principal,
        requester if requester.name else principal,
        who,
        made.issue_timestamp_ms,
        made.expiry_timestamp_ms,
        made.max_timestamp_ms,
        bytes(made.hmac),
    )


async def renew_delegation_token(cluster: Cluster, hmac: bytes, *, period_ms: int, deadline: float) -> int:
    """The new expiry. Raises KafkaError."""
    request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    response = await _ask(cluster, request, "Renewing a delegation token", deadline)
    return int(response.expiry_timestamp_ms)


async def expire_delegation_token(cluster: Cluster, hmac: bytes, *, period_ms: int, deadline: float) -> int:
    """The new expiry. Raises KafkaError."""
    request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    response = await _ask(cluster, request, "Expiring a delegation token", deadline)
    return int(response.expiry_timestamp_ms)


async def describe_delegation_tokens(
    cluster: Cluster, owners: Iterable[KafkaPrincipal] | None, *, deadline: float
) -> list[DelegationToken]:
    """The tokens of these owners, or of all if `owners` is None, that the client may see. Raises KafkaError."""
    request = DescribeDelegationTokenRequest(
        owners=None
        if owners is None
        else [DescribeDelegationTokenOwner(principal_type=each.kind, principal_name=each.name) for each in owners]
    )
    response = await _ask(cluster, request, "Describing delegation tokens", deadline)
    return [_token(found) for found in response.tokens]


def _token(found: DescribedDelegationToken) -> DelegationToken:
    owner = KafkaPrincipal(found.principal_type, found.principal_name)
    requester = KafkaPrincipal(found.token_requester_principal_type, found.token_requester_principal_name)
    return DelegationToken(
        found.token_id,
        owner,
        requester if requester.name else owner,
        tuple(KafkaPrincipal(each.principal_type, each.principal_name) for each in found.renewers),
        found.issue_timestamp,
        found.expiry_timestamp,
        found.max_timestamp,
        bytes(found.hmac),
    )


async def _ask(cluster: Cluster, request: Any, what: str, deadline: float) -> Any:
    async def attempt() -> Any:
        response = await cluster.send_any(request, deadline=deadline)
        if response.error_code:
            raise _error(response.error_code, what)
        return response

    return await cluster.retrying(what, attempt, deadline=deadline)


def _error(code: int, what: str) -> KafkaError:
    """The error of a response, which has no text of its own, with what to do about it."""
    error = item_error(code, None, what)
    hint = _HINTS.get(error.code)
    return error if hint is None else KafkaError(error.code, f"{error} {hint}")
