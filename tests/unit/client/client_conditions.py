"""Table: a call of every public method of every client, and what the call does under each condition.

`test_client_conditions.py` executes every row. The conditions are:

    no broker      nothing listens on the port of bootstrap.servers
    broker gone    the client has worked, and its broker has stopped since
    in the middle  the broker vanishes when the request of the call arrives, and stays away
    closed         the client was closed before the call: ClientClosedError everywhere
    forked         the call is made in a process that was forked from the client's: ForkedError everywhere
    two threads    two threads make the calls at the same time: as one thread alone
    cancelled      the task of the asyncio call is cancelled: CancelledError, and the client can be closed

The outcomes are: an error's class; `unreachable` (BootstrapError, BrokerUnreachableError or RequestTimeoutError: which
one depends on where the deadline passes); `returns`; `errors`: a mapping in which each item has its error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

from barnabas.client.admin.links import Link, MirrorAction
from barnabas.client.admin.transactions import ActiveProducer
from barnabas.client.admin.users import UserScramCredentialDeletion
from barnabas.client.values import (
    ConfigResource,
    ConsumerRecord,
    HandedOverTransaction,
    NewTopic,
    TopicPartitionReplica,
)
from barnabas.core.ids import TopicPartition
from barnabas.protocol.security.acls import AclBinding, AclBindingFilter
from barnabas.registry.values import Schema

T0: Final = TopicPartition("t", 0)
ACL: Final = AclBinding(2, "t", 3, "User:a", "*", 3, 3)
RECORD: Final = ConsumerRecord("t", 0, 0, 0, 0, None, b"", ())
Call = Callable[[Any], Any]

PRODUCER: Final[dict[str, Call]] = {
    "send": lambda c: c.send("t", b"v"),
    "send_and_wait": lambda c: c.send_and_wait("t", b"v"),
    "partitions_for": lambda c: c.partitions_for("t"),
    "flush": lambda c: c.flush(100),
    "wait_for": lambda c: c.send("t", b"v").result(0.1),
}
TRANSACTIONS: Final[dict[str, Call]] = {
    "init_transactions": lambda c: c.init_transactions(),
    "begin_transaction": lambda c: c.begin_transaction(),
    "send_offsets_to_transaction": lambda c: c.send_offsets_to_transaction({T0: 1}, "g"),
    "prepare_transaction": lambda c: c.prepare_transaction(),
    "hand_over_transaction": lambda c: c.hand_over_transaction(),
    "complete_transaction": lambda c: c.complete_transaction("1:1"),
    "commit_transaction": lambda c: c.commit_transaction(),
    "abort_transaction": lambda c: c.abort_transaction(),
    "transaction": lambda c: c.transaction().__enter__(),
}
CONSUMER: Final[dict[str, Call]] = {
    "subscribe": lambda c: (c.unsubscribe(), c.subscribe(["t"]), c.unsubscribe(), c.assign([T0])),
    "assign": lambda c: c.assign([T0]),
    "unsubscribe": lambda c: (c.unsubscribe(), c.assign([T0])),
    "assignment": lambda c: c.assignment(),
    "subscription": lambda c: c.subscription(),
    "poll": lambda c: c.poll(50),
    "getmany": lambda c: c.getmany(timeout_ms=50),
    "getone": lambda c: (c.wakeup(), c.getone()),
    "raise_problems": lambda c: c.poll(600, raise_problems=True),
    "seek": lambda c: c.seek(T0, 0),
    "seek_to_beginning": lambda c: c.seek_to_beginning(T0),
    "seek_to_end": lambda c: c.seek_to_end(T0),
    "seek_to_committed": lambda c: c.seek_to_committed(T0),
    "seek_to_timestamp": lambda c: c.seek_to_timestamp(0, T0),
    "position": lambda c: c.position(T0),
    "committed": lambda c: c.committed([T0]),
    "commit": lambda c: c.commit({T0: 0}),
    "commit_nowait": lambda c: c.commit_nowait({T0: 0}),
    "offsets_for_times": lambda c: c.offsets_for_times({T0: 0}),
    "beginning_offsets": lambda c: c.beginning_offsets([T0]),
    "end_offsets": lambda c: c.end_offsets([T0]),
    "partitions_for": lambda c: c.partitions_for("t"),
    "lag": lambda c: c.lag(T0),
    "pause": lambda c: c.pause(T0),
    "paused": lambda c: c.paused(),
    "resume": lambda c: c.resume(T0),
    "group_metadata": lambda c: c.group_metadata(),
}
SHARE_CONSUMER: Final[dict[str, Call]] = {
    "subscribe": lambda c: c.subscribe(["t"]),
    "subscription": lambda c: c.subscription(),
    "assignment": lambda c: c.assignment(),
    "poll": lambda c: c.poll(50),
    "getone": lambda c: (c.wakeup(), c.getone()),
    "raise_problems": lambda c: c.poll(600, raise_problems=True),
    "acknowledge": lambda c: c.acknowledge(RECORD),
    "commit": lambda c: c.commit(),
    "unsubscribe": lambda c: c.unsubscribe(),
}
ADMIN: Final[dict[str, Call]] = {
    "create_topics": lambda c: c.create_topics([NewTopic("new")]),
    "create_topic": lambda c: c.create_topic("newer"),
    "delete_topics": lambda c: c.delete_topics(["gone"]),
    "create_partitions": lambda c: c.create_partitions({"gone": 2}),
    "list_topics": lambda c: c.list_topics(),
    "describe_topics": lambda c: c.describe_topics(["t"]),
    "delete_records": lambda c: c.delete_records({T0: 0}),
    "list_offsets": lambda c: c.list_offsets({T0: -1}),
    "describe_configs": lambda c: c.describe_configs([ConfigResource.topic("t")]),
    "incremental_alter_configs": lambda c: c.incremental_alter_configs({ConfigResource.topic("t"): {}}),
    "alter_configs": lambda c: c.alter_configs({ConfigResource.topic("t"): {}}),
    "describe_cluster": lambda c: c.describe_cluster(),
    "describe_log_dirs": lambda c: c.describe_log_dirs(),
    "alter_replica_log_dirs": lambda c: c.alter_replica_log_dirs({TopicPartitionReplica("t", 0, 1): "/nowhere"}),
    "describe_replica_log_dirs": lambda c: c.describe_replica_log_dirs([TopicPartitionReplica("t", 0, 1)]),
    "elect_leaders": lambda c: c.elect_leaders([T0]),
    "alter_partition_reassignments": lambda c: c.alter_partition_reassignments({T0: None}),
    "list_partition_reassignments": lambda c: c.list_partition_reassignments(),
    "describe_user_scram_credentials": lambda c: c.describe_user_scram_credentials(),
    "alter_user_scram_credentials": lambda c: c.alter_user_scram_credentials(
        [UserScramCredentialDeletion("alice", "SCRAM-SHA-256")]
    ),
    "create_delegation_token": lambda c: c.create_delegation_token(),
    "renew_delegation_token": lambda c: c.renew_delegation_token(b"?"),
    "expire_delegation_token": lambda c: c.expire_delegation_token(b"?"),
    "describe_delegation_tokens": lambda c: c.describe_delegation_tokens(),
    "describe_client_quotas": lambda c: c.describe_client_quotas({"user": None}),
    "alter_client_quotas": lambda c: c.alter_client_quotas({(("user", "a"),): {"request_percentage": 1.0}}),
    "describe_acls": lambda c: c.describe_acls(),
    "create_acls": lambda c: c.create_acls([ACL]),
    "delete_acls": lambda c: c.delete_acls([AclBindingFilter()]),
    "describe_quorum": lambda c: c.describe_quorum(),
    "add_raft_voter": lambda c: c.add_raft_voter(9, UUID(int=9), [("CONTROLLER", "127.0.0.1", 1)]),
    "remove_raft_voter": lambda c: c.remove_raft_voter(9, UUID(int=9)),
    "unregister_broker": lambda c: c.unregister_broker(9),
    "list_groups": lambda c: c.list_groups(),
    "describe_groups": lambda c: c.describe_groups(["g"]),
    "delete_groups": lambda c: c.delete_groups(["gone"]),
    "remove_group_members": lambda c: c.remove_group_members("g", ["m"]),
    "list_group_offsets": lambda c: c.list_group_offsets("g"),
    "alter_group_offsets": lambda c: c.alter_group_offsets("g", {T0: 0}),
    "delete_group_offsets": lambda c: c.delete_group_offsets("g", [T0]),
    "reset_group_offsets": lambda c: c.reset_group_offsets("g", {T0: 0}),
    "describe_producers": lambda c: c.describe_producers([T0]),
    "list_transactions": lambda c: c.list_transactions(),
    "describe_transactions": lambda c: c.describe_transactions(["x"]),
    "find_hanging_transactions": lambda c: c.find_hanging_transactions([T0], older_than_ms=0, now_ms=0),
    "abort_transaction": lambda c: c.abort_transaction(T0, ActiveProducer(1, 0, 0, 0, 0, 0)),
    "end_transaction": lambda c: c.end_transaction(HandedOverTransaction("x", 1, 1), commit=True),
    "fence_producer": lambda c: c.fence_producer("x"),
    "explain_groups": lambda c: c.explain_groups(["g"]),
    "describe_clients": lambda c: c.describe_clients(),
    "create_link": lambda c: c.create_link(Link("l", "127.0.0.1:1")),
    "alter_link": lambda c: c.alter_link(Link("l", "127.0.0.1:1")),
    "delete_link": lambda c: c.delete_link("l"),
    "describe_links": lambda c: c.describe_links(["l"]),
    "alter_mirrors": lambda c: c.alter_mirrors("l", MirrorAction.PAUSE),
    "describe_mirrors": lambda c: c.describe_mirrors(["l"]),
    "explain_partitions": lambda c: c.explain_partitions([T0]),
    "list_config_resources": lambda c: c.list_config_resources(),
    "compact": lambda c: c.compact([T0]),
    "enforce_retention": lambda c: c.enforce_retention([T0]),
}
REGISTRY: Final[dict[str, Call]] = {
    "register": lambda c: c.register("s", Schema('"int"')),
    "look_up": lambda c: c.look_up("s", Schema('"int"')),
    "schema": lambda c: c.schema(1),
    "version": lambda c: c.version("s", 1),
    "latest": lambda c: c.latest("s"),
    "dependencies": lambda c: c.dependencies(Schema('"int"')),
    "versions": lambda c: c.versions("s"),
    "subjects": lambda c: c.subjects(),
    "referenced_by": lambda c: c.referenced_by("s", 1),
    "delete_subject": lambda c: c.delete_subject("s"),
    "delete_version": lambda c: c.delete_version("s", 1),
    "problems": lambda c: c.problems("s", Schema('"int"')),
    "compatibility": lambda c: c.compatibility(),
    "set_compatibility": lambda c: c.set_compatibility("NONE"),
    "delete_compatibility": lambda c: c.delete_compatibility("s"),
    "mode": lambda c: c.mode(),
    "set_mode": lambda c: c.set_mode("READWRITE"),
    "contexts": lambda c: c.contexts(),
}

CALLS: Final = {
    "Producer": PRODUCER,
    "Transactions": TRANSACTIONS,
    "Consumer": CONSUMER,
    "ShareConsumer": SHARE_CONSUMER,
    "Admin": ADMIN,
    "RegistryClient": REGISTRY,
}
NOT_CALLED: Final = {
    "send_arrow": "its encoder is compiled for seconds; it waits as send does",
    "send_batches": "it waits as send_arrow does",
    "poll_arrow": "its decoder is compiled for seconds; it waits as poll does",
    "arrow": "it is a loop of poll_arrow",
    "close": "called by every test",
    "wakeup": "called before getone",
    "from_settings": "it constructs a client, and sends nothing",
}
"""Public methods without a row."""

UNREACHABLE: Final = "unreachable"
OUTCOMES: Final[dict[str, dict[str, tuple[str, str]]]] = {
    # the default of a client for no broker and broker gone; then the methods that differ
    "Producer": {
        "*": (UNREACHABLE, UNREACHABLE),
        "send": (UNREACHABLE, "returns"),  # queued: the future, the callback, flush and close have the error
        "send_and_wait": (UNREACHABLE, "DeliveryTimeoutError"),
        "flush": ("returns", "unreachable or DeliveryFailedError"),  # without a broker send has raised the error
        "wait_for": (UNREACHABLE, "unreachable or DeliveryTimeoutError"),
        "close": ("returns", "DeliveryFailedError"),
    },
    "Transactions": {
        "*": ("TransactionStateError", "TransactionStateError"),
        "init_transactions": (UNREACHABLE, UNREACHABLE),
        "prepare_transaction": ("ConfigError", "ConfigError"),
        "close": ("returns", "returns"),
    },
    "Consumer": {
        "*": ("returns", "returns"),  # what fails in the background is logged; poll raises it with raise_problems
        "getone": ("WakeupError", "WakeupError"),
        "raise_problems": (UNREACHABLE, UNREACHABLE),
        "seek_to_timestamp": (UNREACHABLE, UNREACHABLE),
        "position": (UNREACHABLE, UNREACHABLE),
        "committed": (UNREACHABLE, UNREACHABLE),
        "commit": (UNREACHABLE, UNREACHABLE),
        "offsets_for_times": (UNREACHABLE, UNREACHABLE),
        "beginning_offsets": (UNREACHABLE, UNREACHABLE),
        "end_offsets": (UNREACHABLE, UNREACHABLE),
        "partitions_for": (UNREACHABLE, UNREACHABLE),
    },
    "ShareConsumer": {
        "*": ("returns", "returns"),
        "getone": ("WakeupError", "WakeupError"),
        "raise_problems": (UNREACHABLE, "unreachable or returns"),  # nothing may be due: a heartbeat every 5 s
        "acknowledge": ("AcknowledgementError", "AcknowledgementError"),  # of a record that it does not hold
    },
    "Admin": {
        "*": (UNREACHABLE, UNREACHABLE),
        **dict.fromkeys(
            (
                "delete_records", "list_offsets", "describe_groups", "delete_groups", "describe_producers",
                "describe_transactions", "explain_groups", "explain_partitions", "compact", "enforce_retention",
            ),
            ("errors", "errors"),
        ),
        "close": ("returns", "returns"),
    },
    "RegistryClient": {
        "*": ("RegistryUnreachableError", "RegistryUnreachableError"),
        "dependencies": ("returns", "returns"),  # this schema has none
        "close": ("returns", "returns"),
    },
}  # fmt: skip


IN_THE_MIDDLE: Final[dict[str, dict[str, str]]] = {
    # the methods that differ from `broker gone`; the client has just fetched the metadata that it needs
    "Producer": {"partitions_for": "returns", "flush": "returns or unreachable or DeliveryFailedError"},
    "Transactions": {
        "begin_transaction": "returns",
        "transaction": "returns",
        "send_offsets_to_transaction": UNREACHABLE,
        "hand_over_transaction": "returns",
        "commit_transaction": UNREACHABLE,
        "abort_transaction": UNREACHABLE,
    },
    "Consumer": {"position": "returns", "partitions_for": "returns"},
    "Admin": {"list_topics": "returns", "describe_topics": "returns"},  # Metadata is answered
}


def expected(client: str, method: str, condition: int) -> str:
    """The outcome of a method: condition 0 is `no broker`, 1 is `broker gone`, and 2 is `in the middle`."""
    rows = OUTCOMES[client]
    gone = rows.get(method, rows["*"])[min(condition, 1)]
    return IN_THE_MIDDLE.get(client, {}).get(method, gone) if condition == 2 else gone
