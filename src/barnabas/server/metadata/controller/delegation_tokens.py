"""Machine: CreateDelegationToken, RenewDelegationToken and ExpireDelegationToken, and the removal of expired tokens
(KIP-48, KIP-373, KIP-900, `DelegationTokenControlManager`).

A token is found by its HMAC, which the metadata do not contain. The caller knows the ids of HMACs, and passes the id.
The response to a created token lacks the HMAC: the caller adds it.
"""

from __future__ import annotations

from typing import Final

from barnabas.core.decision import Decision
from barnabas.core.errors import ErrorCode
from barnabas.core.ids import uuid_to_text
from barnabas.core.rng import random_uuid
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
from barnabas.server.metadata.controller.settings import DecideContext
from barnabas.server.metadata.image.cluster import ClusterImage, DelegationTokenImage
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.other import DelegationTokenRecord, RemoveDelegationTokenRecord

DELEGATION_TOKEN_LEVEL: Final = 14
"""3.6-IV2: the first level with delegation tokens in the metadata."""
USER_TYPE: Final = "User"
"""The only type of principal that can own or renew a token."""
RENEWERS_MAX: Final = 1_000
"""The most renewers of one token. A token is one record of the metadata log."""
NAMES_LENGTH_MAX: Final = 64 * 1024
"""The most characters of the owner, the requester and the renewers of one token together."""
TOKENS_OF_REQUESTER_MAX: Final = 1_000
NAMES_OF_REQUESTER_MAX: Final = 1024 * 1024
"""The most characters of the names in all tokens that one principal has requested."""
TOKENS_MAX: Final = 10_000
NAMES_MAX: Final = 32 * 1024 * 1024
"""The most characters of the names in all tokens of the cluster."""
REMOVED_AT_ONCE: Final = 1_000
"""The most expired tokens that one decision removes."""
_LATEST: Final = 2**63 - 1


def owner_of(request: CreateDelegationTokenRequest, requester: KafkaPrincipal) -> KafkaPrincipal:
    """The principal for which a token is created: that of the request, or else the client itself."""
    if not request.owner_principal_name:
        return requester
    return KafkaPrincipal(request.owner_principal_type or "", request.owner_principal_name)


def decide_create_delegation_token(
    image: ClusterImage, request: CreateDelegationTokenRequest, ctx: DecideContext, requester: KafkaPrincipal
) -> Decision[MetadataRecord, CreateDelegationTokenResponse]:
    """A new token. The HMAC of the response is empty."""
    owner = owner_of(request, requester)
    response = CreateDelegationTokenResponse(
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
    )
    response.error_code = (
        _refusal(image, ctx) or _unusable(request, owner) or _too_many(image, str(requester), names_length(request))
    )
    if response.error_code:
        return Decision(response)
    settings, now_ms = ctx.settings, ctx.now_ms
    response.token_id = uuid_to_text(random_uuid(ctx.rng))
    response.issue_timestamp_ms = now_ms
    response.max_timestamp_ms = _after(
        now_ms, _shorter(request.max_lifetime_ms, settings.delegation_token_max_lifetime_ms)
    )
    response.expiry_timestamp_ms = min(
        response.max_timestamp_ms, _after(now_ms, settings.delegation_token_expiry_time_ms)
    )
    record = DelegationTokenRecord(
        owner=str(owner),
        requester=str(requester),
        renewers=[f"{renewer.principal_type}:{renewer.principal_name}" for renewer in request.renewers],
        issue_timestamp=now_ms,
        max_timestamp=response.max_timestamp_ms,
        expiration_timestamp=response.expiry_timestamp_ms,
        token_id=response.token_id,
    )
    return Decision(response, [record])


def decide_renew_delegation_token(
    image: ClusterImage,
    request: RenewDelegationTokenRequest,
    ctx: DecideContext,
    requester: KafkaPrincipal,
    token_id: str | None,
) -> Decision[MetadataRecord, RenewDelegationTokenResponse]:
    """A later expiry, which is never after the end of the token's lifetime. `token_id` is None if no token has the HMAC
    of the request."""
    token = None if token_id is None else image.tokens.by_id.get(token_id)
    code = _refusal(image, ctx)
    if code:
        return Decision(RenewDelegationTokenResponse(error_code=code))
    if token is None:
        return Decision(RenewDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_NOT_FOUND))
    if is_expired(token, ctx.now_ms):
        return Decision(RenewDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_EXPIRED))
    if not _may_renew(token, requester):
        return Decision(RenewDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH))
    period_ms = _shorter(request.renew_period_ms, ctx.settings.delegation_token_expiry_time_ms)
    expiry_ms = min(token.max_timestamp, _after(ctx.now_ms, period_ms))
    return Decision(RenewDelegationTokenResponse(expiry_timestamp_ms=expiry_ms), [_with_expiry(token, expiry_ms)])


