"""Table: the metrics that Kafka has, too. Their names are derived from Kafka's MBeans."""

from __future__ import annotations

from typing import Final

from barnabas.core.telemetry.table.row import MetricKind, MetricRow, attribute, kafka

_C: Final = MetricKind.COUNTER
_G: Final = MetricKind.GAUGE

_REPLICAS: Final = "server/monitoring/replicas"
_TRAFFIC: Final = "server/replication/traffic"
_REQUESTS: Final = "server/broker/request_metrics"
_CONTROLLER: Final = "server/monitoring/cluster"
_QUORUM: Final = "server/monitoring/quorum"
_NETWORK: Final = "server/monitoring/network"
_GROUPS: Final = "server/monitoring/groups"

_MANAGER: Final = "kafka.server:type=ReplicaManager,name="
_TOPICS: Final = "kafka.server:type=BrokerTopicMetrics,name="
_REQUEST: Final = "kafka.network:type=RequestMetrics,name="
_KAFKA_CONTROLLER: Final = "kafka.controller:type=KafkaController,name="
_LOG: Final = "kafka.log:type=Log,name="

REPLICA_ROWS: Final[tuple[MetricRow, ...]] = (
    kafka(_G, _MANAGER + "UnderReplicatedPartitions",
          "Partitions led by this broker with fewer in-sync replicas than replicas.", _REPLICAS),
    kafka(_G, _MANAGER + "UnderMinIsrPartitionCount",
          "Partitions led by this broker with fewer in-sync replicas than min.insync.replicas.", _REPLICAS),
    kafka(_G, _MANAGER + "AtMinIsrPartitionCount",
          "Partitions led by this broker with exactly min.insync.replicas in-sync replicas.", _REPLICAS),
    kafka(_G, _MANAGER + "OfflineReplicaCount", "Replicas of this broker whose log is offline.", _REPLICAS),
    kafka(_G, _MANAGER + "PartitionCount", "Replicas on this broker.", _REPLICAS),
    kafka(_G, _MANAGER + "LeaderCount", "Partitions that this broker leads.", _REPLICAS),
    kafka(_G, _MANAGER + "ReassigningPartitions", "Partitions led by this broker that are being reassigned.",
          _REPLICAS),
    kafka(_G, _MANAGER + "ProducerIdCount", "Producers whose state the logs of this broker keep.", _REPLICAS),
    kafka(_C, _MANAGER + "IsrShrinksPerSec", "Times that a replica left an ISR led by this broker.", _TRAFFIC),
    kafka(_C, _MANAGER + "IsrExpandsPerSec", "Times that a replica joined an ISR led by this broker.", _TRAFFIC),
    kafka(_C, _MANAGER + "FailedIsrUpdatesPerSec", "ISR changes that the controller has rejected.", _TRAFFIC),
    kafka(_G, "kafka.server:type=ReplicaFetcherManager,name=MaxLag",
          "The most records by which a replica of this broker is behind its leader.", _REPLICAS, "clientId"),
    kafka(_G, "kafka.server:type=FetcherLagMetrics,name=ConsumerLag",
          "Records by which this broker's replica of the partition is behind its leader.", _REPLICAS, "clientId",
          "topic", "partition"),
    kafka(_G, "kafka.cluster:type=Partition,name=UnderReplicated",
          "1 if the partition has fewer in-sync replicas than replicas.", _REPLICAS, "topic", "partition"),
    kafka(_G, "kafka.cluster:type=Partition,name=UnderMinIsr",
          "1 if the partition has fewer in-sync replicas than min.insync.replicas.", _REPLICAS, "topic", "partition"),
    kafka(_G, "kafka.cluster:type=Partition,name=AtMinIsr",
          "1 if the partition has exactly min.insync.replicas in-sync replicas.", _REPLICAS, "topic", "partition"),
    kafka(_G, "kafka.cluster:type=Partition,name=InSyncReplicasCount", "In-sync replicas of the partition.",
          _REPLICAS, "topic", "partition"),
    kafka(_G, _LOG + "Size", "Bytes of the log.", _REPLICAS, "topic", "partition"),
    kafka(_G, _LOG + "NumLogSegments", "Segments of the log.", _REPLICAS, "topic", "partition"),
    kafka(_G, _LOG + "LogStartOffset", "The first offset of the log.", _REPLICAS, "topic", "partition"),
    kafka(_G, _LOG + "LogEndOffset", "The offset of the next record of the log.", _REPLICAS, "topic", "partition"),
    kafka(_G, "kafka.log:type=LogManager,name=OfflineLogDirectoryCount", "Log directories that are offline.",
          _REPLICAS),
    kafka(_G, "kafka.log:type=LogManager,name=LogDirectoryOffline", "1 if the log directory is offline.", _REPLICAS,
          "logDirectory"),
    kafka(_G, "kafka.server:type=KafkaServer,name=BrokerState",
          "1 starting, 2 recovering logs, 3 running, 6 shutting down, as in Kafka.", _REPLICAS),
    kafka(_G, "kafka.server:type=DelayedOperationPurgatory,name=PurgatorySize", "Requests that wait.", _TRAFFIC,
          "delayedOperation"),
    kafka(_G, "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchSessions", "Fetch sessions.", _REPLICAS),
    kafka(_G, "kafka.server:type=FetchSessionCache,name=NumIncrementalFetchPartitionsCached",
          "Partitions of all fetch sessions.", _REPLICAS),
)  # fmt: skip

