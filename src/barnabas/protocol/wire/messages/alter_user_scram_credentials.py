"""Table: AlterUserScramCredentials (key 51) sets or removes SCRAM credentials."""

from __future__ import annotations

from barnabas.protocol.wire.schema import MessageStruct, Request, Response, array, binary, int8, int16, int32, string


class ScramCredentialDeletion(MessageStruct):
    name: str = string()
    mechanism: int = int8()


class ScramCredentialUpsertion(MessageStruct):
    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = binary(sensitive=True)
    salted_password: bytes = binary(sensitive=True)


class AlterUserScramCredentialsRequest(Request, key=51, versions="0", flexible="0+"):
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(MessageStruct):
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(null="0+")


class AlterUserScramCredentialsResponse(Response, key=51, versions="0", flexible="0+"):
    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
