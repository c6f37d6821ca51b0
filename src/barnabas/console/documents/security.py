"""Shell: ACLs, users with SCRAM passwords, and quotas."""

from __future__ import annotations

from typing import Any, Final

from barnabas.console.documents.lists import page_of
from barnabas.console.sources import Call
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.security.acls import AclBinding, AclPermissionType, AclResourceType, PatternType, known
from barnabas.protocol.security.operations import AclOperation

RESOURCE_TYPES: Final = tuple(t.name for t in AclResourceType if t > AclResourceType.ANY)
PATTERN_TYPES: Final = (PatternType.LITERAL.name, PatternType.PREFIXED.name)
OPERATIONS: Final = tuple(o.name for o in AclOperation if o > AclOperation.ANY)
QUOTAS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
DEFAULT_NAME: Final = "<default>"


def acl_row(acl: AclBinding) -> dict[str, Any]:
    return {
        "principal": acl.principal,
        "permission": known(AclPermissionType, acl.permission_type).name,
        "operation": known(AclOperation, acl.operation).name,
        "resource_type": known(AclResourceType, acl.resource_type).name,
        "pattern_type": known(PatternType, acl.pattern_type).name,
        "resource": acl.resource_name,
        "host": acl.host,
    }


async def acls(call: Call) -> dict[str, Any]:
    """All ACLs, searched by principal or resource."""
    choices = {"resource_types": RESOURCE_TYPES, "pattern_types": PATTERN_TYPES, "operations": OPERATIONS}
    try:
        rows = [acl_row(acl) for acl in await call.admin.describe_acls()]
    except KafkaError as error:
        if error.code is not ErrorCode.SECURITY_DISABLED:
            raise
        return {**page_of([], {}, name="text", sorts={"text": str}), **choices, "enabled": False}
    for row in rows:
        row["text"] = f"{row['principal']} {row['resource_type']} {row['resource']} {row['operation']}"
    page = page_of(rows, call.query, name="text", sorts={"text": lambda row: row["text"]})
    return {**page, **choices, "enabled": True}


async def users(call: Call) -> dict[str, Any]:
    """The users that have SCRAM passwords, with mechanisms and iterations. Passwords cannot be read."""
    found = await call.admin.describe_user_scram_credentials()
    rows = [
        {"user": name, "mechanisms": {} if isinstance(answer, KafkaError) else dict(answer)}
        for name, answer in found.items()
    ]
    return {
        **page_of(rows, call.query, name="user", sorts={"user": lambda row: row["user"]}),
        "mechanisms": MECHANISMS,
    }


async def quotas(call: Call) -> dict[str, Any]:
    """The quotas that are set."""
    found = await call.admin.describe_client_quotas()
    rows = []
    for entity, values in found.items():
        names = {kind: DEFAULT_NAME if name is None else name for kind, name in entity}
        rows.append(
            {
                "text": " ".join(f"{kind}={name}" for kind, name in names.items()),
                "entity": names,
                "quotas": dict(sorted(values.items())),
            }
        )
    page = page_of(rows, call.query, name="text", sorts={"text": lambda row: row["text"]})
    return {**page, "names": QUOTAS, "default_name": DEFAULT_NAME}
