"""Machine: registration, heartbeats, fencing and shutdown of brokers (`ClusterControlManager`,
`BrokerHeartbeatManager`).

A broker is fenced when it registers. The first heartbeat that shows that the broker has read the metadata log up to its
registration unfences the broker: from then on it leads partitions and is visible to clients. When the heartbeats stop,
`decide_fence_broker` fences the broker. The shell measures the time; `DecideContext.live_brokers` has the valid
sessions.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from barnabas.core.decision import Decision
from barnabas.core.errors import ErrorCode
from barnabas.protocol.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.protocol.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from barnabas.protocol.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from barnabas.server.metadata.controller.directories import records_without_directories
from barnabas.server.metadata.controller.partitions import (
    PARTITIONS_PER_DECISION,
    records_with_broker,
    records_without_broker,
)
from barnabas.server.metadata.controller.settings import DecideContext
from barnabas.server.metadata.features import CORDONED_DIRECTORIES_LEVEL, unsupported_levels
from barnabas.server.metadata.image.cluster import BrokerImage, ClusterImage
from barnabas.server.metadata.image.delta import replayed
from barnabas.server.metadata.image.nodes import FeatureRange
from barnabas.server.metadata.records.base import MetadataRecord
from barnabas.server.metadata.records.nodes import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)

YES = 1
NO = -1


def decide_register_broker(
    image: ClusterImage, request: BrokerRegistrationRequest, ctx: DecideContext
) -> Decision[MetadataRecord, BrokerRegistrationResponse]:
    """Register a starting broker with a new broker epoch, or confirm its present registration."""
    present = image.brokers.get(request.broker_id)
    problem = _registration_problem(image, request, present, ctx.live_brokers)
    if problem is not ErrorCode.NONE:
        return Decision(BrokerRegistrationResponse(error_code=problem))
    records: list[MetadataRecord] = []
    same = present is not None and present.incarnation_id == request.incarnation_id
    epoch = present.epoch if present is not None and same else _new_epoch(image)
    if not same:
        # A new process: the partitions of the old one need another leader. Only the broker epoch of the old process,
        # which a clean shutdown stores in the log directory, proves that no record was lost (KIP-966). The epoch of
        # an unregistered broker is unknown, so that nothing can be proved.
        unclean = present is None or request.previous_broker_epoch != present.epoch
        records += records_without_broker(image, request.broker_id, ctx, unclean=unclean)
    records.append(
        RegisterBrokerRecord(
            broker_id=request.broker_id,
            incarnation_id=request.incarnation_id,
            broker_epoch=epoch,
            end_points=[
                BrokerEndpoint(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
                for e in request.listeners
            ],
            features=[
                BrokerFeature(
                    name=feature.name,
                    min_supported_version=feature.min_supported_version,
                    max_supported_version=feature.max_supported_version,
                )
                for feature in request.features
            ],
            rack=request.rack,
            fenced=present.fenced if present is not None and same else True,
            in_controlled_shutdown=present.in_controlled_shutdown if present is not None and same else False,
            log_dirs=sorted(request.log_dirs),
        )
    )
    return Decision(BrokerRegistrationResponse(broker_epoch=epoch), records)


def levels_not_supported_by(request: BrokerRegistrationRequest, image: ClusterImage) -> list[str]:
    """One text for each finalized feature level that the registering broker does not support."""
    ranges = {
        feature.name: FeatureRange(feature.min_supported_version, feature.max_supported_version)
        for feature in request.features
    }
    return unsupported_levels(image.features.levels, ranges)


def decide_heartbeat(
    image: ClusterImage, request: BrokerHeartbeatRequest, ctx: DecideContext
) -> Decision[MetadataRecord, BrokerHeartbeatResponse]:
    """Decide on a heartbeat: first elect new leaders for partitions in a log directory that is offline now; then
    unfence a broker that has caught up, fence one that requests it, or continue a controlled shutdown. A broker
    without any online directory is fenced, and stays fenced until its process is restarted.

    In a controlled shutdown and after an unfence, one decision changes at most `PARTITIONS_PER_DECISION` partitions.
    The next heartbeat continues the shutdown. After an unfence, `decide_leaderless` elects the leaders that are
    missing.
    """
    broker = image.brokers.get(request.broker_id)
    if broker is None or broker.epoch != request.broker_epoch:
        return Decision(BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
    caught_up = request.current_metadata_offset >= broker.epoch
    if broker.log_dirs and set(broker.log_dirs) <= set(request.offline_log_dirs):
        response = BrokerHeartbeatResponse(
            is_caught_up=caught_up, is_fenced=True, should_shut_down=request.want_shut_down
        )
        return Decision(response, decide_fence_broker(image, broker.broker_id, ctx).records)
    offline = records_without_directories(image, broker, request.offline_log_dirs, ctx)
    if offline:
        image = replayed(image, offline)
        broker = image.brokers.get(request.broker_id)
        assert broker is not None
    records: list[MetadataRecord] = []
    fenced, shut_down = broker.fenced, False
    if request.want_shut_down:
        fenced, shut_down, records = _shut_down(image, broker, ctx)
    elif broker.fenced and caught_up and not request.want_fence:
        fenced = False
        led = records_with_broker(image, broker.broker_id, ctx, limit=PARTITIONS_PER_DECISION)
        records = [_registration_change(broker, fenced=NO), *led]
    elif not broker.fenced and request.want_fence:
        fenced = True
        records = [*records_without_broker(image, broker.broker_id, ctx), _registration_change(broker, fenced=YES)]
    response = BrokerHeartbeatResponse(is_caught_up=caught_up, is_fenced=fenced, should_shut_down=shut_down)
    return Decision(response, [*offline, *records, *_cordoned(image, broker, request.cordoned_log_dirs)])


def decide_fence_broker(image: ClusterImage, broker_id: int, ctx: DecideContext) -> Decision[MetadataRecord, None]:
    """Fence a broker whose heartbeats have stopped (`broker.session.timeout.ms`), or whose log directories have all
    failed."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.fenced:
        return Decision(None)
    records = [*records_without_broker(image, broker_id, ctx), _registration_change(broker, fenced=YES)]
    return Decision(None, records)


