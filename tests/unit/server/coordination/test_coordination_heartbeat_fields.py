"""Which ConsumerGroupHeartbeat requests are refused: every combination of member epoch and fields, as in Apache Kafka.

The table is that of Kafka's GroupCoordinatorService (`throwIfConsumerGroupHeartbeatRequestIsInvalid`). The first column
is the member epoch: a member that joins (0), stays (above 0), leaves (-1), leaves for a while as a static member (-2),
or an epoch that does not exist. The other columns are the answers to a request in which only this field is as the head
of the column says. librdkafka's test 0045 sends "partitions null" with epoch 0 in some runs, and takes the answer as
fatal: against Apache Kafka as well.
"""

from __future__ import annotations

import itertools

import pytest

from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from barnabas.server.coordination.group.consumer.requests import check_request

OK = None
MEMBER = "MemberId can't be empty."
GROUP = "GroupId can't be empty."
INSTANCE = "InstanceId can't be empty."
STATIC = "InstanceId can't be null."
RACK = "RackId can't be empty."
TIMEOUT = "RebalanceTimeoutMs must be provided in first request."
OWNED = "TopicPartitions must be empty when (re-)joining."
TOPICS = "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
EPOCH_3 = "MemberEpoch -3 is invalid."
ASSIGNOR = "ServerAssignor other is not supported. Supported assignors: uniform, range."

FULL: dict[str, object] = {
    "group_id": "g",
    "member_id": "m",
    "instance_id": "i",
    "rack_id": "r",
    "rebalance_timeout_ms": 1_000,
    "subscribed_topic_names": ["t"],
    "subscribed_topic_regex": None,
    "server_assignor": "uniform",
    "topic_partitions": [],
}
CHANGES: dict[str, dict[str, object]] = {
    "full": {},
    "group id empty": {"group_id": " "},
    "member id empty": {"member_id": ""},
    "instance id null": {"instance_id": None},
    "instance id empty": {"instance_id": ""},
    "rack null": {"rack_id": None},
    "rack empty": {"rack_id": ""},
    "time-out unset": {"rebalance_timeout_ms": -1},
    "names null": {"subscribed_topic_names": None},
    "names empty": {"subscribed_topic_names": []},
    "expression alone": {"subscribed_topic_names": None, "subscribed_topic_regex": "t.*"},
    "expression empty": {"subscribed_topic_names": None, "subscribed_topic_regex": ""},
    "partitions null": {"topic_partitions": None},
    "partitions owned": {"topic_partitions": [TopicPartitions(partitions=[0])]},
    "assignor null": {"server_assignor": None},
    "assignor unknown": {"server_assignor": "other"},
    "nothing but ids": {
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": -1,
        "subscribed_topic_names": None,
        "server_assignor": None,
        "topic_partitions": None,
    },
}
# Version 1. One row for each change, one column for each member epoch.
EPOCHS = (0, 7, -1, -2, -3)
ANSWERS: dict[str, tuple[str | None, ...]] = {
    "full": (OK, OK, OK, OK, EPOCH_3),
    "group id empty": (GROUP, GROUP, GROUP, GROUP, GROUP),
    "member id empty": (MEMBER, MEMBER, MEMBER, MEMBER, MEMBER),
    "instance id null": (OK, OK, OK, STATIC, EPOCH_3),
    "instance id empty": (INSTANCE, INSTANCE, INSTANCE, INSTANCE, INSTANCE),
    "rack null": (OK, OK, OK, OK, EPOCH_3),
    "rack empty": (RACK, RACK, RACK, RACK, RACK),
    "time-out unset": (TIMEOUT, OK, OK, OK, EPOCH_3),
    "names null": (TOPICS, OK, OK, OK, EPOCH_3),
    "names empty": (OK, OK, OK, OK, EPOCH_3),
    "expression alone": (OK, OK, OK, OK, EPOCH_3),
    "expression empty": (OK, OK, OK, OK, EPOCH_3),
    "partitions null": (OWNED, OK, OK, OK, EPOCH_3),
    "partitions owned": (OWNED, OK, OK, OK, EPOCH_3),
    "assignor null": (OK, OK, OK, OK, EPOCH_3),
    "assignor unknown": (ASSIGNOR, ASSIGNOR, ASSIGNOR, ASSIGNOR, EPOCH_3),
    "nothing but ids": (TIMEOUT, OK, OK, STATIC, EPOCH_3),
}
WITHOUT_MEMBER_ID_IN_VERSION_0 = (OK, MEMBER, MEMBER, OK, EPOCH_3)
"""Version 0: the broker generates the id of a new member. Kafka does not check the id of a static member that leaves
for a while either, because its instance id names it."""


def answer(epoch: int, change: str, version: int) -> str | None:
    request = ConsumerGroupHeartbeatRequest(**(FULL | CHANGES[change]), member_epoch=epoch)  # type: ignore[arg-type]
    try:
        check_request(request, version, ["uniform", "range"])
    except KafkaError as error:
        expected = ErrorCode.UNSUPPORTED_ASSIGNOR if str(error) == ASSIGNOR else ErrorCode.INVALID_REQUEST
        assert error.code is expected
        return str(error)
    return None


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("version", [0, 1])
def test_a_heartbeat_is_refused_for_the_same_fields_as_in_kafka(change: str, version: int) -> None:
    expected = ANSWERS[change]
    if change == "member id empty" and version == 0:
        expected = WITHOUT_MEMBER_ID_IN_VERSION_0
    assert tuple(answer(epoch, change, version) for epoch in EPOCHS) == expected


def test_the_member_id_is_checked_first() -> None:
    for epoch, version in itertools.product(EPOCHS, [1]):
        request = ConsumerGroupHeartbeatRequest(group_id="", member_id="", rack_id="", member_epoch=epoch)
        with pytest.raises(KafkaError, match="MemberId"):
            check_request(request, version, ["uniform"])
