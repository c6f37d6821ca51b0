"""Shell: changes of ACLs, users and quotas."""

from __future__ import annotations

from typing import Final

from barnabas.client.admin.quotas import entity_text, quota_entity
from barnabas.client.admin.users import UserScramCredentialDeletion, UserScramCredentialUpsertion
from barnabas.console.access.users import Role
from barnabas.console.changes.change import Change, Outcome, confirmed, raise_first, required
from barnabas.console.documents.security import DEFAULT_NAME, MECHANISMS
from barnabas.console.errors import BadInputError
from barnabas.console.sources import Call
from barnabas.core.errors import KafkaError
from barnabas.protocol.security.acls import (
    AclBinding,
    AclBindingFilter,
    AclPermissionType,
    AclResourceType,
    PatternType,
)
from barnabas.protocol.security.operations import AclOperation

_PASSWORD_CHARACTERS_MIN: Final = 8


def binding(call: Call) -> AclBinding:
    """The ACL of a form. Raises BadInputError."""
    try:
        return AclBinding(
            AclResourceType[required(call, "resource_type")],
            required(call, "resource"),
            PatternType[call.query.get("pattern_type") or "LITERAL"],
            required(call, "principal"),
            call.query.get("host", "").strip() or "*",
            AclOperation[required(call, "operation")],
            AclPermissionType[call.query.get("permission") or "ALLOW"],
        )
    except KeyError as error:
        raise BadInputError(f"{error.args[0]!r} is not a known name.") from None


async def create_acl(call: Call) -> Outcome:
    acl = binding(call)
    raise_first(await call.admin.create_acls([acl]))
    return Outcome(f"The ACL of {acl.principal} was created.", "/acls")


async def delete_acl(call: Call) -> Outcome:
    """Delete exactly one ACL."""
    acl = binding(call)
    results = await call.admin.delete_acls([AclBindingFilter(*acl)])
    raise_first(results)
    deleted = sum(len(found) for found in results.values() if not isinstance(found, KafkaError))
    return Outcome(f"{deleted} ACL of {acl.principal} was deleted.", "/acls")


async def set_password(call: Call) -> Outcome:
    """Create a user or change the user's password. Only the salted password is sent."""
    user, mechanism, password = required(call, "user"), required(call, "mechanism"), call.query.get("password", "")
    if mechanism not in MECHANISMS:
        raise BadInputError(f"mechanism is {' or '.join(MECHANISMS)}, not {mechanism!r}.")
    if len(password) < _PASSWORD_CHARACTERS_MIN:
        raise BadInputError(f"The password must have at least {_PASSWORD_CHARACTERS_MIN} characters.")
    raise_first(
        await call.admin.alter_user_scram_credentials([UserScramCredentialUpsertion(user, mechanism, password)])
    )
    return Outcome(f"The password of {user} was set.", "/users")


async def delete_user(call: Call) -> Outcome:
    """Delete all SCRAM credentials of a user."""
    user = call.path["user"]
    confirmed(call, user)
    found = (await call.admin.describe_user_scram_credentials([user]))[user]
    if isinstance(found, KafkaError):
        raise found
    raise_first(
        await call.admin.alter_user_scram_credentials([UserScramCredentialDeletion(user, name) for name in found])
    )
    return Outcome(f"The credentials of {user} were deleted.", "/users")


async def set_quota(call: Call) -> Outcome:
    """Set a quota of an entity, or remove it with an empty value."""
    names = {
        kind: None if name == DEFAULT_NAME else name
        for kind in ("user", "client-id", "ip")
        if (name := call.query.get(kind, "").strip())
    }
    if not names:
        raise BadInputError(f"Name a user, a client id, both, or an address; {DEFAULT_NAME} is the default entity.")
    text = call.query.get("value", "").strip()
    try:
        value = float(text) if text else None
    except ValueError:
        raise BadInputError(f"value must be a number, or empty to remove the quota, not {text!r}.") from None
    entity = quota_entity(names)
    raise_first(await call.admin.alter_client_quotas({entity: {required(call, "quota"): value}}))
    return Outcome(f"The quota of {entity_text(entity)} was {'removed' if value is None else 'set'}.", "/quotas")


_ACL_FIELDS: Final = ("principal", "permission", "operation", "resource_type", "pattern_type", "resource", "host")
SECURITY_CHANGES: Final = (
    Change("/acls/create", "create ACL", Role.ADMIN, create_acl, _ACL_FIELDS),
    Change("/acls/delete", "delete ACL", Role.ADMIN, delete_acl, _ACL_FIELDS),
    Change("/users/password", "set password", Role.ADMIN, set_password, ("user", "mechanism")),
    Change("/users/{user:path}/delete", "delete user", Role.ADMIN, delete_user),
    Change("/quotas/set", "set quota", Role.ADMIN, set_quota, ("user", "client-id", "ip", "quota", "value")),
)
