"""Machine: the authorization of requests about transactions. A guard has the form that `topics.py` describes."""

from __future__ import annotations

from typing import Any, Final

from barnabas.core.errors import ErrorCode
from barnabas.core.ids import INTERNAL_TOPICS
from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.protocol.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from barnabas.protocol.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from barnabas.protocol.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.protocol.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.protocol.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas.protocol.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from barnabas.server.broker.authorization.checks import (
    CLUSTER,
    GROUP,
    MANY,
    REFUSALS,
    TOPIC,
    TRANSACTIONAL_ID,
    ClientRights,
)
from barnabas.server.broker.authorization.guards.refusals import mirrored, refuse_entries, refuse_markers
from barnabas.server.broker.authorization.guards.topics import by_topic
from barnabas.server.broker.authorization.outcomes import Decided, Later, Narrowed, Outcome
from barnabas.server.broker.authorization.ports import GuardPort

_O = AclOperation
REFUSED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def init_producer_id(port: GuardPort, auth: ClientRights, request: InitProducerIdRequest) -> Outcome:
    """A producer without a transactional id needs IDEMPOTENT_WRITE on the cluster or, since Kafka 2.8, WRITE on any
    topic (KIP-679)."""
    transactional_id = request.transactional_id
    if transactional_id is None:
        if auth.allows(_O.IDEMPOTENT_WRITE, CLUSTER, silent=True) or auth.allows_on_any(_O.WRITE, TOPIC):
            return None
        return InitProducerIdResponse(error_code=REFUSALS[CLUSTER], producer_id=-1, producer_epoch=-1)
    allowed = auth.allows(_O.WRITE, TRANSACTIONAL_ID, transactional_id) and (
        not request.enable_2pc or auth.allows(_O.TWO_PHASE_COMMIT, TRANSACTIONAL_ID, transactional_id)
    )
    return None if allowed else InitProducerIdResponse(error_code=REFUSED, producer_id=-1, producer_epoch=-1)


def add_partitions_to_txn(port: GuardPort, auth: ClientRights, request: AddPartitionsToTxnRequest) -> Outcome:
    """Since version 4 only brokers send the request. Before, one refused topic refuses the others with
    OPERATION_NOT_ATTEMPTED. Clients may not write to internal topics."""
    if auth.version >= 4:
        if auth.allows(_O.CLUSTER_ACTION, CLUSTER):
            return None
        return AddPartitionsToTxnResponse(error_code=REFUSALS[CLUSTER])
    topics = request.v3_and_below_topics
    if not auth.allows(_O.WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        codes = {topic.name: REFUSED for topic in topics}
    else:
        names = [topic.name for topic in topics if topic.name not in INTERNAL_TOPICS]
        allowed = auth.allowed_names(_O.WRITE, TOPIC, names)
        if all(topic.name in allowed for topic in topics):
            return None
        codes = {
            topic.name: ErrorCode.OPERATION_NOT_ATTEMPTED if topic.name in allowed else REFUSALS[TOPIC]
            for topic in topics
        }
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            mirrored(topic, AddPartitionsToTxnTopicResult, codes[topic.name]) for topic in topics
        ]
    )


def add_offsets_to_txn(port: GuardPort, auth: ClientRights, request: AddOffsetsToTxnRequest) -> Outcome:
    if not auth.allows(_O.WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return AddOffsetsToTxnResponse(error_code=REFUSED)
    if not auth.allows(_O.READ, GROUP, request.group_id):
        return AddOffsetsToTxnResponse(error_code=REFUSALS[GROUP])
    return None


def end_txn(port: GuardPort, auth: ClientRights, request: EndTxnRequest) -> Outcome:
    if auth.allows(_O.WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return None
    return EndTxnResponse(error_code=REFUSED)


def write_txn_markers(port: GuardPort, auth: ClientRights, request: Any) -> Outcome:
    if auth.allows(_O.ALTER, CLUSTER, silent=True) or auth.allows(_O.CLUSTER_ACTION, CLUSTER):
        return None
    return refuse_markers(request, auth.version, REFUSALS[CLUSTER])


_commit_topics = by_topic(_O.READ, "topics", "topics")


def txn_offset_commit(port: GuardPort, auth: ClientRights, request: TxnOffsetCommitRequest) -> Outcome:
    if not auth.allows(_O.WRITE, TRANSACTIONAL_ID, request.transactional_id):
        return refuse_entries("topics", "topics")(request, auth.version, REFUSED)
    if not auth.allows(_O.READ, GROUP, request.group_id):
        return refuse_entries("topics", "topics")(request, auth.version, REFUSALS[GROUP])
    return _commit_topics(port, auth, request)


def describe_transactions(port: GuardPort, auth: ClientRights, request: DescribeTransactionsRequest) -> Outcome:
    """The partitions of a transaction are shown if the client may describe their topics."""
    ids = request.transactional_ids
    if len(ids) > MANY:
        return Later(_describe_many(auth, request))
    return _split_ids(auth, request, auth.allowed_names(_O.DESCRIBE, TRANSACTIONAL_ID, ids))


async def _describe_many(auth: ClientRights, request: DescribeTransactionsRequest) -> Decided:
    ids = request.transactional_ids
    return _split_ids(auth, request, await auth.many_allowed_names(_O.DESCRIBE, TRANSACTIONAL_ID, ids))


def _split_ids(auth: ClientRights, request: DescribeTransactionsRequest, allowed: set[str]) -> Decided:
    refused = [
        TransactionState(error_code=REFUSED, transactional_id=transactional_id)
        for transactional_id in request.transactional_ids
        if transactional_id not in allowed
    ]
    request.transactional_ids = [name for name in request.transactional_ids if name in allowed]

    def complete(response: DescribeTransactionsResponse) -> DescribeTransactionsResponse:
        for state in response.transaction_states:
            names = auth.allowed_names(_O.DESCRIBE, TOPIC, (topic.topic for topic in state.topics))
            state.topics = [topic for topic in state.topics if topic.topic in names]
        response.transaction_states.extend(refused)
        return response

    return Narrowed(complete) if request.transactional_ids else complete(DescribeTransactionsResponse())


def list_transactions(port: GuardPort, auth: ClientRights, request: ListTransactionsRequest) -> Outcome:
    async def complete(response: ListTransactionsResponse) -> ListTransactionsResponse:
        states = response.transaction_states
        names = await auth.many_allowed_names(
            _O.DESCRIBE, TRANSACTIONAL_ID, (state.transactional_id for state in states), silent=True
        )
        response.transaction_states = [state for state in states if state.transactional_id in names]
        return response

    return Narrowed(complete, is_slow=True)