TOPIC_ROWS: Final[tuple[MetricRow, ...]] = tuple(
    kafka(_C, f"{_TOPICS}{name}PerSec", help_text + " The series without a topic counts all topics.", _TRAFFIC, "topic")
    for name, help_text in (
        ("MessagesIn", "Records appended by clients."),
        ("BytesIn", "Bytes appended by clients."),
        ("BytesOut", "Bytes of records read by consumers."),
        ("BytesRejected", "Bytes of batches that were not appended, because of an error."),
        ("TotalProduceRequests", "Batches in Produce requests, one for each partition."),
        ("FailedProduceRequests", "Batches in Produce requests that were not appended, because of an error."),
        ("TotalFetchRequests", "Reads of a partition by Fetch requests."),
        ("FailedFetchRequests", "Reads of a partition by Fetch requests that failed."),
    )
) + tuple(
    kafka(_C, f"{_TOPICS}{name}PerSec", help_text, _TRAFFIC)
    for name, help_text in (
        ("ReplicationBytesIn", "Bytes that this broker has copied from leaders."),
        ("ReplicationBytesOut", "Bytes that this broker has sent to followers."),
    )
)

_REMOTE: Final = "server/monitoring/tiered"
REMOTE_ROWS: Final[tuple[MetricRow, ...]] = (
    *(
        kafka(_C, f"{_TOPICS}{name}PerSec", help_text + " The series without a topic counts all topics.", _REMOTE,
              "topic")
        for name, help_text in (
            ("RemoteCopyBytes", "Bytes of segments that were copied to the object store."),
            ("RemoteCopyRequests", "Segments whose copy was begun."),
            ("RemoteCopyErrors", "Segments whose copy failed. They are copied again."),
            ("RemoteFetchBytes", "Bytes of records read from the object store for consumers."),
            ("RemoteFetchRequests", "Reads of a partition from the object store."),
            ("RemoteFetchErrors", "Reads of a partition from the object store that failed."),
            ("RemoteDeleteRequests", "Remote segments whose deletion was begun."),
            ("RemoteDeleteErrors", "Remote segments whose deletion failed. They are deleted again."),
        )
    ),
    *(
        kafka(_G, _TOPICS + name, help_text + " Of partitions led by this broker.", _REMOTE, "topic")
        for name, help_text in (
            ("RemoteCopyLagBytes", "Bytes of closed segments without a copy in the object store."),
            ("RemoteCopyLagSegments", "Closed segments without a copy in the object store."),
            ("RemoteDeleteLagBytes", "Bytes of remote segments that are being deleted."),
            ("RemoteDeleteLagSegments", "Remote segments that are being deleted."),
            ("RemoteLogSizeBytes", "Bytes of records in the object store."),
            ("RemoteLogMetadataCount", "Remote segments in any state."),
        )
    ),
    *(
        attribute(_G, "RemoteLogManager", f"remote-{what}-throttle-time-{short}",
                  f"The {long} of the times by which {subject} were delayed by remote.log.manager.{what}.max.bytes.per"
                  ".second in the last minute, in ms; 0 without a delay.", _REMOTE)
        for what, subject in (("copy", "copies to the object store"), ("fetch", "reads of the object store"))
        for short, long in (("avg", "average"), ("max", "maximum"))
    ),
)  # fmt: skip

_PHASES: Final = (
    ("TotalTimeMs", "From the arrival of a request to its response."),
    ("RequestQueueTimeMs", "How long requests waited for requests before them on the same connection."),
    ("LocalTimeMs", "How long steps of requests ran on the event loop; a request that waits has several steps."),
    ("RemoteTimeMs", "How long requests waited for other replicas, for records, or for a disk."),
    ("ResponseQueueTimeMs", "How long the encoding of long responses took in a thread."),
    ("ThrottleTimeMs", "How long clients were delayed because of a quota."),
)

