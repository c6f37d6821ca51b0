"""Machine: the authorization of requests about groups. A guard has the form that `topics.py` describes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from barnabas.core.errors import ErrorCode
from barnabas.protocol.security.acls import AclResourceType
from barnabas.protocol.security.operations import NOT_ASKED, AclOperation
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from barnabas.protocol.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from barnabas.protocol.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponseTopic,
)
from barnabas.protocol.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from barnabas.protocol.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.protocol.wire.messages.offset_commit import OffsetCommitRequest
from barnabas.protocol.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas.protocol.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from barnabas.protocol.wire.schema import Message
from barnabas.server.broker.authorization.checks import (
    CLUSTER,
    GROUP,
    MANY,
    REFUSALS,
    TOPIC,
    TRANSACTIONAL_ID,
    ClientRights,
)
from barnabas.server.broker.authorization.guards.refusals import element_type, mirrored, refuse_entries
from barnabas.server.broker.authorization.guards.topics import by_topic, name_of, split_topics
from barnabas.server.broker.authorization.outcomes import Decided, Later, Narrowed, Outcome
from barnabas.server.broker.authorization.ports import GuardPort
from barnabas.server.broker.request_context import RequestContext

_O = AclOperation
REFUSED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TOPIC_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_HIDDEN_TOPICS: Final = "The group has described topic(s) that the client is not authorized to describe."
_NO_OFFSET: Final = {"committed_offset": -1, "metadata": ""}

_KEY_RIGHTS: Final = {
    0: (_O.DESCRIBE, GROUP),
    1: (_O.DESCRIBE, TRANSACTIONAL_ID),
}
"""The right that FindCoordinator needs on a key, by its type: a group or a transactional id."""
_SHARE_KEY: Final = 2


# ---- one group for the whole request


def by_group(operation: AclOperation) -> Callable[[GuardPort, ClientRights, Any], Outcome]:
    """A guard of requests that need one right on their group."""

    def guard(port: GuardPort, auth: ClientRights, request: Any) -> Outcome:
        if auth.allows(operation, GROUP, request.group_id):
            return None
        return _failed(request, REFUSED)

    return guard


def _failed(request: Any, code: ErrorCode) -> Message:
    """The response to the API of `request`, with a top-level error."""
    response: Any = APIS[ApiKey(request.__schema__.key)].response()
    response.error_code = code
    if hasattr(response, "error_message"):
        response.error_message = code.message
    if hasattr(request, "member_id") and hasattr(response, "member_id"):
        response.member_id = request.member_id
    result: Message = response
    return result


read_group = by_group(_O.READ)


def group_heartbeat(port: GuardPort, auth: ClientRights, request: Any, ctx: RequestContext) -> Outcome:
    """ConsumerGroupHeartbeat and ShareGroupHeartbeat: the client must be allowed to describe every topic to which it
    subscribes by name. A regular expression does not find topics that the client may not describe."""
    ctx.may_describe = partial(auth.allows, _O.DESCRIBE, TOPIC, silent=True)
    if not auth.allows(_O.READ, GROUP, request.group_id):
        return _failed(request, REFUSED)
    names = set(request.subscribed_topic_names or ())
    if len(auth.allowed_names(_O.DESCRIBE, TOPIC, names)) < len(names):
        return _failed(request, _TOPIC_REFUSED)
    return None


_commit_topics = by_topic(_O.READ, "topics", "topics")


def offset_commit(port: GuardPort, auth: ClientRights, request: OffsetCommitRequest) -> Outcome:
    if not auth.allows(_O.READ, GROUP, request.group_id):
        return refuse_entries("topics", "topics")(request, auth.version, REFUSED)
    return _commit_topics(port, auth, request)


def offset_delete(port: GuardPort, auth: ClientRights, request: OffsetDeleteRequest) -> Outcome:
    if not auth.allows(_O.DELETE, GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=REFUSED)
    return _commit_topics(port, auth, request)


# ---- several groups


def by_groups(operation: AclOperation, groups: str, answers: str) -> Callable[[GuardPort, ClientRights, Any], Outcome]:
    """A guard of requests with a list of group ids that need one right on each."""

    def guard(port: GuardPort, auth: ClientRights, request: Any) -> Outcome:
        given: list[str] = getattr(request, groups)
        if len(given) > MANY:
            return Later(split_many(auth, request, given))
        return decide(auth, request, given, auth.allowed_names(operation, GROUP, given))

    async def split_many(auth: ClientRights, request: Any, given: list[str]) -> Decided:
        return decide(auth, request, given, await auth.many_allowed_names(operation, GROUP, given))

    def decide(auth: ClientRights, request: Any, given: list[str], allowed: set[str]) -> Decided:
        refused = [group_id for group_id in given if group_id not in allowed]
        setattr(request, groups, [group_id for group_id in given if group_id in allowed])

        def complete(response: Any) -> Any:
            found = getattr(response, answers)
            for group in found:
                if getattr(group, "authorized_operations", NOT_ASKED) != NOT_ASKED:
                    group.authorized_operations = auth.operations(GROUP, group.group_id)
            _hide_groups(auth, found)
            found.extend(_refused_groups(response, answers, refused, auth.version))
            return response

        if given and len(refused) == len(given):
            result: Message = complete(APIS[ApiKey(request.__schema__.key)].response())
            return result
        return Narrowed(complete)

    return guard


def _refused_groups(response: Any, answers: str, group_ids: list[str], version: int) -> list[Any]:
    kind: Any = element_type(type(response), answers)
    has_message = any(f.name == "error_message" and version in f.versions for f in kind.__schema__.fields)
    found = []
    for group_id in group_ids:
        group = kind(group_id=group_id, error_code=REFUSED)
        if has_message:
            group.error_message = REFUSED.message
        found.append(group)
    return found


def _hide_groups(auth: ClientRights, groups: list[Any]) -> None:
    """A group with assignments of a topic that the client may not describe is answered without its members. The members
    of the classic protocol have assignments in bytes, which are not examined, as in Kafka."""
    names = {name for group in groups for name in _assigned(group)}
    if not names:
        return
    allowed = auth.allowed_names(_O.DESCRIBE, TOPIC, names)
    for group in groups:
        if not allowed.issuperset(_assigned(group)):
            group.error_code, group.error_message = _TOPIC_REFUSED, _HIDDEN_TOPICS
            group.members = []


def _assigned(group: Any) -> set[str]:
    """The names of the topics that are assigned to members of a described group."""
    names: set[str] = set()
    for member in getattr(group, "members", ()):
        for field in ("assignment", "target_assignment"):
            assignment = getattr(member, field, None)
            if assignment is not None:
                names.update(topic.topic_name for topic in assignment.topic_partitions)
        for field in ("to_revoke", "awaited"):  # ExplainGroup
            names.update(holding.topic for holding in getattr(member, field, ()))
    return names


describe_groups = by_groups(_O.DESCRIBE, "groups", "groups")
describe_groups_by_id = by_groups(_O.DESCRIBE, "group_ids", "groups")
delete_groups = by_groups(_O.DELETE, "groups_names", "results")


def list_groups(port: GuardPort, auth: ClientRights, request: ListGroupsRequest) -> Outcome:
    if auth.allows(_O.DESCRIBE, CLUSTER, silent=True):
        return None

    async def complete(response: ListGroupsResponse) -> ListGroupsResponse:
        listed = (group.group_id for group in response.groups)
        allowed = await auth.many_allowed_names(_O.DESCRIBE, GROUP, listed, silent=True)
        response.groups = [group for group in response.groups if group.group_id in allowed]
        return response

    return Narrowed(complete, is_slow=True)


def find_coordinator(port: GuardPort, auth: ClientRights, request: FindCoordinatorRequest) -> Outcome:
    keys = request.coordinator_keys if auth.version >= 4 else [request.key]
    if request.key_type == _SHARE_KEY:
        allowed = set(keys) if auth.allows(_O.CLUSTER_ACTION, CLUSTER) else set()
        code = REFUSALS[CLUSTER]
    elif request.key_type in _KEY_RIGHTS:
        operation, kind = _KEY_RIGHTS[request.key_type]
        if len(keys) > MANY:
            return Later(_find_many_coordinators(auth, request, operation, kind))
        allowed = auth.allowed_names(operation, kind, keys)
        code = REFUSALS[kind]
    else:
        return None  # the handler answers that the type is unknown
    return _split_keys(auth, request, keys, allowed, code)


async def _find_many_coordinators(
    auth: ClientRights, request: FindCoordinatorRequest, operation: AclOperation, kind: AclResourceType
) -> Decided:
    keys = request.coordinator_keys
    return _split_keys(auth, request, keys, await auth.many_allowed_names(operation, kind, keys), REFUSALS[kind])


def _split_keys(
    auth: ClientRights, request: FindCoordinatorRequest, keys: list[str], allowed: set[str], code: ErrorCode
) -> Decided:
    refused = [
        Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=code.message)
        for key in keys
        if key not in allowed
    ]
    if not refused:
        return None
    if auth.version < 4:
        return FindCoordinatorResponse(
            error_code=code, error_message=code.message, node_id=-1, host="", port=-1, coordinators=[]
        )
    request.coordinator_keys = [key for key in keys if key in allowed]

    def complete(response: FindCoordinatorResponse) -> FindCoordinatorResponse:
        response.coordinators.extend(refused)
        return response

    return Narrowed(complete) if allowed else complete(FindCoordinatorResponse())


# ---- committed offsets


def offset_fetch(port: GuardPort, auth: ClientRights, request: OffsetFetchRequest) -> Outcome:
    """A request for all topics leaves out those that the client may not describe."""
    if auth.version < 8:
        return _fetch_of_one_group(port, auth, request)
    allowed = auth.allowed_names(_O.DESCRIBE, GROUP, (group.group_id for group in request.groups))
    refused = [group for group in request.groups if group.group_id not in allowed]
    request.groups = [group for group in request.groups if group.group_id in allowed]
    hidden_topics: dict[str, list[OffsetFetchResponseTopics]] = {}
    for group in request.groups:
        if group.topics is not None:
            group.topics, hidden = split_topics(port, auth, _O.DESCRIBE, group.topics)
            hidden_topics.setdefault(group.group_id, []).extend(
                mirrored(topic, OffsetFetchResponseTopics, _TOPIC_REFUSED, **_NO_OFFSET) for topic in hidden
            )

    def complete(response: OffsetFetchResponse) -> OffsetFetchResponse:
        for answer in response.groups:
            if not answer.error_code:
                answer.topics = _describable(port, auth, answer.topics)
                answer.topics.extend(hidden_topics.get(answer.group_id, ()))
        response.groups.extend(_refused_fetch(group) for group in refused)
        return response

    return Narrowed(complete) if request.groups else complete(OffsetFetchResponse())


def _refused_fetch(group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group.group_id, error_code=REFUSED)


def _describable(port: GuardPort, auth: ClientRights, topics: list[Any]) -> list[Any]:
    names = [name_of(port, topic) for topic in topics]
    allowed = auth.allowed_names(_O.DESCRIBE, TOPIC, (name for name in names if name is not None), silent=True)
    return [topic for name, topic in zip(names, topics, strict=True) if name is None or name in allowed]


def _fetch_of_one_group(port: GuardPort, auth: ClientRights, request: OffsetFetchRequest) -> Outcome:
    if not auth.allows(_O.DESCRIBE, GROUP, request.group_id):
        if auth.version >= 2:
            return OffsetFetchResponse(error_code=REFUSED)
        return refuse_entries("topics", "topics", **_NO_OFFSET)(request, auth.version, REFUSED)
    if request.topics is None:

        def filtered(response: OffsetFetchResponse) -> OffsetFetchResponse:
            response.topics = _describable(port, auth, response.topics)
            return response

        return Narrowed(filtered)
    kept, hidden = split_topics(port, auth, _O.DESCRIBE, request.topics)
    if not hidden:
        return None
    request.topics = kept
    refused = [mirrored(topic, OffsetFetchResponseTopic, _TOPIC_REFUSED, **_NO_OFFSET) for topic in hidden]

    def complete(response: OffsetFetchResponse) -> OffsetFetchResponse:
        if not response.error_code:
            response.topics.extend(refused)
        return response

    return Narrowed(complete) if kept else complete(OffsetFetchResponse())


# ---- the offsets of share groups


def describe_share_group_offsets(
    port: GuardPort, auth: ClientRights, request: DescribeShareGroupOffsetsRequest
) -> Outcome:
    allowed = auth.allowed_names(_O.DESCRIBE, GROUP, (group.group_id for group in request.groups))
    refused = [group.group_id for group in request.groups if group.group_id not in allowed]
    request.groups = [group for group in request.groups if group.group_id in allowed]
    hidden: dict[str, list[Any]] = {}
    lists_all = {group.group_id for group in request.groups if group.topics is None}
    for group in request.groups:
        if group.topics is not None:
            names = auth.allowed_names(_O.DESCRIBE, TOPIC, (topic.topic_name for topic in group.topics))
            hidden[group.group_id] = [
                mirrored(topic, DescribeShareGroupOffsetsResponseTopic, _TOPIC_REFUSED)
                for topic in group.topics
                if topic.topic_name not in names
            ]
            group.topics = [topic for topic in group.topics if topic.topic_name in names]

    def complete(response: DescribeShareGroupOffsetsResponse) -> DescribeShareGroupOffsetsResponse:
        for group in response.groups:
            if group.group_id in lists_all:
                names = auth.allowed_names(
                    _O.DESCRIBE, TOPIC, (topic.topic_name for topic in group.topics), silent=True
                )
                group.topics = [topic for topic in group.topics if topic.topic_name in names]
            elif not group.error_code:
                group.topics.extend(hidden.get(group.group_id, ()))
        response.groups.extend(
            DescribeShareGroupOffsetsResponseGroup(group_id=group_id, error_code=REFUSED, error_message=REFUSED.message)
            for group_id in refused
        )
        return response

    return Narrowed(complete) if request.groups else complete(DescribeShareGroupOffsetsResponse())


def alter_share_group_offsets(port: GuardPort, auth: ClientRights, request: AlterShareGroupOffsetsRequest) -> Outcome:
    if not auth.allows(_O.READ, GROUP, request.group_id):
        return _failed(request, REFUSED)
    return _alter_share_topics(port, auth, request)


def delete_share_group_offsets(port: GuardPort, auth: ClientRights, request: DeleteShareGroupOffsetsRequest) -> Outcome:
    if not auth.allows(_O.DELETE, GROUP, request.group_id):
        return _failed(request, REFUSED)
    allowed = auth.allowed_names(_O.READ, TOPIC, (topic.topic_name for topic in request.topics))
    refused = [
        DeleteShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name, error_code=_TOPIC_REFUSED, error_message=_TOPIC_REFUSED.message
        )
        for topic in request.topics
        if topic.topic_name not in allowed
    ]
    if not refused:
        return None
    request.topics = [topic for topic in request.topics if topic.topic_name in allowed]
    complete = partial(_extend_responses, refused)
    return Narrowed(complete) if request.topics else complete(DeleteShareGroupOffsetsResponse())


def _extend_responses(refused: list[Any], response: Any) -> Any:
    if not response.error_code:
        response.responses.extend(refused)
    return response


_alter_share_topics = by_topic(_O.READ, "topics", "responses")
