"""Machine: the authorization of requests about topics and their records.

A guard has the form `guard(port, auth, request)`. It removes the entries that the client may not use from the
request, and returns its decision (`authorization/outcomes.py`).

A topic is checked before it is looked for: a client without rights cannot find out whether the topic exists.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from struct import Struct
from typing import Any, Final

from barnabas.core.errors import ErrorCode
from barnabas.core.ids import INTERNAL_TOPICS, NO_TOPIC_ID
from barnabas.core.work import Pauses
from barnabas.protocol.records.batch import TRANSACTIONAL_FLAG
from barnabas.protocol.security.operations import NOT_ASKED, AclOperation
from barnabas.protocol.transport.ports import CloseConnectionError
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.protocol.wire.messages.create_partitions import CreatePartitionsRequest
from barnabas.protocol.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest
from barnabas.protocol.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from barnabas.protocol.wire.messages.fetch import FetchRequest
from barnabas.protocol.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from barnabas.protocol.wire.messages.produce import ProduceRequest
from barnabas.protocol.wire.schema import Message, MessageStruct
from barnabas.server.broker.authorization.checks import (
    CHECKS_PER_TURN,
    CLUSTER,
    MANY,
    TOPIC,
    TRANSACTIONAL_ID,
    ClientRights,
)
from barnabas.server.broker.authorization.grants import Grants, operation_on
from barnabas.server.broker.authorization.guards.refusals import (
    element_type,
    mirrored,
    mirrored_with_pauses,
    partition_count,
    refuse_entries,
)
from barnabas.server.broker.authorization.outcomes import Decided, Later, Narrowed, Outcome
from barnabas.server.broker.authorization.ports import GuardPort
from barnabas.server.broker.handlers.cluster.port import ClusterPort
from barnabas.server.broker.request_context import RequestContext

Handle = Callable[[Any, RequestContext, Any], Coroutine[Any, Any, Message | None]]
_O = AclOperation
REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_BATCH_HEAD: Final = 12
"""Base offset and length, which precede the bytes that the length counts."""
_ATTRIBUTES_END: Final = 23
"""The end of the attributes in a batch."""
_unpack_length_and_attributes = Struct(">i9xh").unpack_from
"""The length and the attributes of a batch, from its length on: leader epoch, magic and CRC are between them."""
_WRITE_TOPIC: Final = operation_on(_O.WRITE, TOPIC)


def name_of(port: GuardPort, entry: Any) -> str | None:
    """The name of the topic of an entry that has a name or an id; None if no topic has the id."""
    topic_id = getattr(entry, "topic_id", None)
    if topic_id is not None and topic_id.int:
        topic = port.metadata.image.topics.get_by_id(topic_id)
        return None if topic is None else topic.name
    for field in ("name", "topic", "topic_name"):
        if hasattr(entry, field):
            found: str | None = getattr(entry, field)
            return found
    raise AssertionError(f"{type(entry).__name__} has no name of a topic")


def split_topics(
    port: GuardPort, auth: ClientRights, operation: AclOperation, entries: list[Any]
) -> tuple[list[Any], list[Any]]:
    """The entries whose topics allow the operation, and those whose topics do not. An entry with an unknown id is in
    the first list: the handler answers that the id is unknown."""
    names = [name_of(port, entry) for entry in entries]
    return _split(entries, names, auth.allowed_names(operation, TOPIC, _known(names)))


def _known(names: list[str | None]) -> Iterator[str]:
    return (name for name in names if name is not None)


def _split(entries: list[Any], names: list[str | None], allowed: set[str]) -> tuple[list[Any], list[Any]]:
    kept: list[Any] = []
    refused: list[Any] = []
    for name, entry in zip(names, entries, strict=True):
        (kept if name is None or name in allowed else refused).append(entry)
    return kept, refused


def by_topic(
    operation: AclOperation, entries: str, answers: str, **fixed: object
) -> Callable[[GuardPort, ClientRights, Any], Outcome]:
    """A guard of requests that need one right on each of their topics. `fixed` are fields of refused partitions."""

    def guard(port: GuardPort, auth: ClientRights, request: Any) -> Outcome:
        present = getattr(request, entries)
        if len(present) == 1:  # most requests
            name = name_of(port, present[0])
            allowed = name is None or auth.allows(operation, TOPIC, name)
            return None if allowed else decide(request, [], present)
        if len(present) > MANY:
            return Later(split_many(port, auth, request, present))
        return decide(request, *split_topics(port, auth, operation, present))

    async def split_many(port: GuardPort, auth: ClientRights, request: Any, present: list[Any]) -> Decided:
        names = [name_of(port, entry) for entry in present]
        allowed = await auth.many_allowed_names(operation, TOPIC, _known(names))
        decided = decide(request, *_split(present, names, allowed))
        return await decided.decided if isinstance(decided, Later) else decided

    def decide(request: Any, kept: list[Any], refused: list[Any]) -> Outcome:
        if not refused:
            return None
        if partition_count(refused) > MANY:
            return Later(refuse_many(request, kept, refused))
        return refuse(request, kept, [mirrored(entry, kind_of(request), REFUSED, **fixed) for entry in refused])

    async def refuse_many(request: Any, kept: list[Any], refused: list[Any]) -> Decided:
        return refuse(request, kept, await mirrored_with_pauses(refused, kind_of(request), REFUSED, **fixed))

    def refuse(request: Any, kept: list[Any], results: list[Any]) -> Decided:
        setattr(request, entries, kept)
        complete = partial(_append, answers, results)
        if kept:
            return Narrowed(complete)
        answer: Message = complete(APIS[ApiKey(request.__schema__.key)].response())
        return answer

    def kind_of(request: Any) -> type[MessageStruct]:
        return element_type(APIS[ApiKey(request.__schema__.key)].response, answers)

    return guard


def _append(field: str, results: list[Any], response: Any) -> Any:
    getattr(response, field).extend(results)
    return response


# ---- records


def produce(port: GuardPort, auth: ClientRights, request: ProduceRequest) -> Outcome:
    """A transactional batch needs the transactional id, whatever the request claims about itself (CVE-2018-17196)."""
    if _has_transactional_batch(request):
        transactional_id = request.transactional_id
        if transactional_id is None or not auth.allows(_O.WRITE, TRANSACTIONAL_ID, transactional_id):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            response = refuse_entries("topic_data", "responses", base_offset=-1)(request, auth.version, code)
            return _close_if_unanswered(request, response)
    outcome = _produce(port, auth, request)
    return outcome if outcome is None or request.acks != 0 else Later(_unanswered(outcome))


async def _unanswered(outcome: Outcome) -> Decided:
    """The outcome for a request without a response: a refusal closes the connection."""
    decided = await outcome.decided if isinstance(outcome, Later) else outcome
    if decided is not None:
        raise CloseConnectionError("The client has no right to write to a topic of its Produce request with acks=0.")
    return None


_produce = by_topic(_O.WRITE, "topic_data", "responses", base_offset=-1)


def produce_if_granted(handle: Handle, guarded: Handle, grants: Grants) -> Handle:
    """`handle` for a request to topics to which the client was allowed to write before, without transactional batches;
    else `guarded`. The checks of a partition with one batch, the most usual, need no call."""
    known, is_audited = grants.known, grants.is_audited  # the set changes in place

    def handle_granted(
        port: GuardPort, ctx: RequestContext, request: ProduceRequest
    ) -> Coroutine[Any, Any, Message | None]:
        client, topics = ctx.client, request.topic_data
        principal, host = client.principal, client.host
        for topic in topics:
            if (_WRITE_TOPIC, topic.name or name_of(port, topic), principal, host) not in known:
                return guarded(port, ctx, request)
            for data in topic.partition_data:
                records: Any = data.records
                if records is None:
                    continue
                if (size := len(records)) >= _ATTRIBUTES_END:
                    length, attributes = _unpack_length_and_attributes(records, 8)
                    if length + _BATCH_HEAD == size and not attributes & TRANSACTIONAL_FLAG:
                        continue
                if _is_transactional(records):
                    return guarded(port, ctx, request)
        if is_audited():
            return guarded(port, ctx, request)
        grants.hits += len(topics)
        return handle(port, ctx, request)

    return handle_granted


def _close_if_unanswered(request: ProduceRequest, response: Message) -> Message:
    if request.acks == 0:  # Kafka closes the connection, too, so that the producer notices the error
        raise CloseConnectionError("A Produce request with acks=0, which gets no response, is not authorized.")
    return response


def _has_transactional_batch(request: ProduceRequest) -> bool:
    """Whether any batch of any partition is transactional."""
    return any(
        data.records is not None and _is_transactional(data.records)
        for topic in request.topic_data
        for data in topic.partition_data
    )


def _is_transactional(records: Any) -> bool:
    """Whether any of these batches, which are one buffer, is transactional. A batch that is cut off counts by what is
    there of it: the handler rejects it later."""
    start, end = 0, len(records)
    while start + _ATTRIBUTES_END <= end:
        length, attributes = _unpack_length_and_attributes(records, start + 8)
        if attributes & TRANSACTIONAL_FLAG:
            return True
        if length <= 0:
            break
        start += _BATCH_HEAD + length
    return False


def fetch(port: GuardPort, auth: ClientRights, request: FetchRequest, ctx: RequestContext) -> Outcome:
    """A follower needs CLUSTER_ACTION, or else a client that claims to be a replica could move the in-sync replicas and
    the high watermark (CVE-2018-1288). Partitions are checked where they are read, because most of a session's
    partitions are not in its requests."""
    if request.replica_id >= 0 or request.replica_state.replica_id >= 0:
        allowed = auth.allows(_O.CLUSTER_ACTION, CLUSTER)
        ctx.may_read = lambda _: allowed
    else:
        ctx.may_read = auth.reader()
    return None


list_offsets = by_topic(_O.DESCRIBE, "topics", "topics")
delete_records = by_topic(_O.DELETE, "topics", "topics", low_watermark=-1)
describe_producers = by_topic(_O.READ, "topics", "topics")
_explain_partition = by_topic(_O.DESCRIBE, "topics", "topics")
run_maintenance = by_topic(_O.ALTER, "topics", "topics")
_offset_for_leader_epoch = by_topic(_O.DESCRIBE, "topics", "topics")


def offset_for_leader_epoch(port: GuardPort, auth: ClientRights, request: Any) -> Outcome:
    if auth.allows(_O.CLUSTER_ACTION, CLUSTER, silent=True):
        return None
    return _offset_for_leader_epoch(port, auth, request)


def explain_partition(port: GuardPort, auth: ClientRights, request: Any) -> Outcome:
    return Later(_explain_with_ids(port, auth, request))


async def _explain_with_ids(port: GuardPort, auth: ClientRights, request: Any) -> Decided:
    """The transactional ids of open transactions are shown to a client that may describe them."""
    outcome = _explain_partition(port, auth, request)
    decided = await outcome.decided if isinstance(outcome, Later) else outcome
    if isinstance(decided, Message):
        return decided

    def complete(response: Any) -> Any:
        for topic in response.topics:
            for partition in topic.partitions:
                for open_transaction in partition.open_transactions:
                    _hide_id(auth, open_transaction)
        return response if decided is None else decided.complete(response)

    return Narrowed(complete)


def _hide_id(auth: ClientRights, open_transaction: Any) -> None:
    name = open_transaction.transactional_id
    if name is not None and not auth.allows(_O.DESCRIBE, TRANSACTIONAL_ID, name, silent=True):
        open_transaction.transactional_id = open_transaction.transaction_state = None


# ---- metadata


def metadata(port: ClusterPort, auth: ClientRights, request: MetadataRequest) -> Outcome:
    """A list of all topics leaves out what the client may not describe. A topic that would be created needs CREATE."""
    wanted = request.topics
    refused: list[MetadataResponseTopic] = []
    lists_all = wanted is None or (auth.version == 0 and not wanted)
    if wanted and not lists_all:
        creates = request.allow_auto_topic_creation and port.config.current.auto_create_topics_enable
        if len(wanted) > MANY:
            return Later(_metadata_of_many(port, auth, request, wanted, creates=creates))
        request.topics = kept = []
        for topic in wanted:
            answer = _refused_metadata(port, auth, topic, creates=creates)
            if answer is None:
                kept.append(topic)
            else:
                refused.append(answer)
        if not kept and auth.version == 0:
            lists_all = True  # to version 0 an empty list is a list of all topics
    return _completed_metadata(auth, refused, lists_all=lists_all)


async def _metadata_of_many(
    port: GuardPort, auth: ClientRights, request: MetadataRequest, wanted: list[Any], *, creates: bool
) -> Decided:
    pauses = Pauses(CHECKS_PER_TURN)
    refused: list[MetadataResponseTopic] = []
    kept: list[Any] = []
    for topic in wanted:
        answer = _refused_metadata(port, auth, topic, creates=creates)
        if answer is None:
            kept.append(topic)
        else:
            refused.append(answer)
        await pauses.after(1)
    request.topics = kept
    return _completed_metadata(auth, refused, lists_all=not kept and auth.version == 0)


def _completed_metadata(auth: ClientRights, refused: list[MetadataResponseTopic], *, lists_all: bool) -> Narrowed:
    """The function that completes a response with the topics that are refused."""

    async def complete(response: MetadataResponse) -> MetadataResponse:
        if lists_all:
            topics = [] if refused else response.topics
            named = (topic.name or "" for topic in topics)
            names = await auth.many_allowed_names(_O.DESCRIBE, TOPIC, named, silent=True)
            response.topics = [topic for topic in topics if topic.name in names]
        for topic in response.topics:
            if topic.topic_authorized_operations != NOT_ASKED and topic.name:
                topic.topic_authorized_operations = auth.operations(TOPIC, topic.name)
        response.topics.extend({(answer.name, answer.topic_id): answer for answer in refused}.values())
        response.cluster_authorized_operations = auth.cluster_operations(response.cluster_authorized_operations)
        return response

    return Narrowed(complete, is_slow=True)


def _refused_metadata(
    port: GuardPort, auth: ClientRights, topic: Any, *, creates: bool
) -> MetadataResponseTopic | None:
    """The refusal of one topic of a request; None if the client may describe it, or if no topic has the id."""
    by_id = topic.topic_id != NO_TOPIC_ID
    if by_id and auth.version < 12:
        return None  # the handler answers with INVALID_REQUEST
    name = name_of(port, topic)
    if name is None:
        return None
    if not auth.allows(_O.DESCRIBE, TOPIC, name):
        if by_id:
            return MetadataResponseTopic(error_code=REFUSED, name=None, topic_id=topic.topic_id)
        return MetadataResponseTopic(error_code=REFUSED, name=name)
    if (
        creates
        and name not in port.metadata.image.topics
        and not auth.allows(_O.CREATE, CLUSTER, silent=True)
        and not auth.allows(_O.CREATE, TOPIC, name)
    ):
        return MetadataResponseTopic(error_code=REFUSED, name=name, is_internal=name in INTERNAL_TOPICS)
    return None


def describe_topic_partitions(port: GuardPort, auth: ClientRights, request: DescribeTopicPartitionsRequest) -> Outcome:
    """Topics that the client may not describe do not count for the pages."""
    return Later(_describe_page(port, auth, request))


async def _describe_page(port: GuardPort, auth: ClientRights, request: DescribeTopicPartitionsRequest) -> Decided:
    cursor = request.cursor
    refused: list[DescribeTopicPartitionsResponseTopic] = []
    if request.topics:
        names = sorted({topic.name for topic in request.topics})
        allowed = await auth.many_allowed_names(_O.DESCRIBE, TOPIC, names)
        refused = [
            DescribeTopicPartitionsResponseTopic(error_code=REFUSED, name=name)
            for name in names
            if name not in allowed and (cursor is None or name >= cursor.topic_name)
        ]
        if cursor is not None and cursor.topic_name in names and cursor.topic_name not in allowed:
            request.cursor, allowed = None, {name for name in allowed if name > cursor.topic_name}
    else:
        every = port.metadata.image.topics.names()
        allowed = await auth.many_allowed_names(_O.DESCRIBE, TOPIC, every, silent=True)
        if cursor is not None and cursor.partition_index >= 0:
            allowed = {name for name in allowed if name >= cursor.topic_name}
            if cursor.topic_name not in allowed:
                request.cursor = None
    request.topics = [TopicRequest(name=name) for name in sorted(allowed)]

    def complete(response: DescribeTopicPartitionsResponse) -> DescribeTopicPartitionsResponse:
        for topic in response.topics:
            if topic.topic_authorized_operations != NOT_ASKED:
                topic.topic_authorized_operations = auth.operations(TOPIC, topic.name or "")
        response.topics.extend(refused)
        return response

    return Narrowed(complete) if allowed else complete(DescribeTopicPartitionsResponse(next_cursor=None))


# ---- changes of topics, which the controller authorizes


def create_topics(port: GuardPort, auth: ClientRights, request: CreateTopicsRequest) -> Outcome:
    if auth.allows(_O.CREATE, CLUSTER, silent=True):
        return _split_creations(auth, request, None)
    names = [topic.name for topic in request.topics]
    if len(names) > MANY:
        return Later(_create_many_topics(auth, request, names))
    return _split_creations(auth, request, auth.allowed_names(_O.CREATE, TOPIC, names))


async def _create_many_topics(auth: ClientRights, request: CreateTopicsRequest, names: list[str]) -> Decided:
    return _split_creations(auth, request, await auth.many_allowed_names(_O.CREATE, TOPIC, names))


def _split_creations(auth: ClientRights, request: CreateTopicsRequest, allowed: set[str] | None) -> Decided:
    """`allowed` are the names of the topics that the client may create; None for all."""
    refused: list[CreatableTopicResult] = []
    if allowed is not None:
        names = dict.fromkeys(topic.name for topic in request.topics if topic.name not in allowed)
        refused = [
            CreatableTopicResult(name=name, error_code=REFUSED, error_message="Authorization failed.") for name in names
        ]
        request.topics = [topic for topic in request.topics if topic.name in allowed]

    def complete(response: Any) -> Any:
        for result in response.topics:
            if result.configs is None or result.error_code:
                continue
            if not auth.allows(_O.DESCRIBE_CONFIGS, TOPIC, result.name, silent=True):
                result.topic_config_error_code = REFUSED
                result.configs = []
                result.num_partitions = result.replication_factor = -1
        response.topics.extend(refused)
        return response

    return Narrowed(complete) if request.topics else complete(APIS[ApiKey.CREATE_TOPICS].response())


def delete_topics(port: GuardPort, auth: ClientRights, request: DeleteTopicsRequest) -> Outcome:
    """A topic that the client may not describe is refused by its name without a sign that it exists, and by its id
    without its name."""
    if auth.allows(_O.DELETE, CLUSTER, silent=True):
        return None
    wanted = [DeleteTopicState(name=name) for name in request.topic_names] + list(request.topics)
    names = [name for state in wanted if (name := name_of(port, state)) is not None]
    if len(names) > MANY:
        return Later(_delete_many_topics(port, auth, request, names))
    describable = auth.allowed_names(_O.DESCRIBE, TOPIC, names)
    deletable = auth.allowed_names(_O.DELETE, TOPIC, names)
    return _split_deletions(port, request, describable, deletable)


async def _delete_many_topics(
    port: GuardPort, auth: ClientRights, request: DeleteTopicsRequest, names: list[str]
) -> Decided:
    describable = await auth.many_allowed_names(_O.DESCRIBE, TOPIC, names)
    deletable = await auth.many_allowed_names(_O.DELETE, TOPIC, names)
    return _split_deletions(port, request, describable, deletable)


def _split_deletions(
    port: GuardPort, request: DeleteTopicsRequest, describable: set[str], deletable: set[str]
) -> Decided:
    topics = port.metadata.image.topics
    refused: list[DeletableTopicResult] = []

    def is_kept(state: DeleteTopicState) -> bool:
        name = name_of(port, state)
        if name is None or (name in describable and (name in deletable or name not in topics)):
            return True  # the handler finds out what is wrong with the request, if anything
        shown = name if name in describable or state.name is not None else None
        refused.append(
            DeletableTopicResult(name=shown, topic_id=state.topic_id, error_code=REFUSED, error_message=REFUSED.message)
        )
        return False

    request.topic_names = [name for name in request.topic_names if is_kept(DeleteTopicState(name=name))]
    request.topics = [state for state in request.topics if is_kept(state)]
    if not refused:
        return None
    complete = partial(_append, "responses", refused)
    if request.topics or request.topic_names:
        return Narrowed(complete)
    result: Message = complete(APIS[ApiKey.DELETE_TOPICS].response())
    return result


def create_partitions(port: GuardPort, auth: ClientRights, request: CreatePartitionsRequest) -> Outcome:
    return _create_partitions(port, auth, request)


_create_partitions = by_topic(_O.ALTER, "topics", "results")
