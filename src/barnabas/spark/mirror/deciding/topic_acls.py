"""Machine: the ACLs of copies, from the ACLs of the source topics.

Only ACLs of single topics (LITERAL) are copied. Nobody but the mirror may write into a copy: what allows WRITE is left
out, and what allows ALL allows READ. What denies is copied as it is. ACLs are created and never deleted.

Kafka's connector also makes the ACL of the topic `A.*` of one of the topic `*`. That ACL has no effect, because the
asterisk stands for all topics only if it is the whole name; it is left out here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from barnabas.protocol.security.acls import WILDCARD, AclBinding, AclPermissionType, AclResourceType, PatternType
from barnabas.protocol.security.operations import AclOperation
from barnabas.spark.mirror.naming.filters import TopicSelection


def missing_acls(
    source: Iterable[AclBinding], target: Collection[AclBinding], selection: TopicSelection
) -> list[AclBinding]:
    """The ACLs that the target cluster lacks, sorted."""
    return sorted({_copy(acl, selection) for acl in source if _is_copied(acl, selection)} - set(target))


def _is_copied(acl: AclBinding, selection: TopicSelection) -> bool:
    if acl.resource_type != AclResourceType.TOPIC or acl.pattern_type != PatternType.LITERAL:
        return False
    if acl.permission_type == AclPermissionType.ALLOW and acl.operation == AclOperation.WRITE:
        return False
    return acl.resource_name != WILDCARD and selection.selects(acl.resource_name)


def _copy(acl: AclBinding, selection: TopicSelection) -> AclBinding:
    allows_all = acl.permission_type == AclPermissionType.ALLOW and acl.operation == AclOperation.ALL
    return acl._replace(
        resource_name=selection.target_of(acl.resource_name),
        operation=AclOperation.READ if allows_all else acl.operation,
    )
