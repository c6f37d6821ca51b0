"""Shell: the ACLs of the cluster: describing, creating and deleting them (KIP-133, KIP-290)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from barnabas.client.admin.requests import item_error
from barnabas.client.cluster.cluster import Cluster
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.security.acls import AclBinding, AclBindingFilter
from barnabas.protocol.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from barnabas.protocol.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


async def describe_acls(cluster: Cluster, selected: AclBindingFilter, *, deadline: float) -> list[AclBinding]:
    """The ACLs that the filter selects, sorted. Raises KafkaError, SECURITY_DISABLED if the brokers have no
    authorizer."""
    request = DescribeAclsRequest(
        resource_type_filter=selected.resource_type,
        resource_name_filter=selected.resource_name,
        pattern_type_filter=selected.pattern_type,
        principal_filter=selected.principal,
        host_filter=selected.host,
        operation=selected.operation,
        permission_type=selected.permission_type,
    )

    async def attempt() -> DescribeAclsResponse:
        response: DescribeAclsResponse = await cluster.ask_any(request, deadline=deadline)
        if response.error_code:
            raise item_error(response.error_code, response.error_message, "Describing ACLs")
        return response

    found: DescribeAclsResponse = await cluster.retrying("Describing ACLs", attempt, deadline=deadline)
    return sorted(
        AclBinding(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in found.resources
        for acl in resource.acls
    )


async def create_acls(
    cluster: Cluster, acls: Iterable[AclBinding], *, deadline: float
) -> dict[AclBinding, KafkaError | None]:
    """Create ACLs. The result of each is None, also for an ACL that exists already, or its error."""
    given = list(dict.fromkeys(acls))
    if not given:
        return {}
    request = CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
            for acl in given
        ]
    )

    async def attempt() -> CreateAclsResponse:
        response: CreateAclsResponse = await cluster.send_controller(request, deadline=deadline)
        _retry_if_all_failed(response.results)
        return response

    response: CreateAclsResponse = await cluster.retrying("Creating ACLs", attempt, deadline=deadline)
    return {acl: _error(result, f"Creating the ACL {acl}") for acl, result in zip(given, response.results, strict=True)}


async def delete_acls(
    cluster: Cluster, filters: Iterable[AclBindingFilter], *, deadline: float
) -> dict[AclBindingFilter, list[AclBinding] | KafkaError]:
    """Delete the ACLs that the filters select. The result of each filter is the list of deleted ACLs, or its error."""
    given = list(dict.fromkeys(filters))
    if not given:
        return {}
    request = DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=selected.resource_type,
                resource_name_filter=selected.resource_name,
                pattern_type_filter=selected.pattern_type,
                principal_filter=selected.principal,
                host_filter=selected.host,
                operation=selected.operation,
                permission_type=selected.permission_type,
            )
            for selected in given
        ]
    )

    async def attempt() -> DeleteAclsResponse:
        response: DeleteAclsResponse = await cluster.send_controller(request, deadline=deadline)
        _retry_if_all_failed(response.filter_results)
        return response

    response: DeleteAclsResponse = await cluster.retrying("Deleting ACLs", attempt, deadline=deadline)
    results: dict[AclBindingFilter, list[AclBinding] | KafkaError] = {}
    for selected, result in zip(given, response.filter_results, strict=True):
        error = _error(result, f"Deleting the ACLs of {selected}")
        results[selected] = error or sorted(
            AclBinding(
                acl.resource_type,
                acl.resource_name,
                acl.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
            for acl in result.matching_acls
        )
    return results


def _error(result: Any, what: str) -> KafkaError | None:
    return item_error(result.error_code, result.error_message, what) if result.error_code else None


def _retry_if_all_failed(results: Sequence[Any]) -> None:
    """Raise NOT_CONTROLLER if every item has this error: nothing was changed, and another broker may know the
    controller."""
    if results and all(result.error_code == ErrorCode.NOT_CONTROLLER for result in results):
        raise KafkaError(ErrorCode.NOT_CONTROLLER)