def decide_unregister_broker(
    image: ClusterImage, request: UnregisterBrokerRequest, ctx: DecideContext
) -> Decision[MetadataRecord, UnregisterBrokerResponse]:
    """Remove a broker's registration. The broker must register again to come back."""
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        return Decision(
            UnregisterBrokerResponse(
                error_code=ErrorCode.BROKER_ID_NOT_REGISTERED,
                error_message=f"Broker ID {request.broker_id} is not currently registered",
            )
        )
    records = [
        *records_without_broker(image, broker.broker_id, ctx),
        UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch),
    ]
    return Decision(UnregisterBrokerResponse(error_message=None), records)


def _registration_problem(
    image: ClusterImage,
    request: BrokerRegistrationRequest,
    present: BrokerImage | None,
    live_brokers: frozenset[int],
) -> ErrorCode:
    if image.cluster_id and request.cluster_id != image.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    if (
        present is not None
        and present.incarnation_id != request.incarnation_id
        # after a controlled shutdown, the next process need not wait until the previous session expires
        and not present.in_controlled_shutdown
        and request.broker_id in live_brokers
    ):
        return ErrorCode.DUPLICATE_BROKER_REGISTRATION  # the registered process still sends heartbeats
    if len(set(request.log_dirs)) != len(request.log_dirs):
        return ErrorCode.INVALID_REGISTRATION
    return ErrorCode.UNSUPPORTED_VERSION if levels_not_supported_by(request, image) else ErrorCode.NONE


def _shut_down(image: ClusterImage, broker: BrokerImage, ctx: DecideContext) -> tuple[bool, bool, list[MetadataRecord]]:
    """Continue the controlled shutdown of a broker. Returns whether the broker is fenced, whether it may stop, and the
    records.

    First, other replicas become the leaders of the broker's partitions. When the broker leads no partition, and all
    active brokers have applied that metadata, the broker may stop and is fenced.
    """
    others = any(other.is_active and other.broker_id != broker.broker_id for other in image.brokers)
    limit = None if broker.fenced or not others else PARTITIONS_PER_DECISION
    records = records_without_broker(image, broker.broker_id, ctx, limit=limit)
    if broker.fenced or not others or (not records and ctx.may_stop(broker.broker_id)):
        if not broker.fenced:
            records.append(_registration_change(broker, fenced=YES))
        return True, True, records
    if not broker.in_controlled_shutdown:
        records.insert(0, _registration_change(broker, in_controlled_shutdown=YES))
    return False, False, records


def _cordoned(
    image: ClusterImage, broker: BrokerImage, wanted: Sequence[UUID] | None
) -> list[BrokerRegistrationChangeRecord]:
    """The record that cordons the directories `wanted` and no others (KIP-1066), if that changes anything. Brokers of
    Apache Kafka send their `cordoned.log.dirs` with each heartbeat; None changes nothing."""
    if wanted is None or image.features.metadata_version < CORDONED_DIRECTORIES_LEVEL:
        return []
    cordoned = sorted(wanted)
    if cordoned == sorted(broker.cordoned_log_dirs or ()):
        return []
    return [
        BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=cordoned
        )
    ]


def _registration_change(
    broker: BrokerImage, *, fenced: int = 0, in_controlled_shutdown: int = 0
) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id,
        broker_epoch=broker.epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
    )


def _new_epoch(image: ClusterImage) -> int:
    """A new broker epoch, above the epochs of all registered brokers. The epoch is about the offset that the
    registration record will get; Kafka uses exactly that offset."""
    return max(image.offset + 1, *(broker.epoch + 1 for broker in image.brokers), 0)
