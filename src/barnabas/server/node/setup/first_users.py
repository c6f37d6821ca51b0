"""Value: the metadata records of the users that a new cluster has from its start (`--add-scram`)."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.core.config import ConfigError
from barnabas.core.rng import Rng
from barnabas.protocol.security.credentials import SCRAM_MECHANISMS
from barnabas.protocol.security.scram_arguments import parse_scram
from barnabas.server.metadata.records.other import UserScramCredentialRecord


def first_user_records(texts: Iterable[str], rng: Rng) -> list[UserScramCredentialRecord]:
    """A record for each text of the form `SCRAM-SHA-512=[name=admin,password=secret]`. Raises ConfigError; the message
    contains no password."""
    records: dict[tuple[str, str], UserScramCredentialRecord] = {}
    for text in texts:
        given = parse_scram(text)
        key = (given.mechanism, given.user)
        if key in records:
            raise ConfigError(f"--add-scram: the user {given.user!r} is given twice for {given.mechanism}.")
        made = given.credential(rng)
        records[key] = UserScramCredentialRecord(
            name=given.user,
            mechanism=SCRAM_MECHANISMS[given.mechanism],
            salt=made.salt,
            stored_key=made.stored_key,
            server_key=made.server_key,
            iterations=made.iterations,
        )
    return list(records.values())
