"""Machine: AlterUserScramCredentials, the SCRAM credentials of users (KIP-554, `ScramControlManager`)."""

from __future__ import annotations

from typing import Final

from barnabas.core.decision import Decision
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.security.credentials import SCRAM_ITERATIONS_MAX, SCRAM_ITERATIONS_MIN
from barnabas.protocol.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.server.metadata.controller.answers import RefusedError, message_of
from barnabas.server.metadata.controller.settings import DecideContext
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.other import RemoveUserScramCredentialRecord, UserScramCredentialRecord

HASHES: Final = {1: "sha256", 2: "sha512"}
"""The hash function of each SCRAM mechanism, by its number."""
SCRAM_LEVEL: Final = 11
"""3.5-IV2: the first level with SCRAM credentials in the metadata."""


def decide_alter_user_scram_credentials(
    image: ClusterImage, request: AlterUserScramCredentialsRequest, ctx: DecideContext
) -> Decision[MetadataRecord, AlterUserScramCredentialsResponse]:
    """One result for each user. A user with an invalid change keeps all credentials; the other users are changed."""
    records: dict[str, list[MetadataRecord]] = {}
    errors: dict[str, KafkaError] = {}
    seen: set[tuple[str, int]] = set()
    changes: list[ScramCredentialDeletion | ScramCredentialUpsertion] = [*request.deletions, *request.upsertions]
    for change in changes:
        user = change.name
        records.setdefault(user, [])
        if user in errors:
            continue
        try:
            if (user, change.mechanism) in seen:
                raise RefusedError(
                    ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
                )
            seen.add((user, change.mechanism))
            _check_key(image, change)
            if isinstance(change, ScramCredentialDeletion):
                records[user].append(_deleted(image, change))
            else:
                records[user].append(_upserted(change))
        except RefusedError as error:
            errors[user] = error
    results = []
    for user in records:
        failed = errors.get(user)
        if failed is None:
            results.append(AlterUserScramCredentialsResult(user=user))
        else:
            results.append(
                AlterUserScramCredentialsResult(user=user, error_code=failed.code, error_message=message_of(failed))
            )
    changed = [record for user, made in records.items() if user not in errors for record in made]
    return Decision(AlterUserScramCredentialsResponse(results=results), changed)


def _check_key(image: ClusterImage, change: ScramCredentialDeletion | ScramCredentialUpsertion) -> None:
    if image.features.metadata_version < SCRAM_LEVEL:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM; it needs 3.5-IV2."
        )
    if not change.name:
        raise RefusedError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    if change.mechanism not in HASHES:
        raise RefusedError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")


def _deleted(image: ClusterImage, change: ScramCredentialDeletion) -> MetadataRecord:
    if image.scram.get(change.mechanism, change.name) is None:
        raise RefusedError(ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist")
    return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)


def _upserted(change: ScramCredentialUpsertion) -> MetadataRecord:
    if change.iterations < SCRAM_ITERATIONS_MIN:
        raise RefusedError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > SCRAM_ITERATIONS_MAX:
        raise RefusedError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    salt, salted = bytes(change.salt), bytes(change.salted_password)
    if not salt or not salted:
        raise RefusedError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "The salt and the salted password must not be empty")
    # Imported here: hashlib and hmac load OpenSSL, which a controller without users does not need.
    from barnabas.protocol.security.scram import credential_of

    made = credential_of(HASHES[change.mechanism], salted, salt, change.iterations)
    return UserScramCredentialRecord(
        name=change.name,
        mechanism=change.mechanism,
        salt=made.salt,
        stored_key=made.stored_key,
        server_key=made.server_key,
        iterations=made.iterations,
    )
