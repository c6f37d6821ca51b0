"""Machine: CreateAcls and DeleteAcls, which change the ACLs of the cluster (`AclControlManager`)."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final
from uuid import UUID

from barnabas.core.decision import Decision
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.rng import random_uuid
from barnabas.protocol.security.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclBindingFilter,
    AclPermissionType,
    AclResourceType,
    PatternType,
    known,
)
from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.wire.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from barnabas.protocol.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from barnabas.server.metadata.controller.answers import RefusedError, invalid_request, message_of
from barnabas.server.metadata.controller.settings import DecideContext
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.other import AccessControlEntryRecord, RemoveAccessControlEntryRecord

CHANGES_MAX: Final = 10_000
"""The most ACLs that one request may create or delete (`MAX_RECORDS_PER_USER_OP`)."""

_STEP: Final = 200
_STEP_UNITS: Final = 20
"""So many ACLs are compared with a filter in one step, and so many units of work that is."""


def check_number(image: ClusterImage, creations: Iterable[AclCreation]) -> Iterator[int]:
    """Count the ACLs that the creations add, in steps, each of which yields its units of work. Raises KafkaError if
    there are too many."""
    added: set[AclBinding] = set()
    rest = iter(creations)
    while some := list(islice(rest, _STEP)):
        for creation in some:
            try:
                acl = _checked(creation)
            except KafkaError:
                continue
            if acl not in image.acls:
                added.add(acl)
        if len(added) > CHANGES_MAX:
            raise _too_many()
        yield _STEP


def decide_create_acls(
    image: ClusterImage, request: CreateAclsRequest, ctx: DecideContext
) -> Decision[MetadataRecord, CreateAclsResponse]:
    """A record for each valid ACL that does not exist yet. An ACL that exists, or occurs twice, is a success. Raises
    KafkaError for a request with too many ACLs: nothing is created then."""
    records: list[MetadataRecord] = []
    results: list[AclCreationResult] = []
    added: set[AclBinding] = set()
    for creation in request.creations:
        try:
            acl = _checked(creation)
        except KafkaError as error:
            results.append(AclCreationResult(error_code=error.code, error_message=message_of(error)))
            continue
        results.append(AclCreationResult())
        if acl in image.acls or acl in added:
            continue
        added.add(acl)
        if len(added) > CHANGES_MAX:
            raise _too_many()
        records.append(
            AccessControlEntryRecord(
                id=random_uuid(ctx.rng),
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
        )
    return Decision(CreateAclsResponse(results=results), records)


def decide_delete_acls(
    image: ClusterImage, request: DeleteAclsRequest, ctx: DecideContext
) -> Decision[MetadataRecord, DeleteAclsResponse]:
    """A record for each ACL that a filter selects; all are deleted, or none. An invalid filter has an error of its own.
    Raises KafkaError if the filters select too many ACLs."""
    steps = selecting(image, request.filters)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            removed, results = done.value
            records: Sequence[MetadataRecord] = [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in removed]
            return Decision(DeleteAclsResponse(filter_results=results), records)


def decide_removal(image: ClusterImage, ctx: DecideContext, *, ids: Iterable[UUID]) -> Decision[MetadataRecord, None]:
    """A record for each of the ACLs that still exists."""
    return Decision(None, [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in ids if acl_id in image.acls.by_id])


def selecting(
    image: ClusterImage, filters: Iterable[DeleteAclsFilter]
) -> Generator[int, None, tuple[list[UUID], list[DeleteAclsFilterResult]]]:
    """Find the ACLs that the filters select, in steps, each of which yields its units of work (`core/work`). Returns
    the ids, and the result of each filter. Raises KafkaError if too many ACLs are selected."""
    by_id = image.acls.by_id
    removed: dict[UUID, None] = {}
    results: list[DeleteAclsFilterResult] = []
    for wanted in filters:
        selected = filter_of(wanted)
        problem = selected.problem
        if problem is not None:
            results.append(DeleteAclsFilterResult(error_code=ErrorCode.INVALID_REQUEST, error_message=problem))
            continue
        result = DeleteAclsFilterResult(matching_acls=[])
        results.append(result)
        only = selected.only_binding
        if only is not None:
            found = image.acls.ids.get(only)
            candidates = iter(()) if found is None else iter(((found, by_id[found]),))
        else:
            candidates = iter(by_id.items())
        while entries := list(islice(candidates, _STEP)):
            for acl_id, entry in entries:
                acl = entry.binding
                if selected.matches(acl):
                    removed[acl_id] = None
                    result.matching_acls.append(_deleted(acl))
            yield _STEP_UNITS
        if len(removed) > CHANGES_MAX:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Cannot remove more than {CHANGES_MAX} acls in a single delete operation. Use narrower filters.",
            )
    return list(removed), results


def _too_many() -> KafkaError:
    return KafkaError(
        ErrorCode.POLICY_VIOLATION,
        f"A request can create at most {CHANGES_MAX} ACLs. Divide the ACLs among several requests.",
    )


def filter_of(wanted: DeleteAclsFilter) -> AclBindingFilter:
    return AclBindingFilter(
        wanted.resource_type_filter,
        wanted.resource_name_filter,
        wanted.pattern_type_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )


def _checked(creation: AclCreation) -> AclBinding:
    """Raises RefusedError for an ACL that Kafka refuses. The texts are Kafka's, and then say what is valid."""
    kind, pattern = creation.resource_type, creation.resource_pattern_type
    if kind == AclResourceType.CLUSTER and creation.resource_name != CLUSTER_NAME:
        raise invalid_request(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not creation.resource_name:
        raise invalid_request("Resource name should not be empty")
    for what, name, valid in (
        ("resourceType", known(AclResourceType, kind).name, known(AclResourceType, kind) > AclResourceType.ANY),
        ("patternType", known(PatternType, pattern).name, pattern in (PatternType.LITERAL, PatternType.PREFIXED)),
        (
            "operation",
            known(AclOperation, creation.operation).name,
            known(AclOperation, creation.operation) > AclOperation.ANY,
        ),
        (
            "permissionType",
            known(AclPermissionType, creation.permission_type).name,
            known(AclPermissionType, creation.permission_type) > AclPermissionType.ANY,
        ),
    ):
        if not valid:
            raise invalid_request(f"Invalid {what} {name}")
    type_of_principal, colon, _ = creation.principal.partition(":")
    if not colon or not type_of_principal:
        raise invalid_request(
            f"Could not parse principal from `{creation.principal}` (no colon is present separating the principal type "
            "from the principal name)"
        )
    if not creation.host:
        raise invalid_request("Host should not be empty; * stands for every host.")
    if "/" in creation.host:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"The host {creation.host} is a range of addresses, which needs metadata.version 4.4-IV1. Create an ACL "
            "for each address, or use *.",
        )
    return AclBinding(
        kind,
        creation.resource_name,
        pattern,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def _deleted(acl: AclBinding) -> DeleteAclsMatchingAcl:
    return DeleteAclsMatchingAcl(
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )
