"""Machine: the authorization of requests of share consumers. A guard has the form that `topics.py` describes."""

from __future__ import annotations

from typing import Any, Final

from barnabas.core.errors import ErrorCode
from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.wire.messages.share_acknowledge import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from barnabas.protocol.wire.messages.share_fetch import (
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from barnabas.server.broker.authorization.checks import GROUP, REFUSALS, ClientRights
from barnabas.server.broker.authorization.guards.refusals import mirrored
from barnabas.server.broker.authorization.guards.topics import name_of
from barnabas.server.broker.authorization.outcomes import Narrowed, Outcome
from barnabas.server.broker.authorization.ports import GuardPort
from barnabas.server.broker.request_context import RequestContext

_O = AclOperation
_GROUP_REFUSED: Final = REFUSALS[GROUP]
REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def share_fetch(port: GuardPort, auth: ClientRights, request: ShareFetchRequest, ctx: RequestContext) -> Outcome:
    """Partitions are checked where they are read, because most of a session's partitions are not in its requests.
    Acknowledgements are in the request, and those of refused topics are not applied."""
    if not auth.allows(_O.READ, GROUP, request.group_id or ""):
        return ShareFetchResponse(error_code=_GROUP_REFUSED, error_message=_GROUP_REFUSED.message)
    may_read = ctx.may_read = auth.reader()
    refused: dict[object, set[int]] = {}
    for topic in request.topics:
        acknowledging = [p for p in topic.partitions if p.acknowledgement_batches]
        name = name_of(port, topic) if acknowledging else None
        if name is None or may_read(name):
            continue
        for p in acknowledging:
            p.acknowledgement_batches = []
            refused.setdefault(topic.topic_id, set()).add(p.partition_index)
    if not refused:
        return None

    def complete(response: ShareFetchResponse) -> ShareFetchResponse:
        if response.error_code:
            return response
        left = {topic_id: set(indexes) for topic_id, indexes in refused.items()}
        for topic in response.responses:
            for p in topic.partitions:
                if p.partition_index in left.get(topic.topic_id, ()):
                    left[topic.topic_id].discard(p.partition_index)
                    _refuse_acknowledgement(p)
        for topic_id, indexes in left.items():
            added: Any = ShareFetchableTopicResponse(topic_id=topic_id)  # type: ignore[arg-type]  # a UUID
            for index in sorted(indexes):
                partition = PartitionData(partition_index=index, records=b"")
                _refuse_acknowledgement(partition)
                added.partitions.append(partition)
            if indexes:
                response.responses.append(added)
        return response

    return Narrowed(complete)


def _refuse_acknowledgement(partition: PartitionData) -> None:
    partition.acknowledge_error_code = REFUSED
    partition.acknowledge_error_message = REFUSED.message


def share_acknowledge(port: GuardPort, auth: ClientRights, request: ShareAcknowledgeRequest) -> Outcome:
    if not auth.allows(_O.READ, GROUP, request.group_id or ""):
        return ShareAcknowledgeResponse(error_code=_GROUP_REFUSED, error_message=_GROUP_REFUSED.message)
    may_read = auth.reader()
    refused = [topic for topic in request.topics if (name := name_of(port, topic)) is not None and not may_read(name)]
    if not refused:
        return None
    request.topics = [topic for topic in request.topics if topic not in refused]

    def complete(response: ShareAcknowledgeResponse) -> ShareAcknowledgeResponse:
        if not response.error_code:
            response.responses.extend(mirrored(topic, ShareAcknowledgeTopicResponse, REFUSED) for topic in refused)
        return response

    return Narrowed(complete)
