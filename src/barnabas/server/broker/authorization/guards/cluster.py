"""Machine: the authorization of requests about configs and the cluster. A guard has the form that `topics.py`
describes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from barnabas.core.errors import ErrorCode
from barnabas.core.work import Pauses
from barnabas.protocol.security.acls import CLUSTER_NAME, AclResourceType
from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntryDataResponse,
)
from barnabas.protocol.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from barnabas.protocol.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.authorization.checks import (
    CHECKS_PER_TURN,
    CLUSTER,
    GROUP,
    MANY,
    REFUSALS,
    TOPIC,
    ClientRights,
)
from barnabas.server.broker.authorization.guards.refusals import element_type
from barnabas.server.broker.authorization.outcomes import Decided, Later, Narrowed, Outcome
from barnabas.server.broker.authorization.ports import GuardPort
from barnabas.server.metadata.image.small import ResourceType

_O = AclOperation
_PROTECTED_BY: Final[Mapping[int, AclResourceType]] = {
    ResourceType.TOPIC: TOPIC,
    ResourceType.GROUP: GROUP,
    ResourceType.BROKER: CLUSTER,
    ResourceType.BROKER_LOGGER: CLUSTER,
    ResourceType.CLIENT_METRICS: CLUSTER,
}
"""The type of the resource whose ACLs protect the configs of a config resource."""


def by_config_resource(operation: AclOperation, answers: str) -> Callable[[GuardPort, ClientRights, Any], Outcome]:
    """A guard of requests that need one right on each of their config resources."""

    def guard(port: GuardPort, auth: ClientRights, request: Any) -> Outcome:
        if len(request.resources) > MANY:
            return Later(split_many(auth, request))
        codes = [refusal(auth, resource) for resource in request.resources]
        return decide(request, codes)

    async def split_many(auth: ClientRights, request: Any) -> Decided:
        pauses = Pauses(CHECKS_PER_TURN)
        codes: list[ErrorCode | None] = []
        for resource in request.resources:
            codes.append(refusal(auth, resource))
            await pauses.after(1)
        return decide(request, codes)

    def refusal(auth: ClientRights, resource: Any) -> ErrorCode | None:
        kind = _PROTECTED_BY.get(resource.resource_type)
        name = CLUSTER_NAME if kind is CLUSTER else resource.resource_name
        # A type that is unknown is refused by the handler.
        return None if kind is None or auth.allows(operation, kind, name) else REFUSALS[kind]

    def decide(request: Any, codes: list[ErrorCode | None]) -> Decided:
        """`codes` has an entry for each resource: why it is refused, or None."""
        entries = list(zip(request.resources, codes, strict=True))
        kept = [resource for resource, code in entries if code is None]
        refused = [(resource, code) for resource, code in entries if code is not None]
        if not refused:
            return None
        request.resources = kept
        response_type = APIS[ApiKey(request.__schema__.key)].response
        answer: Any = element_type(response_type, answers)

        def complete(response: Any) -> Any:
            getattr(response, answers).extend(
                answer(
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    error_code=code,
                    error_message=code.message,
                )
                for resource, code in refused
            )
            return response

        if kept:
            return Narrowed(complete)
        result: Message = complete(response_type())
        return result

    return guard


describe_configs = by_config_resource(_O.DESCRIBE_CONFIGS, "results")
alter_configs = by_config_resource(_O.ALTER_CONFIGS, "responses")


def describe_cluster(port: GuardPort, auth: ClientRights, request: DescribeClusterRequest) -> Outcome:
    """The nodes of a cluster are no secret; the operations on it are shown to a client that may describe it."""

    def complete(response: DescribeClusterResponse) -> DescribeClusterResponse:
        response.cluster_authorized_operations = auth.cluster_operations(response.cluster_authorized_operations)
        return response

    return Narrowed(complete)


def describe_cluster_of_controllers(port: GuardPort, auth: ClientRights, request: DescribeClusterRequest) -> Outcome:
    if auth.allows(_O.ALTER, CLUSTER):
        return describe_cluster(port, auth, request)
    code = REFUSALS[CLUSTER]
    return DescribeClusterResponse(error_code=code, error_message=code.message)


def refuse_acl_creations(request: Any, version: int, code: ErrorCode) -> Message:
    return _refuse_each(request, "creations", "results", code)


def refuse_acl_filters(request: Any, version: int, code: ErrorCode) -> Message:
    return _refuse_each(request, "filters", "filter_results", code)


def refuse_scram_changes(request: Any, version: int, code: ErrorCode) -> Message:
    users = dict.fromkeys([*(d.name for d in request.deletions), *(u.name for u in request.upsertions)])
    results = [
        AlterUserScramCredentialsResult(user=user, error_code=code, error_message=code.message) for user in users
    ]
    return AlterUserScramCredentialsResponse(results=results)


def refuse_quota_changes(request: AlterClientQuotasRequest, version: int, code: ErrorCode) -> Message:
    answers = [
        EntryDataResponse(error_code=code, error_message=code.message, entity=entry.entity) for entry in request.entries
    ]
    return AlterClientQuotasResponse(entries=answers)


def _refuse_each(request: Any, entries: str, answers: str, code: ErrorCode) -> Message:
    response: Any = APIS[ApiKey(request.__schema__.key)].response()
    kind: Any = element_type(type(response), answers)
    answer = kind(error_code=code, error_message=code.message)  # one object: the request may have 100,000 entries
    setattr(response, answers, [answer] * len(getattr(request, entries)))
    result: Message = response
    return result
