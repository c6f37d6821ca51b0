"""Shell: the SCRAM credentials of users in `kafka-configs --entity-type users`, in the form of Kafka's tool."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from barnabas.cli.kafka.arguments import Parser, emit
from barnabas.core.config import ConfigError
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.security.credentials import SCRAM_MECHANISMS

if TYPE_CHECKING:
    from barnabas.client.admin import AsyncAdmin
    from barnabas.client.admin.users import ScramAlteration

_ENTRY: Final = re.compile(r"\s*([^=,\[\]]+)=(\[[^\]]*\]|[^,]*)\s*(?:,|$)")


async def describe_users(admin: AsyncAdmin, name: str | None) -> None:
    """Print a line for each user that has credentials. The lines contain no secret."""
    found = await admin.describe_user_scram_credentials(None if name is None else [name])
    for user, known in sorted(found.items()):
        if isinstance(known, KafkaError):
            if known.code is ErrorCode.RESOURCE_NOT_FOUND:
                continue
            raise known
        shown = ", ".join(f"{mechanism}=iterations={count}" for mechanism, count in known.items())
        emit(f"SCRAM credential configs for user-principal '{user}' are {shown}")


async def alter_user(admin: AsyncAdmin, user: str, added: str, deleted: list[str], parser: Parser) -> None:
    """Make the changes of `--add-config` and `--delete-config`."""
    from barnabas.client.admin.users import UserScramCredentialDeletion, UserScramCredentialUpsertion
    from barnabas.protocol.security.scram_arguments import parse_scram

    alterations: list[ScramAlteration] = []
    rest = added
    while rest:
        match = _ENTRY.match(rest)
        if match is None or match[1] not in SCRAM_MECHANISMS:
            names = " and ".join(SCRAM_MECHANISMS)
            parser.error(f"--add-config for users takes {names}, or quotas without them")
        try:
            given = parse_scram(f"{match[1]}={match[2]}", user=user)
        except ConfigError as error:
            parser.error(str(error))
        alterations.append(
            UserScramCredentialUpsertion(
                user, given.mechanism, given.password, given.iterations, given.salt, given.salted_password
            )
        )
        rest = rest[match.end() :]
    for name in deleted:
        if name not in SCRAM_MECHANISMS:
            parser.error(f"--delete-config for users takes {' and '.join(SCRAM_MECHANISMS)}, or quotas without them")
        alterations.append(UserScramCredentialDeletion(user, name))
    if not alterations:
        parser.error("--alter needs --add-config or --delete-config")
    failed = (await admin.alter_user_scram_credentials(alterations))[user]
    if failed is not None:
        raise failed
    emit(f"Completed updating config for user {user}.")
