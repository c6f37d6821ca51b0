"""Machine: the table of the requests on which the controller decides, and the state of these decisions.

The decisions are plain functions `decide_x(image, request, ctx) -> Decision` in the other modules of this package, one
module for each subject. `Controller` selects the function and applies the decided records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from barnabas.core.decision import Decision
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.protocol.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from barnabas.protocol.wire.messages.alter_configs import AlterConfigsRequest
from barnabas.protocol.wire.messages.alter_mirror_topics import AlterMirrorTopicsRequest
from barnabas.protocol.wire.messages.alter_partition import AlterPartitionRequest
from barnabas.protocol.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.protocol.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from barnabas.protocol.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from barnabas.protocol.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.protocol.wire.messages.broker_registration import BrokerRegistrationRequest
from barnabas.protocol.wire.messages.controller_registration import ControllerRegistrationRequest
from barnabas.protocol.wire.messages.create_acls import CreateAclsRequest
from barnabas.protocol.wire.messages.create_partitions import CreatePartitionsRequest
from barnabas.protocol.wire.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.wire.messages.delete_acls import DeleteAclsRequest
from barnabas.protocol.wire.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.wire.messages.elect_leaders import ElectLeadersRequest
from barnabas.protocol.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.protocol.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas.protocol.wire.messages.unregister_broker import UnregisterBrokerRequest
from barnabas.protocol.wire.messages.update_features import UpdateFeaturesRequest
from barnabas.protocol.wire.schema import Message
from barnabas.server.metadata.controller.acls import decide_create_acls, decide_delete_acls
from barnabas.server.metadata.controller.alter_configs import decide_alter_configs, decide_incremental_alter_configs
from barnabas.server.metadata.controller.alter_partition import decide_alter_partition
from barnabas.server.metadata.controller.brokers import (
    decide_heartbeat,
    decide_register_broker,
    decide_unregister_broker,
)
from barnabas.server.metadata.controller.client_quotas import decide_alter_client_quotas
from barnabas.server.metadata.controller.controllers import decide_register_controller
from barnabas.server.metadata.controller.create_partitions import decide_create_partitions
from barnabas.server.metadata.controller.create_topics import decide_create_topics
from barnabas.server.metadata.controller.delete_topics import decide_delete_topics
from barnabas.server.metadata.controller.directories import decide_assign_replicas_to_dirs
from barnabas.server.metadata.controller.mirror_topics import decide_alter_mirror_topics
from barnabas.server.metadata.controller.partitions import decide_elect_leaders
from barnabas.server.metadata.controller.producer_ids import decide_allocate_producer_ids
from barnabas.server.metadata.controller.reassignments import (
    decide_alter_partition_reassignments,
    decide_list_partition_reassignments,
)
from barnabas.server.metadata.controller.settings import ControllerConfig, DecideContext
from barnabas.server.metadata.controller.update_features import decide_update_features
from barnabas.server.metadata.controller.users import decide_alter_user_scram_credentials
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import replayed
from barnabas.server.metadata.records.base import MetadataRecord

Decide = Callable[[ClusterImage, Any, DecideContext], Decision[MetadataRecord, Any]]

_HANDLED: Final[Mapping[type[Message], Decide]] = {
    CreateTopicsRequest: decide_create_topics,
    DeleteTopicsRequest: decide_delete_topics,
    CreatePartitionsRequest: decide_create_partitions,
    IncrementalAlterConfigsRequest: decide_incremental_alter_configs,
    AlterConfigsRequest: decide_alter_configs,
    AlterClientQuotasRequest: decide_alter_client_quotas,
    AllocateProducerIdsRequest: decide_allocate_producer_ids,
    UpdateFeaturesRequest: decide_update_features,
    AlterUserScramCredentialsRequest: decide_alter_user_scram_credentials,
    ElectLeadersRequest: decide_elect_leaders,
    AlterPartitionRequest: decide_alter_partition,
    AlterPartitionReassignmentsRequest: decide_alter_partition_reassignments,
    ListPartitionReassignmentsRequest: decide_list_partition_reassignments,
    BrokerRegistrationRequest: decide_register_broker,
    BrokerHeartbeatRequest: decide_heartbeat,
    UnregisterBrokerRequest: decide_unregister_broker,
    ControllerRegistrationRequest: decide_register_controller,
    AssignReplicasToDirsRequest: decide_assign_replicas_to_dirs,
    CreateAclsRequest: decide_create_acls,
    DeleteAclsRequest: decide_delete_acls,
    AlterMirrorTopicsRequest: decide_alter_mirror_topics,
}


class Controller:
    """The state of the active controller. `decide` only reads it; only `apply` changes `image`."""

    HANDLED: ClassVar[Mapping[type[Message], Decide]] = _HANDLED

    def __init__(self, settings: ControllerConfig, image: ClusterImage | None = None) -> None:
        self.settings = settings
        self.image = image or ClusterImage()

    def decide(self, image: ClusterImage, request: Message, ctx: DecideContext) -> Decision[MetadataRecord, Message]:
        """The records to append and the response. Raises KafkaError for a request that controllers do not handle."""
        decide = self.HANDLED.get(type(request))
        if decide is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"The controller does not handle {type(request).__name__}.")
        return decide(image, request, ctx)

    def apply(self, image: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        """Apply `records` to `image`, and store the result in `self.image`, on which the next decision is based.

        The offset of the result is an estimate, because the log may contain control records between these records.
        """
        self.image = replayed(image, records)
