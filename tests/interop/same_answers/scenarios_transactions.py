"""Table: scenarios about transactions. Each is played to both brokers. The coordinator's table of answers has a test of
its own, `test_interop_transaction_answers.py`."""

from __future__ import annotations

from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.protocol.wire.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.wire.messages.end_txn import EndTxnRequest
from barnabas.protocol.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.interop.same_answers.talk import Talk


def init(talk: Talk, transactional_id: str) -> tuple[int, int]:
    """A producer whose epoch is 1, so that there is an older one."""
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)

    def answered() -> bool:
        nonlocal response
        response = talk.quietly(request, 4)
        return bool(response.error_code == 0 and response.producer_epoch == 1)

    response = None
    talk.until(answered, "a producer id")
    assert response is not None
    return response.producer_id, response.producer_epoch


def offsets_in_transactions(talk: Talk) -> None:
    """TxnOffsetCommit of producers that are current, older, newer, unknown; before, in and after a transaction."""
    talk.transactions()
    group = talk.group("g")
    topic = talk.topic("t")
    for version in (0, 2, 3, 4, 5):
        name = talk.name(f"x{version}")
        producer_id, epoch = init(talk, name)

        def commit(
            label: str,
            *,
            of: str = name,
            id_: int = producer_id,
            at: int = epoch,
            to: str = group,
            partition: int = 0,
            version: int = version,
        ) -> None:
            offset = TxnOffsetCommitRequestPartition(
                partition_index=partition, committed_offset=1, committed_metadata=""
            )
            request = TxnOffsetCommitRequest(
                transactional_id=of,
                group_id=to,
                producer_id=id_,
                producer_epoch=at,
                generation_id=-1,
                member_id="",
                topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=[offset])],
            )
            talk.ask(label, request, version)

        commit("unknown transactional id", of=talk.name("nobody"))
        commit("no transactional id", of="")
        commit("no group", to="")
        commit("other producer", id_=producer_id + 1_000_000)
        commit("older epoch", at=epoch - 1)
        commit("newer epoch", at=epoch + 1)
        commit("not added")
        add = AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id=group
        )
        assert talk.quietly(add, 3).error_code == 0
        commit("added")
        commit("no such partition", partition=9)
        commit("other producer, in the transaction", id_=producer_id + 1_000_000)
        commit("older epoch, in the transaction", at=epoch - 1)
        commit("newer epoch, in the transaction", at=epoch + 1)
        end = EndTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=True)
        assert talk.quietly(end, 5 if version >= 5 else 4).error_code == 0
        describe = DescribeTransactionsRequest(transactional_ids=[name])
        talk.until(
            lambda describe=describe: (
                talk.quietly(describe, 0).transaction_states[0].transaction_state == "CompleteCommit"
            ),
            "the end of the transaction",
        )
        commit("after the end")
        commit("after the end, of another transactional id", of=talk.name("nobody"))


def describing(talk: Talk) -> None:
    talk.transactions()
    name = talk.name("d")
    init(talk, name)
    response = talk.quietly(DescribeTransactionsRequest(transactional_ids=[name, talk.name("nobody"), ""]), 0)
    states = [(ErrorCode(s.error_code).name, s.transaction_state) for s in response.transaction_states]
    talk.note("states", sorted(map(list, states)))


SCENARIOS = (offsets_in_transactions, describing)
