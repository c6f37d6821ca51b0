"""Shell: the SCRAM credentials of users (KIP-554). The password never leaves this process: the salted password does."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.client.admin.requests import ask_controller, item_error
from barnabas.client.cluster.cluster import Cluster
from barnabas.core.errors import KafkaError
from barnabas.protocol.security.credentials import (
    SCRAM_ITERATIONS_MAX,
    SCRAM_ITERATIONS_MIN,
    SCRAM_MECHANISMS,
    SCRAM_SALT_BYTES,
)
from barnabas.protocol.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.protocol.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)

_NAMES = {number: name for name, number in SCRAM_MECHANISMS.items()}


@dataclass(frozen=True)
class UserScramCredentialUpsertion:
    """Set the password of a user for one mechanism. With `salted_password` (and its `salt`) the password is not
    needed."""

    user: str
    mechanism: str
    password: str | None = field(default=None, repr=False)
    iterations: int = SCRAM_ITERATIONS_MIN
    salt: bytes | None = field(default=None, repr=False)
    salted_password: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class UserScramCredentialDeletion:
    """Remove the credential of a user for one mechanism."""

    user: str
    mechanism: str


ScramAlteration = UserScramCredentialUpsertion | UserScramCredentialDeletion


async def describe_user_scram_credentials(
    cluster: Cluster, users: Iterable[str] | None, *, deadline: float
) -> dict[str, Mapping[str, int] | KafkaError]:
    """The mechanisms of each user, with the iterations; of all users if `users` is None."""
    names = None if users is None else list(dict.fromkeys(users))
    if names is not None and not names:
        return {}
    request = DescribeUserScramCredentialsRequest(users=None if names is None else [UserName(name=n) for n in names])

    async def attempt() -> DescribeUserScramCredentialsResponse:
        response: DescribeUserScramCredentialsResponse = await cluster.send_controller(request, deadline=deadline)
        if response.error_code:
            raise item_error(response.error_code, response.error_message, "Describing users")
        return response

    answer = await cluster.retrying("Describing users", attempt, deadline=deadline)
    results: dict[str, Mapping[str, int] | KafkaError] = {}
    for result in answer.results:
        if result.error_code:
            results[result.user] = item_error(result.error_code, result.error_message, f"User {result.user!r}")
        else:
            infos = result.credential_infos
            results[result.user] = {_NAMES.get(i.mechanism, str(i.mechanism)): i.iterations for i in infos}
    return results


async def alter_user_scram_credentials(
    cluster: Cluster, alterations: Sequence[ScramAlteration], *, deadline: float
) -> dict[str, KafkaError | None]:
    """Make the changes. A user of whom one change is invalid keeps all credentials. Raises ValueError for an unknown
    mechanism, too few or too many iterations, and a missing password."""
    by_user: dict[str, list[ScramCredentialDeletion | ScramCredentialUpsertion]] = {}
    for alteration in alterations:
        by_user.setdefault(alteration.user, []).append(_encoded(alteration))

    def build(users: list[str]) -> AlterUserScramCredentialsRequest:
        changes = [change for user in users for change in by_user[user]]
        return AlterUserScramCredentialsRequest(
            deletions=[change for change in changes if isinstance(change, ScramCredentialDeletion)],
            upsertions=[change for change in changes if isinstance(change, ScramCredentialUpsertion)],
        )

    def parse(response: AlterUserScramCredentialsResponse) -> list[tuple[str, int, str | None, None]]:
        return [(result.user, result.error_code, result.error_message, None) for result in response.results]

    return await ask_controller(cluster, by_user, build, parse, what="Changing user", deadline=deadline)


def _encoded(alteration: ScramAlteration) -> ScramCredentialDeletion | ScramCredentialUpsertion:
    number = SCRAM_MECHANISMS.get(alteration.mechanism)
    if number is None:
        raise ValueError(f"{alteration.mechanism!r} is not a SCRAM mechanism; use {' or '.join(SCRAM_MECHANISMS)}.")
    if isinstance(alteration, UserScramCredentialDeletion):
        return ScramCredentialDeletion(name=alteration.user, mechanism=number)
    if not SCRAM_ITERATIONS_MIN <= alteration.iterations <= SCRAM_ITERATIONS_MAX:
        raise ValueError(f"iterations={alteration.iterations}: use {SCRAM_ITERATIONS_MIN} to {SCRAM_ITERATIONS_MAX}.")
    # Imported here: these modules load OpenSSL, which clients without users and without TLS do not need.
    import hashlib
    import secrets

    from barnabas.protocol.security.scram import HASHES

    salt, salted = alteration.salt or secrets.token_bytes(SCRAM_SALT_BYTES), alteration.salted_password
    if salted is None:
        if not alteration.password:
            raise ValueError(f"The user {alteration.user!r} needs a password.")
        name = HASHES[alteration.mechanism]
        salted = hashlib.pbkdf2_hmac(name, alteration.password.encode(), salt, alteration.iterations)
    return ScramCredentialUpsertion(
        name=alteration.user, mechanism=number, iterations=alteration.iterations, salt=salt, salted_password=salted
    )