REQUEST_ROWS: Final[tuple[MetricRow, ...]] = (
    kafka(_C, _REQUEST + "RequestsPerSec", "Requests.", _REQUESTS, "request", "version"),
    kafka(_C, _REQUEST + "ErrorsPerSec", "Errors in responses, one for each partition or entry.", _REQUESTS,
          "request", "error"),
    *(
        kafka(_G, _REQUEST + name, help_text + " Quantiles of the last minutes.", _REQUESTS, "request", "quantile")
        for name, help_text in _PHASES
    ),
    *(
        kafka(_C, _REQUEST + name, f"Values of {name}.", _REQUESTS, "request", suffix="_count")
        for name, _ in _PHASES
    ),
    kafka(_G, "kafka.network:type=RequestChannel,name=RequestQueueSize", "Requests that wait for earlier requests.",
          _NETWORK),
    kafka(_G, "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent",
          "The share of time, from 0 to 1, in which the event loop had nothing to do.", _NETWORK),
    kafka(_G, "kafka.server:type=KafkaRequestHandlerPool,name=RequestHandlerAvgIdlePercent",
          "The share of time, from 0 to 1, in which the event loop had nothing to do.", _NETWORK),
    kafka(_G, "kafka.network:type=SocketServer,name=MemoryPoolUsed", "Bytes of requests in memory.", _NETWORK),
    kafka(_G, "kafka.network:type=SocketServer,name=MemoryPoolAvailable",
          "Bytes that requests may still take (queued.max.request.bytes).", _NETWORK),
    kafka(_G, "kafka.network:type=SocketServer,name=ExpiredConnectionsKilledCount",
          "Connections closed because their sessions expired, on all listeners.", _NETWORK),
    attribute(_G, "authorizer-metrics", "acls-total-count",
              "ACLs that the authorizer has loaded; only with an authorizer.", _NETWORK),
    attribute(_G, "socket-server-metrics", "connection-count", "Open connections.", _NETWORK, "listener",
              "networkProcessor"),
    attribute(_C, "socket-server-metrics", "connection-creation-total", "Accepted connections.", _NETWORK, "listener",
              "networkProcessor"),
    attribute(_C, "socket-server-metrics", "successful-authentication-total", "Clients that authenticated.", _NETWORK,
              "listener", "networkProcessor"),
    attribute(_C, "socket-server-metrics", "failed-authentication-total", "Clients that failed to authenticate.",
              _NETWORK, "listener", "networkProcessor"),
)  # fmt: skip

CONTROLLER_ROWS: Final[tuple[MetricRow, ...]] = (
    *(
        kafka(_G, _KAFKA_CONTROLLER + name, help_text, _CONTROLLER)
        for name, help_text in (
            ("ActiveControllerCount", "1 on the active controller, 0 on other nodes; the sum of a cluster must be 1."),
            ("OfflinePartitionsCount", "Partitions without a leader. 0 on nodes that are not the active controller."),
            ("PreferredReplicaImbalanceCount",
             "Partitions whose leader is not the preferred one. 0 on nodes that are not the active controller."),
            ("GlobalTopicCount", "Topics of the cluster. 0 on nodes that are not the active controller."),
            ("GlobalPartitionCount", "Partitions of the cluster. 0 on nodes that are not the active controller."),
            ("ActiveBrokerCount", "Brokers that are not fenced. 0 on nodes that are not the active controller."),
            ("FencedBrokerCount", "Registered brokers that are fenced: they are down or starting. 0 on nodes that are "
             "not the active controller."),
            ("LastAppliedRecordOffset", "The offset of the newest metadata record that this node has applied."),
            ("LastAppliedRecordTimestamp", "The time of that record in milliseconds since 1970."),
            ("LastAppliedRecordLagMs", "The age of that record in milliseconds."),
        )
    ),
    kafka(_C, "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
          "Elections of a leader that was not in sync, seen by this node: records may have been lost.", _CONTROLLER),
    kafka(_C, "kafka.controller:type=ControllerStats,name=LeaderElectionRateAndTimeMs",
          "Changes of a partition's leader, seen by this node.", _CONTROLLER, suffix="_count"),
    attribute(_G, "raft-metrics", "current-leader", "The id of the quorum's leader; -1 if unknown.", _QUORUM),
    attribute(_G, "raft-metrics", "current-epoch", "The epoch of the quorum.", _QUORUM),
    attribute(_G, "raft-metrics", "current-state", "1 for the state in which this node is.", _QUORUM, "current_state"),
    attribute(_G, "raft-metrics", "high-watermark", "The offset below which all metadata records are committed.",
              _QUORUM),
    attribute(_G, "raft-metrics", "log-end-offset", "The offset of the next record of the metadata log.", _QUORUM),
    attribute(_G, "raft-metrics", "number-of-voters", "Voters of the quorum.", _QUORUM),
    attribute(_G, "group-coordinator-metrics", "group-count", "Groups that this broker coordinates, by protocol.",
              _GROUPS, "protocol"),
    attribute(_G, "group-coordinator-metrics", "consumer-group-count",
              "Consumer groups that this broker coordinates, by state.", _GROUPS, "state"),
    attribute(_G, "group-coordinator-metrics", "classic-group-count",
              "Classic groups that this broker coordinates, by state.", _GROUPS, "state"),
    attribute(_G, "group-coordinator-metrics", "share-group-count",
              "Share groups that this broker coordinates, by state.", _GROUPS, "state"),
)  # fmt: skip

KAFKA_ROWS: Final = (*REPLICA_ROWS, *TOPIC_ROWS, *REMOTE_ROWS, *REQUEST_ROWS, *CONTROLLER_ROWS)
