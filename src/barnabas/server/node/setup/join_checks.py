"""Shell: keeps a broker out of a cluster that uses what this broker does not have.

Tiered storage without an object store: as a leader, this broker would not find the records that are only in the object
store, and its log start offset would let other brokers delete them. Streams groups (KIP-1071): as their coordinator,
this broker would not serve them, and their committed offsets would expire. So a broker checks the configs of all
topics, and asks the other brokers for their streams groups, before it registers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from barnabas.core.errors import KafkaError
from barnabas.core.telemetry import get_logger
from barnabas.protocol.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.server.metadata.features import STREAMS_VERSION
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.small import ResourceType
from barnabas.server.node.lifecycle import RegistrationError
from barnabas.server.peers.peers import PeerSender

log = get_logger("barnabas.server.broker")

_TIMEOUT_MS: Final = 2_000
_NAMED_MAX: Final = 5


async def check_may_join(peers: PeerSender, image: ClusterImage, node_id: int, *, has_store: bool) -> None:
    """Raises RegistrationError if the cluster has topics in tiered storage and this broker has no object store, or if
    the cluster has streams groups.

    Only running brokers are asked for groups: a cluster must be able to start as a whole.
    """
    tiered = [
        name
        for name in image.configs.names(ResourceType.TOPIC)
        if image.configs.topic(name).get("remote.storage.enable") == "true" and not has_store
    ]
    if tiered:
        raise RegistrationError(
            f"This broker cannot start: topics have remote.storage.enable=true ({_some(tiered)}), and this broker has "
            "remote.log.storage.system.enable=false. Set it to true with the settings of the object store, as on the "
            "other brokers. To give up tiered storage, first set remote.storage.enable=false and "
            "remote.log.delete.on.disable=true on the topics."
        )
    if not image.features.level(STREAMS_VERSION):
        return
    others = [broker.broker_id for broker in image.brokers.alive() if broker.broker_id != node_id]
    answers = await asyncio.gather(*(_streams_groups(peers, broker_id) for broker_id in others))
    groups = sorted({group_id for answer in answers for group_id in answer or ()})
    if groups:
        raise RegistrationError(
            f"This broker cannot join: the cluster has groups of the streams protocol ({_some(groups)}), which this "
            "version of Barnabas does not support. Restart their programs with group.protocol=classic, delete the "
            "groups with `kafka-streams-groups --bootstrap-server HOST:PORT --delete --group NAME`, and start this "
            "broker again."
        )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:_NAMED_MAX]) + (", ..." if len(names) > _NAMED_MAX else "")


async def _streams_groups(peers: PeerSender, broker_id: int) -> list[str] | None:
    """The streams groups that the broker coordinates; None if the broker does not answer."""
    request = ListGroupsRequest(types_filter=["streams"])
    try:
        response = await peers.send(broker_id, request, timeout_ms=_TIMEOUT_MS)
    except KafkaError as error:
        log.info("a broker did not list its streams groups", broker=broker_id, reason=str(error))
        return None
    assert isinstance(response, ListGroupsResponse)
    return [group.group_id for group in response.groups]