def decide_expire_delegation_token(
    image: ClusterImage,
    request: ExpireDelegationTokenRequest,
    ctx: DecideContext,
    requester: KafkaPrincipal,
    token_id: str | None,
) -> Decision[MetadataRecord, ExpireDelegationTokenResponse]:
    """The removal of the token if the period is negative; else another expiry, which may be sooner or later. The owner
    may remove a token that has expired."""
    token = None if token_id is None else image.tokens.by_id.get(token_id)
    code = _refusal(image, ctx)
    if code:
        return Decision(ExpireDelegationTokenResponse(error_code=code))
    if token is None:
        return Decision(ExpireDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_NOT_FOUND))
    if not _may_renew(token, requester):
        return Decision(ExpireDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH))
    if request.expiry_time_period_ms < 0:
        removal = RemoveDelegationTokenRecord(token_id=token.token_id)
        return Decision(ExpireDelegationTokenResponse(expiry_timestamp_ms=ctx.now_ms), [removal])
    if is_expired(token, ctx.now_ms):
        return Decision(ExpireDelegationTokenResponse(error_code=ErrorCode.DELEGATION_TOKEN_EXPIRED))
    expiry_ms = min(token.max_timestamp, _after(ctx.now_ms, request.expiry_time_period_ms))
    return Decision(ExpireDelegationTokenResponse(expiry_timestamp_ms=expiry_ms), [_with_expiry(token, expiry_ms)])


def decide_remove_expired(image: ClusterImage, ctx: DecideContext) -> Decision[MetadataRecord, list[str]]:
    """The removal of expired tokens, at most REMOVED_AT_ONCE; the response has their ids."""
    removed: list[str] = []
    for token in image.tokens.by_id.values():
        if is_expired(token, ctx.now_ms):
            removed.append(token.token_id)
            if len(removed) == REMOVED_AT_ONCE:
                break
    return Decision(removed, [RemoveDelegationTokenRecord(token_id=token_id) for token_id in removed])


def is_expired(token: DelegationTokenImage, now_ms: int) -> bool:
    return token.max_timestamp < now_ms or token.expiration_timestamp < now_ms


def _refusal(image: ClusterImage, ctx: DecideContext) -> ErrorCode:
    """Why the cluster has no tokens; NONE if it has."""
    if not ctx.settings.delegation_token_secret_key:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    if image.features.metadata_version < DELEGATION_TOKEN_LEVEL:
        return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE


def _unusable(request: CreateDelegationTokenRequest, owner: KafkaPrincipal) -> ErrorCode:
    """Why the token cannot have this owner or these renewers; NONE if it can."""
    if owner.kind != USER_TYPE or any(renewer.principal_type != USER_TYPE for renewer in request.renewers):
        return ErrorCode.INVALID_PRINCIPAL_TYPE
    return ErrorCode.INVALID_REQUEST if has_too_many_names(request) else ErrorCode.NONE


def names_length(request: CreateDelegationTokenRequest) -> int:
    """The characters of the names of renewers that a token would have."""
    return sum(len(renewer.principal_type) + 1 + len(renewer.principal_name) for renewer in request.renewers)


def has_too_many_names(request: CreateDelegationTokenRequest) -> bool:
    """Whether the renewers of a new token are too many, or their names too long."""
    return len(request.renewers) > RENEWERS_MAX or names_length(request) > NAMES_LENGTH_MAX


def _too_many(image: ClusterImage, requester: str, length: int) -> ErrorCode:
    """POLICY_VIOLATION if the requester, or the cluster, has too many tokens for one more; else NONE."""
    tokens = image.tokens.by_id
    all_length = own = own_length = 0
    for token in tokens.values():
        all_length += token.names_length
        if token.requester == requester:
            own += 1
            own_length += token.names_length
    fits = (
        len(tokens) < TOKENS_MAX
        and own < TOKENS_OF_REQUESTER_MAX
        and all_length + length <= NAMES_MAX
        and own_length + length <= NAMES_OF_REQUESTER_MAX
    )
    return ErrorCode.NONE if fits else ErrorCode.POLICY_VIOLATION


def _may_renew(token: DelegationTokenImage, requester: KafkaPrincipal) -> bool:
    name = str(requester)
    return name == token.owner or name in token.renewers


def _with_expiry(token: DelegationTokenImage, expiration_timestamp: int) -> DelegationTokenRecord:
    return DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=expiration_timestamp,
        token_id=token.token_id,
    )


def _shorter(asked_ms: int, limit_ms: int) -> int:
    """The period that the client wants, up to the limit; the limit if the client leaves the choice to the cluster."""
    return min(asked_ms, limit_ms) if asked_ms > 0 else limit_ms


def _after(now_ms: int, period_ms: int) -> int:
    return min(now_ms + period_ms, _LATEST)
