"""Shell: the admin client: topics, configs, groups, transactions, the quorum, ACLs, users, tokens, quotas.

The client has the methods of Kafka's own Admin.

Calls with many items return a mapping, in which a failed item is a `KafkaError`. A call raises only when the request as
a whole failed, and ArgumentTypeError for an argument of the wrong type. `timeout_ms` is the time of the whole call,
retries included (default.api.timeout.ms).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self, Unpack
from uuid import UUID

from barnabas.client import offsets as _offsets
from barnabas.client.admin import acls as _acls
from barnabas.client.admin import clients as _clients
from barnabas.client.admin import configs as _configs
from barnabas.client.admin import elections as _elections
from barnabas.client.admin import groups as _groups
from barnabas.client.admin import links as _links
from barnabas.client.admin import log_dirs as _log_dirs
from barnabas.client.admin import maintenance as _maintenance
from barnabas.client.admin import quorum as _quorum
from barnabas.client.admin import quotas as _quotas
from barnabas.client.admin import reassignments as _reassignments
from barnabas.client.admin import tokens as _tokens
from barnabas.client.admin import topics as _topics
from barnabas.client.admin import transactions as _transactions
from barnabas.client.admin import users as _users
from barnabas.client.admin.clients import ClientUses, ClientView
from barnabas.client.admin.elections import ElectionType
from barnabas.client.admin.links import Link, LinkDescription, MirrorAction, MirrorChange, MirrorStatus
from barnabas.client.admin.maintenance import GroupFacts, MaintenanceReport, PartitionFacts
from barnabas.client.admin.quorum import QuorumDescription
from barnabas.client.admin.quotas import QuotaFilter
from barnabas.client.admin.reassignments import Reassignment
from barnabas.client.admin.requests import names_of, value_or_raise
from barnabas.client.admin.tokens import DelegationToken
from barnabas.client.admin.transactions import (
    ActiveProducer,
    HangingTransaction,
    TransactionDescription,
    TransactionListing,
)
from barnabas.client.admin.users import ScramAlteration
from barnabas.client.arguments import checks_arguments
from barnabas.client.cluster.cluster import Cluster
from barnabas.client.cluster.metadata import TopicDescription
from barnabas.client.config import ADMIN_CONFIGS, resolve_config
from barnabas.client.options import ClusterConfig
from barnabas.client.typed_settings import AdminSettings
from barnabas.client.values import (
    ClusterDescription,
    ConfigChange,
    ConfigEntry,
    ConfigResource,
    ConfigResourceType,
    CreatedTopic,
    GroupDescription,
    GroupListing,
    HandedOverTransaction,
    IsolationLevel,
    LogDirDescription,
    NewTopic,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    ReplicaLogDirs,
    TopicListing,
    TopicPartitionReplica,
)
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from barnabas.protocol.security.acls import AclBinding, AclBindingFilter
from barnabas.protocol.security.principals import KafkaPrincipal
from barnabas.protocol.security.quotas.limits import QuotaEntity


@checks_arguments()
class AsyncAdmin:
    """`async with AsyncAdmin(bootstrap_servers="localhost:9092") as admin: await admin.list_topics()`.

    The configs are those of `config.ADMIN_CONFIGS`, by Kafka's names in a mapping, or as keywords. The first call
    connects. A `cluster` of the caller is used but not closed.
    """

    _owns_cluster = False  # until __init__ has succeeded

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        cluster: Cluster | None = None,
        **settings: Unpack[AdminSettings],
    ) -> None:
        if cluster is not None:
            settings.setdefault("bootstrap_servers", ",".join(f"{h}:{p}" for h, p in cluster.options.bootstrap_servers))
        resolved = resolve_config(ADMIN_CONFIGS, config, settings)
        self.cluster = cluster or Cluster(ClusterConfig.from_settings(resolved))
        self._timeout_ms = int(str(resolved["default.api.timeout.ms"]))
        self._owns_cluster = cluster is None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        if self._owns_cluster:
            self.cluster.drop(self)

    def __repr__(self) -> str:
        return f"<AsyncAdmin of {self.cluster}>"

    async def close(self, timeout_ms: float | None = None) -> None:
        """Close the connections. Requests without a response fail. Nothing is waited for, whatever `timeout_ms` is."""
        if self._owns_cluster:
            await self.cluster.close()

    def _deadline(self, timeout_ms: float | None) -> float:
        return self.cluster.deadline(self._timeout_ms if timeout_ms is None else timeout_ms)

    # -- topics ----------------------------------------------------------------------------------------------------

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False, timeout_ms: float | None = None
    ) -> dict[str, CreatedTopic | KafkaError]:
        """Create topics; with `validate_only` only validate the request."""
        return await _topics.create_topics(
            self.cluster, topics, validate_only=validate_only, deadline=self._deadline(timeout_ms)
        )

    async def create_topic(
        self,
        name: str,
        num_partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str | None] | None = None,
        *,
        timeout_ms: float | None = None,
    ) -> CreatedTopic:
        """Create one topic. Raises KafkaError, for example with TOPIC_ALREADY_EXISTS."""
        topic = NewTopic(name, num_partitions, replication_factor, configs or {})
        return value_or_raise(await self.create_topics([topic], timeout_ms=timeout_ms), name)

    async def delete_topics(
        self, names: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, KafkaError | None]:
        """Delete topics with all their records."""
        return await _topics.delete_topics(self.cluster, names_of(names), deadline=self._deadline(timeout_ms))

    async def create_partitions(
        self,
        totals: Mapping[str, int],
        *,
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[str, KafkaError | None]:
        """Grow topics to a total number of partitions; `assignments` gives the replicas of the new partitions."""
        return await _topics.create_partitions(
            self.cluster,
            totals,
            assignments=assignments,
            validate_only=validate_only,
            deadline=self._deadline(timeout_ms),
        )

    async def list_topics(
        self, *, include_internal: bool = False, timeout_ms: float | None = None
    ) -> list[TopicListing]:
        """All topics that this client may see, by name."""
        return await _topics.list_topics(
            self.cluster, include_internal=include_internal, deadline=self._deadline(timeout_ms)
        )

    async def describe_topics(
        self, names: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, TopicDescription | KafkaError]:
        """Partitions, leaders, replicas and ISRs of topics."""
        return await _topics.describe_topics(self.cluster, names_of(names), deadline=self._deadline(timeout_ms))

    async def delete_records(
        self, before: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, int | KafkaError]:
        """Delete records before an offset (-1: all); returns the new log start offset."""
        return await _topics.delete_records(self.cluster, before, deadline=self._deadline(timeout_ms))

    async def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        *,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp | KafkaError]:
        """The first offset at or after each timestamp (ms), or at a special one like `values.EARLIEST` or `LATEST`."""
        return await _offsets.list_offsets(
            self.cluster, timestamps, isolation=isolation, deadline=self._deadline(timeout_ms)
        )

    # -- configs and brokers ---------------------------------------------------------------------------------------

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        names: Iterable[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[ConfigResource, dict[str, ConfigEntry] | KafkaError]:
        """Every config of each resource (or only `names`), with the source of its value."""
        return await _configs.describe_configs(
            self.cluster,
            resources,
            names=names,
            include_synonyms=include_synonyms,
            include_documentation=include_documentation,
            deadline=self._deadline(timeout_ms),
        )

    async def incremental_alter_configs(
        self,
        changes: Mapping[ConfigResource, Iterable[ConfigChange]],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[ConfigResource, KafkaError | None]:
        """Set, delete, append to or subtract from single configs; other configs do not change (KIP-339)."""
        return await _configs.incremental_alter_configs(
            self.cluster, changes, validate_only=validate_only, deadline=self._deadline(timeout_ms)
        )

    async def alter_configs(
        self,
        configs: Mapping[ConfigResource, Mapping[str, str | None]],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[ConfigResource, KafkaError | None]:
        """Replace all dynamic configs of a resource: configs that are not listed return to their
        defaults. Prefer the incremental form."""
        return await _configs.alter_configs(
            self.cluster, configs, validate_only=validate_only, deadline=self._deadline(timeout_ms)
        )

    async def list_config_resources(
        self, types: Iterable[ConfigResourceType] = (), *, timeout_ms: float | None = None
    ) -> list[ConfigResource]:
        """The resources with configs, of these types or of all types. Brokers of Kafka before 4.1 list client-metrics
        subscriptions only."""
        return await _configs.list_config_resources(self.cluster, types, deadline=self._deadline(timeout_ms))

    async def describe_cluster(
        self, *, include_fenced_brokers: bool = False, timeout_ms: float | None = None
    ) -> ClusterDescription:
        """The cluster id, the brokers and the controller. Fenced brokers (registered, but without a session at the
        controller) are included on request by brokers of Kafka 4.0 and later (KIP-1073); older brokers omit them."""
        return await _configs.describe_cluster(
            self.cluster, include_fenced_brokers=include_fenced_brokers, deadline=self._deadline(timeout_ms)
        )

    async def elect_leaders(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        kind: ElectionType = ElectionType.PREFERRED,
        *,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Elect leaders of these partitions, or of all (None). A partition gets the error ELECTION_NOT_NEEDED if the
        replica that would be elected already leads."""
        return await _elections.elect_leaders(self.cluster, kind, partitions, deadline=self._deadline(timeout_ms))

    async def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Move partitions to these brokers, the preferred leader first; None cancels a reassignment. The broker accepts
        each change, or rejects it with an error; `list_partition_reassignments` shows the reassignments in progress.
        """
        return await _reassignments.alter_reassignments(self.cluster, targets, deadline=self._deadline(timeout_ms))

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The reassignments in progress, of some partitions or of all."""
        return await _reassignments.list_reassignments(self.cluster, partitions, deadline=self._deadline(timeout_ms))

    async def describe_client_quotas(
        self, selected: QuotaFilter | None = None, *, strict: bool = False, timeout_ms: float | None = None
    ) -> dict[QuotaEntity, dict[str, float]]:
        """The quotas that are set, of the entities that have all names of the filter; with `strict`, of those that have
        no others. A filter is {"user": "alice"}; a name is None for the default entity, or `quotas.ANY_NAME`."""
        return await _quotas.describe_client_quotas(
            self.cluster, selected or {}, strict=strict, deadline=self._deadline(timeout_ms)
        )

    async def alter_client_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[str, float | None]],
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[QuotaEntity, KafkaError | None]:
        """Set the quotas of entities, for example of `quotas.quota_entity({"user": "alice"})`, and remove those whose
        value is None."""
        return await _quotas.alter_client_quotas(
            self.cluster, changes, validate_only=validate_only, deadline=self._deadline(timeout_ms)
        )

    async def describe_acls(
        self, selected: AclBindingFilter | None = None, *, timeout_ms: float | None = None
    ) -> list[AclBinding]:
        """The ACLs that the filter selects, or all, sorted. Raises KafkaError SECURITY_DISABLED if the brokers have no
        authorizer."""
        return await _acls.describe_acls(
            self.cluster, selected or AclBindingFilter(), deadline=self._deadline(timeout_ms)
        )

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> dict[str, Mapping[str, int] | KafkaError]:
        """The users that have SCRAM credentials, or some of them: the iterations of each mechanism."""
        return await _users.describe_user_scram_credentials(self.cluster, users, deadline=self._deadline(timeout_ms))

    async def alter_user_scram_credentials(
        self, alterations: Iterable[ScramAlteration], *, timeout_ms: float | None = None
    ) -> dict[str, KafkaError | None]:
        """Set and remove passwords. Only salted passwords are sent. A user of whom one change is invalid keeps all
        credentials."""
        return await _users.alter_user_scram_credentials(
            self.cluster, list(alterations), deadline=self._deadline(timeout_ms)
        )

    async def create_delegation_token(
        self,
        *,
        owner: KafkaPrincipal | None = None,
        renewers: Iterable[KafkaPrincipal] = (),
        max_lifetime_ms: int = -1,
        timeout_ms: float | None = None,
    ) -> DelegationToken:
        """Create a token with which a client can log in as `owner`, by default as this client. The owner and the
        `renewers` may renew it. -1 is the longest lifetime that the cluster allows. Raises KafkaError."""
        return await _tokens.create_delegation_token(
            self.cluster,
            owner=owner,
            renewers=renewers,
            max_lifetime_ms=max_lifetime_ms,
            deadline=self._deadline(timeout_ms),
        )

    async def renew_delegation_token(self, hmac: bytes, *, period_ms: int = -1, timeout_ms: float | None = None) -> int:
        """Let a token expire `period_ms` from now, but not after its lifetime; -1 is the default of the cluster.
        Returns the new expiry in milliseconds since 1970. Raises KafkaError."""
        return await _tokens.renew_delegation_token(
            self.cluster, hmac, period_ms=period_ms, deadline=self._deadline(timeout_ms)
        )

    async def expire_delegation_token(
        self, hmac: bytes, *, period_ms: int = -1, timeout_ms: float | None = None
    ) -> int:
        """Remove a token (-1), or let it expire `period_ms` from now. Returns the new expiry in milliseconds since
        1970. Raises KafkaError."""
        return await _tokens.expire_delegation_token(
            self.cluster, hmac, period_ms=period_ms, deadline=self._deadline(timeout_ms)
        )

    async def describe_delegation_tokens(
        self, owners: Iterable[KafkaPrincipal] | None = None, *, timeout_ms: float | None = None
    ) -> list[DelegationToken]:
        """The tokens that this client may see, of these owners or of all; with their secrets. Raises KafkaError."""
        return await _tokens.describe_delegation_tokens(self.cluster, owners, deadline=self._deadline(timeout_ms))

    async def create_acls(
        self, acls: Iterable[AclBinding], *, timeout_ms: float | None = None
    ) -> dict[AclBinding, KafkaError | None]:
        """Create ACLs. An ACL that exists already is a success."""
        return await _acls.create_acls(self.cluster, acls, deadline=self._deadline(timeout_ms))

    async def delete_acls(
        self, filters: Iterable[AclBindingFilter], *, timeout_ms: float | None = None
    ) -> dict[AclBindingFilter, list[AclBinding] | KafkaError]:
        """Delete the ACLs that the filters select. The result of each filter is the list of the deleted ACLs."""
        return await _acls.delete_acls(self.cluster, filters, deadline=self._deadline(timeout_ms))

    async def describe_quorum(self, *, timeout_ms: float | None = None) -> QuorumDescription:
        """The quorum: its leader, voters and observers, and the log end offset of each."""
        return await _quorum.describe_quorum(self.cluster, deadline=self._deadline(timeout_ms))

    async def add_raft_voter(
        self,
        node_id: int,
        directory_id: UUID,
        listeners: Sequence[tuple[str, str, int]],
        *,
        timeout_ms: float | None = None,
    ) -> None:
        """Make an observer a voter; `listeners` are its (name, host, port). Raises KafkaError."""
        await _quorum.add_voter(self.cluster, node_id, directory_id, listeners, deadline=self._deadline(timeout_ms))

    async def remove_raft_voter(self, node_id: int, directory_id: UUID, *, timeout_ms: float | None = None) -> None:
        """Remove a voter from the quorum. Raises KafkaError."""
        await _quorum.remove_voter(self.cluster, node_id, directory_id, deadline=self._deadline(timeout_ms))

    async def unregister_broker(self, broker_id: int, *, timeout_ms: float | None = None) -> None:
        """Remove the registration of a broker that will not come back. Raises KafkaError."""
        await _quorum.unregister_broker(self.cluster, broker_id, deadline=self._deadline(timeout_ms))

    async def describe_log_dirs(
        self, brokers: Iterable[int] | None = None, *, timeout_ms: float | None = None
    ) -> dict[int, dict[str, LogDirDescription | KafkaError]]:
        """The log directories of some or all brokers, with the sizes of the replicas in them."""
        return await _configs.describe_log_dirs(self.cluster, brokers, deadline=self._deadline(timeout_ms))

    async def alter_replica_log_dirs(
        self, moves: Mapping[TopicPartitionReplica, str], *, timeout_ms: float | None = None
    ) -> dict[TopicPartitionReplica, KafkaError | None]:
        """Move replicas to other log directories of their brokers, named by path; returns when the moves have begun.

        Naming the replica's current directory cancels its move.
        """
        return await _log_dirs.alter_replica_log_dirs(self.cluster, moves, deadline=self._deadline(timeout_ms))

    async def describe_replica_log_dirs(
        self, replicas: Iterable[TopicPartitionReplica], *, timeout_ms: float | None = None
    ) -> dict[TopicPartitionReplica, ReplicaLogDirs]:
        """The log directory of each replica, and the directory to which the replica is moving, if any."""
        return await _log_dirs.describe_replica_log_dirs(self.cluster, replicas, deadline=self._deadline(timeout_ms))

    # -- groups ----------------------------------------------------------------------------------------------------

    async def list_groups(
        self, *, states: Iterable[str] = (), types: Iterable[str] = (), timeout_ms: float | None = None
    ) -> list[GroupListing]:
        """Groups of all kinds, by id; filtered by state ("Stable") and type ("classic", "consumer", "share")."""
        return await _groups.list_groups(self.cluster, states=states, types=types, deadline=self._deadline(timeout_ms))

    async def describe_groups(
        self, group_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, GroupDescription | KafkaError]:
        """State, members and assignments of groups of any kind."""
        return await _groups.describe_groups(self.cluster, names_of(group_ids), deadline=self._deadline(timeout_ms))

    async def delete_groups(
        self, group_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, KafkaError | None]:
        """Delete groups that have no members, with their offsets."""
        return await _groups.delete_groups(self.cluster, names_of(group_ids), deadline=self._deadline(timeout_ms))

    async def remove_group_members(
        self, group_id: str, member_ids: Iterable[str], *, reason: str | None = None, timeout_ms: float | None = None
    ) -> dict[str, KafkaError | None]:
        """Remove members from a group. A member that still runs joins again."""
        return await _groups.remove_members(
            self.cluster, group_id, names_of(member_ids), reason=reason, deadline=self._deadline(timeout_ms)
        )

    async def list_group_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata | KafkaError]:
        """The committed offsets of a group; of all partitions if `partitions` is None."""
        return await _offsets.fetch_group_offsets(
            self.cluster, group_id, partitions, require_stable=require_stable, deadline=self._deadline(timeout_ms)
        )

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, KafkaError | None]:
        """Commit offsets for a group that has no members."""
        deadline = self._deadline(timeout_ms)
        try:
            return await _offsets.commit_group_offsets(self.cluster, group_id, offsets, deadline=deadline)
        except KafkaError as error:
            if error.code not in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NON_EMPTY_GROUP):
                raise
            raise KafkaError(
                error.code,
                f"The group {group_id!r} has members, and its offsets can be changed only while it has none. Stop its"
                " consumers. One that has died is a member until its session ends, which `barnabas groups why` shows.",
            ) from error

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Delete committed offsets of partitions to which the group is not subscribed."""
        return await _groups.delete_group_offsets(
            self.cluster, group_id, partitions, deadline=self._deadline(timeout_ms)
        )

    async def reset_group_offsets(
        self,
        group_id: str,
        to: int | Mapping[TopicPartition, int],
        *,
        partitions: Iterable[TopicPartition] | None = None,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata | KafkaError]:
        """Move a group without members to a timestamp, `values.EARLIEST`, `LATEST`, or to given offsets."""
        return await _groups.reset_group_offsets(
            self.cluster, group_id, partitions, to, deadline=self._deadline(timeout_ms)
        )

    # -- transactions ----------------------------------------------------------------------------------------------

    async def list_transactions(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
        timeout_ms: float | None = None,
    ) -> list[TransactionListing]:
        """Transactional ids with their states; `pattern` is a regular expression for the whole id."""
        return await _transactions.list_transactions(
            self.cluster,
            states=states,
            producer_ids=producer_ids,
            longer_than_ms=longer_than_ms,
            pattern=pattern,
            deadline=self._deadline(timeout_ms),
        )

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, TransactionDescription | KafkaError]:
        """The producer, state, age and partitions of transactional ids."""
        return await _transactions.describe_transactions(
            self.cluster, names_of(transactional_ids), deadline=self._deadline(timeout_ms)
        )

    async def describe_producers(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, list[ActiveProducer] | KafkaError]:
        """The idempotent and transactional producers of partitions, and the first offsets of their open
        transactions."""
        return await _transactions.describe_producers(self.cluster, partitions, deadline=self._deadline(timeout_ms))

    async def find_hanging_transactions(
        self,
        partitions: Iterable[TopicPartition],
        *,
        older_than_ms: int,
        now_ms: int,
        timeout_ms: float | None = None,
    ) -> list[HangingTransaction]:
        """Transactions that block read_committed consumers and that no coordinator will end. A transaction counts if
        its producer has not written to the partition for `older_than_ms` before `now_ms`."""
        return await _transactions.find_hanging(
            self.cluster, partitions, older_than_ms=older_than_ms, now_ms=now_ms, deadline=self._deadline(timeout_ms)
        )

    async def abort_transaction(
        self, partition: TopicPartition, producer: ActiveProducer, *, timeout_ms: float | None = None
    ) -> None:
        """Abort a hanging transaction in one partition. Do not use this for a transaction that a coordinator still has:
        the coordinator may later commit the other partitions of that transaction."""
        await _transactions.abort_transaction(self.cluster, partition, producer, deadline=self._deadline(timeout_ms))

    async def end_transaction(
        self, transaction: HandedOverTransaction, *, commit: bool, timeout_ms: float | None = None
    ) -> None:
        """Commit or abort a transaction that a producer has handed over (`hand_over_transaction`). The call may be
        repeated. Raises KafkaError, with PRODUCER_FENCED, INVALID_TXN_STATE or INVALID_PRODUCER_ID_MAPPING if the
        transaction has ended in another way."""
        await _transactions.end_transaction(
            self.cluster, transaction, commit=commit, deadline=self._deadline(timeout_ms)
        )

    async def fence_producer(self, transactional_id: str, *, timeout_ms: float | None = None) -> tuple[int, int]:
        """Fence the producer with this transactional id, and abort its open transaction. Returns the new, unused
        producer id and epoch."""
        return await _transactions.fence_producer(self.cluster, transactional_id, deadline=self._deadline(timeout_ms))

    # -- explanations and maintenance: Barnabas brokers only --------------------------------------------------------

    async def explain_partitions(
        self, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, PartitionFacts | KafkaError]:
        """Explain a stuck last stable offset, a log that is not compacted, or a segment that is not deleted."""
        return await _maintenance.explain_partitions(self.cluster, partitions, deadline=self._deadline(timeout_ms))

    async def explain_groups(
        self, group_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, GroupFacts | KafkaError]:
        """Explain what a group waits for, for which members, and how much longer."""
        return await _maintenance.explain_groups(self.cluster, names_of(group_ids), deadline=self._deadline(timeout_ms))

    async def describe_clients(
        self, view: ClientView = ClientView.CLIENT_ID, *, timeout_ms: float | None = None
    ) -> ClientUses:
        """What clients use per second, over all brokers: bytes, requests, and time of the event loop. Brokers that do
        not answer are in `failed`. Raises KafkaError if none does."""
        return await _clients.describe_clients(self.cluster, view, deadline=self._deadline(timeout_ms))

    async def compact(
        self,
        partitions: Iterable[TopicPartition],
        *,
        roll: bool = False,
        force: bool = False,
        dry_run: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[TopicPartition, MaintenanceReport | KafkaError]:
        """Compact the partitions that are due. `force` also compacts partitions that are not due, `roll` first closes
        the active segments, and `dry_run` only reports what would be done."""
        return await _maintenance.compact(
            self.cluster,
            partitions,
            roll=roll,
            force=force,
            dry_run=dry_run,
            deadline=self._deadline(timeout_ms),
        )

    async def enforce_retention(
        self, partitions: Iterable[TopicPartition], *, dry_run: bool = False, timeout_ms: float | None = None
    ) -> dict[TopicPartition, MaintenanceReport | KafkaError]:
        """Delete the segments that exceed retention.ms or retention.bytes; `dry_run` only reports the effect."""
        return await _maintenance.enforce_retention(
            self.cluster,
            partitions,
            dry_run=dry_run,
            deadline=self._deadline(timeout_ms),
        )

    # -- cluster links: Barnabas brokers only ------------------------------------------------------------------------

    async def create_link(self, link: Link, *, validate_only: bool = False, timeout_ms: float | None = None) -> Link:
        """Create a link to another cluster. The brokers connect to the source first. Raises KafkaError."""
        return await _links.create_link(
            self.cluster, link, validate_only=validate_only, deadline=self._deadline(timeout_ms)
        )

    async def alter_link(self, link: Link, *, validate_only: bool = False, timeout_ms: float | None = None) -> Link:
        """Replace the definition of a link. A hidden password stays as it is. Raises KafkaError."""
        return await _links.alter_link(
            self.cluster, link, validate_only=validate_only, deadline=self._deadline(timeout_ms)
        )

    async def delete_link(self, name: str, *, validate_only: bool = False, timeout_ms: float | None = None) -> Link:
        """Delete a link that has no mirror topics. Raises KafkaError."""
        return await _links.delete_link(
            self.cluster, name, validate_only=validate_only, deadline=self._deadline(timeout_ms)
        )

    async def describe_links(
        self, names: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> dict[str, LinkDescription]:
        """Links by name, with the stored states of their mirror partitions; all links if `names` is None."""
        return await _links.describe_links(self.cluster, names, deadline=self._deadline(timeout_ms))

    async def alter_mirrors(
        self,
        link: str,
        action: MirrorAction,
        topics: Sequence[str] = (),
        *,
        validate_only: bool = False,
        timeout_ms: float | None = None,
    ) -> list[MirrorChange]:
        """Start, pause, resume, stop or recover the mirror topics that a pattern matches; without patterns, all topics
        of the link. Returns when the change is requested; `describe_links` has the states. Raises KafkaError."""
        return await _links.alter_mirrors(
            self.cluster, link, action, topics, validate_only=validate_only, deadline=self._deadline(timeout_ms)
        )

    async def describe_mirrors(
        self, links: Iterable[str] | None = None, *, timeout_ms: float | None = None
    ) -> list[MirrorStatus]:
        """State and lag of mirror partitions, as their leaders report them now."""
        return await _links.describe_mirrors(self.cluster, links, deadline=self._deadline(timeout_ms))
