"""Machine: the table of requests the controller decides on, and the state they are decided on.

Decisions live in the modules beside this one, one per subject, as plain functions
`decide_x(image, request, ctx) -> Decision`. This class only finds the right one and applies what was decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from barnabas.core.decision import Decision
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.metadata.controller.alter_configs import decide_alter_configs, decide_incremental_alter_configs
from barnabas.metadata.controller.alter_partition import decide_alter_partition
from barnabas.metadata.controller.brokers import (
    decide_heartbeat,
    decide_register_broker,
    decide_unregister_broker,
)
from barnabas.metadata.controller.controllers import decide_register_controller
from barnabas.metadata.controller.create_partitions import decide_create_partitions
from barnabas.metadata.controller.create_topics import decide_create_topics
from barnabas.metadata.controller.delete_topics import decide_delete_topics
from barnabas.metadata.controller.directories import decide_assign_replicas_to_dirs
from barnabas.metadata.controller.partitions import decide_elect_leaders
from barnabas.metadata.controller.producer_ids import decide_allocate_producer_ids
from barnabas.metadata.controller.reassignments import (
    decide_alter_partition_reassignments,
    decide_list_partition_reassignments,
)
from barnabas.metadata.controller.settings import ControllerSettings, DecideContext
from barnabas.metadata.controller.update_features import decide_update_features
from barnabas.metadata.image.cluster import ClusterImage
from barnabas.metadata.image.delta import replayed
from barnabas.metadata.records.base import MetadataRecord
from barnabas.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from barnabas.wire.messages.alter_configs import AlterConfigsRequest
from barnabas.wire.messages.alter_partition import AlterPartitionRequest
from barnabas.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from barnabas.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from barnabas.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from barnabas.wire.messages.broker_registration import BrokerRegistrationRequest
from barnabas.wire.messages.controller_registration import ControllerRegistrationRequest
from barnabas.wire.messages.create_partitions import CreatePartitionsRequest
from barnabas.wire.messages.create_topics import CreateTopicsRequest
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest
from barnabas.wire.messages.elect_leaders import ElectLeadersRequest
from barnabas.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from barnabas.wire.messages.unregister_broker import UnregisterBrokerRequest
from barnabas.wire.messages.update_features import UpdateFeaturesRequest
from barnabas.wire.schema import Message

Decide = Callable[[ClusterImage, Any, DecideContext], Decision[MetadataRecord, Any]]

_HANDLED: Final[Mapping[type[Message], Decide]] = {
    CreateTopicsRequest: decide_create_topics,
    DeleteTopicsRequest: decide_delete_topics,
    CreatePartitionsRequest: decide_create_partitions,
    IncrementalAlterConfigsRequest: decide_incremental_alter_configs,
    AlterConfigsRequest: decide_alter_configs,
    AllocateProducerIdsRequest: decide_allocate_producer_ids,
    UpdateFeaturesRequest: decide_update_features,
    ElectLeadersRequest: decide_elect_leaders,
    AlterPartitionRequest: decide_alter_partition,
    AlterPartitionReassignmentsRequest: decide_alter_partition_reassignments,
    ListPartitionReassignmentsRequest: decide_list_partition_reassignments,
    BrokerRegistrationRequest: decide_register_broker,
    BrokerHeartbeatRequest: decide_heartbeat,
    UnregisterBrokerRequest: decide_unregister_broker,
    ControllerRegistrationRequest: decide_register_controller,
    AssignReplicasToDirsRequest: decide_assign_replicas_to_dirs,
}


class Controller:
    """`decide` reads; `apply` is the only thing that changes `image`."""

    HANDLED: ClassVar[Mapping[type[Message], Decide]] = _HANDLED

    def __init__(self, settings: ControllerSettings, image: ClusterImage | None = None) -> None:
        self.settings = settings
        self.image = image or ClusterImage()

    def decide(self, image: ClusterImage, request: Message, ctx: DecideContext) -> Decision[MetadataRecord, Message]:
        """What to write and what to answer. Raises KafkaError for a request that is not the controller's."""
        decide = self.HANDLED.get(type(request))
        if decide is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"The controller does not serve {type(request).__name__}.")
        return decide(image, request, ctx)

    def apply(self, image: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        """Make `image` with `records` replayed onto it the state of the next decision.

        Its offset runs ahead of the log by a guess: control records of the log may take offsets in between.
        """
        self.image = replayed(image, records)
