"""Machine: brokers that register, beat, are fenced and leave (`ClusterControlManager`, `BrokerHeartbeatManager`).

A broker registers fenced. Its first heartbeat that shows it has read the metadata log up to its registration unfences
it: from then on it leads partitions and clients hear of it. When its heartbeats stop, `decide_fence_broker` fences it;
counting the time is the shell's business, which tells by `DecideContext.live_brokers` whose session is valid.
"""

from __future__ import annotations

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
from barnabas.server.metadata.image.cluster import BrokerImage, ClusterImage
from barnabas.server.metadata.image.delta import replayed
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
    """Register a starting broker under a new epoch, or confirm the registration it has."""
    present = image.brokers.get(request.broker_id)
    problem = _registration_problem(image, request, present, ctx.live_brokers)
    if problem is not ErrorCode.NONE:
        return Decision(BrokerRegistrationResponse(error_code=problem))
    records: list[MetadataRecord] = []
    same = present is not None and present.incarnation_id == request.incarnation_id
    epoch = present.epoch if present is not None and same else _new_epoch(image)
    if not same:
        # A new process: whatever the old one led needs a leader that is there. Only the epoch of the old one, which
        # a log directory remembers after an orderly shutdown, proves that nothing was lost (KIP-966). If the broker
        # was unregistered, that epoch is forgotten: nothing can be proved.
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


def decide_heartbeat(
    image: ClusterImage, request: BrokerHeartbeatRequest, ctx: DecideContext
) -> Decision[MetadataRecord, BrokerHeartbeatResponse]:
    """What a beat changes: unfence a broker that caught up, fence one that wants it, let one shut down in order; first
    of all give new leaders to what lay in a log directory that is offline now. A broker that has no directory left can
    do nothing: it is fenced, and stays so as long as this process of it runs.

    Of very many partitions, a part changes: the next beat goes on with a shutdown, `decide_leaderless` with an unfence.
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
    return Decision(response, [*offline, *records])


def decide_fence_broker(image: ClusterImage, broker_id: int, ctx: DecideContext) -> Decision[MetadataRecord, None]:
    """A broker's heartbeats have stopped (`broker.session.timeout.ms`), or it has no disk."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.fenced:
        return Decision(None)
    records = [*records_without_broker(image, broker_id, ctx), _registration_change(broker, fenced=YES)]
    return Decision(None, records)


def decide_unregister_broker(
    image: ClusterImage, request: UnregisterBrokerRequest, ctx: DecideContext
) -> Decision[MetadataRecord, UnregisterBrokerResponse]:
    """Forget a broker for good; it must register again to come back."""
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
        and not present.in_controlled_shutdown  # whoever comes after one that leaves need not wait for its session
        and request.broker_id in live_brokers
    ):
        return ErrorCode.DUPLICATE_BROKER_REGISTRATION  # the one that is registered still sends heartbeats
    if len(set(request.log_dirs)) != len(request.log_dirs):
        return ErrorCode.INVALID_REGISTRATION
    supported = {feature.name: feature for feature in request.features}
    for feature, level in image.features.levels.items():
        levels = supported.get(feature)
        if levels is None or not levels.min_supported_version <= level <= levels.max_supported_version:
            return ErrorCode.UNSUPPORTED_VERSION
    return ErrorCode.NONE


def _shut_down(image: ClusterImage, broker: BrokerImage, ctx: DecideContext) -> tuple[bool, bool, list[MetadataRecord]]:
    """(fenced, may stop, records): first hand over what it leads, then, when nothing is left and everyone knows, let
    it go fenced."""
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
    """Above every epoch there is, and about the offset its record will have (Kafka takes exactly that offset)."""
    return max(image.offset + 1, *(broker.epoch + 1 for broker in image.brokers), 0)
