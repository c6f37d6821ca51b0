"""Shell: the first steps of a node in its cluster: found it if it is new, register, become active."""

from __future__ import annotations

from barnabas.core.errors import KafkaError, error_code
from barnabas.core.rng import Rng, random_uuid
from barnabas.metadata import features
from barnabas.metadata.driver import ControllerDriver
from barnabas.metadata.nodes_image import SecurityProtocol
from barnabas.metadata.ports import MetadataLog
from barnabas.metadata.records import MetadataRecord
from barnabas.net.endpoint import Endpoint
from barnabas.node.quorum.snapshot_files import bootstrap_records
from barnabas.storage.fs import FileSystem
from barnabas.storage.log_dir import LogDir
from barnabas.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)

_REGISTRATION_VERSION = 4
_HEARTBEAT_VERSION = 2


async def found_cluster(metadata: MetadataLog, fs: FileSystem, log_dir: str) -> None:
    """Write the first records of a new cluster: those that Kafka's `format` prepared, or our defaults."""
    records: list[MetadataRecord] = list(bootstrap_records(fs, log_dir, f"{log_dir}/__cluster_metadata-0"))
    if not records:
        records = list(features.bootstrap_records())
    await metadata.propose(records)


def previous_broker_epoch(dirs: list[LogDir]) -> int:
    """The epoch under which this broker shut down in order, if every log directory remembers the same; else -1, which
    tells the controller that records may be missing (KIP-966)."""
    epochs = {directory.previous_broker_epoch for directory in dirs}
    return epochs.pop() if len(epochs) == 1 else -1


async def register_broker(
    driver: ControllerDriver, node_id: int, cluster_id: str, endpoints: list[Endpoint], rack: str | None,
    dirs: list[LogDir], rng: Rng,
) -> int:  # fmt: skip
    """Register this process as the broker and have it unfenced. Gives the broker epoch. Raises KafkaError."""
    request = BrokerRegistrationRequest(
        broker_id=node_id,
        cluster_id=cluster_id,
        incarnation_id=random_uuid(rng),
        listeners=[
            Listener(name=e.name, host=e.host, port=e.port, security_protocol=SecurityProtocol[e.security_protocol])
            for e in endpoints
        ],
        features=[
            Feature(name=name, min_supported_version=levels.min_level, max_supported_version=levels.max_level)
            for name, levels in features.SUPPORTED_FEATURES.items()
        ],
        rack=rack,
        log_dirs=sorted(directory.directory_id for directory in dirs),
        previous_broker_epoch=previous_broker_epoch(dirs),
    )
    registered = await driver.handle(request, _REGISTRATION_VERSION)
    assert isinstance(registered, BrokerRegistrationResponse)
    if registered.error_code:
        raise KafkaError(error_code(registered.error_code), "The controller refused to register this broker.")
    heartbeat = BrokerHeartbeatRequest(
        broker_id=node_id,
        broker_epoch=registered.broker_epoch,
        current_metadata_offset=driver.image.offset,
        want_fence=False,
    )
    answer = await driver.handle(heartbeat, _HEARTBEAT_VERSION)
    assert isinstance(answer, BrokerHeartbeatResponse)
    if answer.error_code or answer.is_fenced:
        raise KafkaError(error_code(answer.error_code), "The controller left this broker fenced.")
    return registered.broker_epoch
