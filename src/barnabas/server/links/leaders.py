"""Shell: what the leaders of mirror partitions need from coordinators, the controller and the source cluster.

Implements the ports `MirrorStates`, `MirrorController` and `OppositeMirrors` of the replication package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barnabas.core.config import ConfigError
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.protocol.wire.messages.alter_mirror_topics import (
    AlterMirrorTopicsRequest,
    AlterMirrorTopicsResponse,
    MirrorLeaderEpoch,
)
from barnabas.protocol.wire.messages.describe_links import DescribeLinksRequest, DescribeLinksResponse
from barnabas.protocol.wire.messages.read_link import ReadLinkRequest, ReadLinkResponse
from barnabas.protocol.wire.messages.read_mirror_state import ReadMirrorStateRequest, ReadMirrorStateResponse
from barnabas.protocol.wire.messages.write_mirror_state import WriteMirrorStateRequest, WriteMirrorStateResponse
from barnabas.server.broker.forward import ControllerChannel
from barnabas.server.broker.handlers.links.port import Links
from barnabas.server.links.coordination.values import NO_STATE, STOPPED
from barnabas.server.links.coordination.wire_forms import link_of, state_data_of, stored_of
from barnabas.server.links.fetching.ports import MirrorPartition, SourceRequests
from barnabas.server.links.fetching.states import MirrorState
from barnabas.server.links.fetching.values import LinkDefinition, MirrorPosition, StoredMirror
from barnabas.server.links.forms import definition_of, mirror_of, stored_form
from barnabas.server.links.references import Resolve
from barnabas.server.links.router import LinkRouter, raise_error

_STATE_NAMES: Final = {NO_STATE: "not begun", **{int(state): state.name for state in MirrorState}}


class CoordinatorStates:
    """Implements `MirrorStates`. `links` returns the requests that this broker serves itself."""

    def __init__(self, router: LinkRouter, links: Callable[[], Links], resolve: Resolve) -> None:
        self._router = router
        self._links = links
        self._resolve = resolve

    async def definition(self, link: str) -> LinkDefinition | None:
        request = ReadLinkRequest(link=link)

        async def local() -> ReadLinkResponse:
            return self._links().read_link(request)

        response = await self._router.send(link, request, local)
        if response.link is None:
            return None
        try:
            return self._resolve(definition_of(link_of(response.link)))
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error

    async def read(self, partition: MirrorPartition, leader_epoch: int) -> StoredMirror | None:
        request = ReadMirrorStateRequest(
            link=partition.link,
            topic_id=partition.topic_id,
            partition=partition.partition,
            leader_epoch=leader_epoch,
        )

        async def local() -> ReadMirrorStateResponse:
            return await self._links().read_state(request)

        response = await self._router.send(partition.link, request, local)
        return mirror_of(stored_of(response.state))

    async def write(self, partition: MirrorPartition, state: StoredMirror) -> None:
        request = WriteMirrorStateRequest(
            link=partition.link,
            topic_id=partition.topic_id,
            partition=partition.partition,
            state=state_data_of(stored_form(state)),
        )

        async def local() -> WriteMirrorStateResponse:
            return await self._links().write_state(request)

        await self._router.send(partition.link, request, local)


class MirrorMetadata:
    """Changes of the metadata that links need. Implements `MirrorController`."""

    def __init__(self, controller: ControllerChannel, node_id: int, broker_epoch: Callable[[], int]) -> None:
        self._controller = controller
        self._node_id = node_id
        self._broker_epoch = broker_epoch

    async def change(self, request: AlterMirrorTopicsRequest) -> AlterMirrorTopicsResponse:
        """Let the controller decide on `request`, as this broker. Raises KafkaError."""
        request.broker_id, request.broker_epoch = self._node_id, self._broker_epoch()
        response = await self._controller.call(request, 0)
        assert isinstance(response, AlterMirrorTopicsResponse)
        raise_error(response)
        return response

    async def raise_leader_epoch(self, partition: MirrorPartition, leader_epoch: int, minimum: int) -> None:
        raised = MirrorLeaderEpoch(
            topic_id=partition.topic_id, partition=partition.partition, leader_epoch=leader_epoch, minimum=minimum
        )
        await self.change(AlterMirrorTopicsRequest(leader_epochs=[raised]))

    async def raise_producer_ids(self, above: int) -> None:
        if above >= 0:
            await self.change(AlterMirrorTopicsRequest(producer_ids_above=above))


class SourceMirrors:
    """Implements `OppositeMirrors`: asks the source, in case it is a cluster with links."""

    async def stopped_position(self, source: SourceRequests, partition: MirrorPartition) -> MirrorPosition | None:
        try:
            response = await source.request(DescribeLinksRequest(include_mirrors=True, topic_ids=[partition.topic_id]))
        except KafkaError as error:
            if error.code is ErrorCode.UNSUPPORTED_VERSION:  # Apache Kafka has no links
                return None
            raise
        assert isinstance(response, DescribeLinksResponse)
        raise_error(response)
        for link in response.links:
            for mirror in link.mirrors:
                if mirror.topic_id != partition.topic_id or mirror.partition != partition.partition:
                    continue
                if mirror.state.state != STOPPED:
                    name = _STATE_NAMES.get(mirror.state.state, f"state {mirror.state.state}")
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST,
                        f"On the source, {partition.topic}-{partition.partition} is itself a mirror of link "
                        f"{link.link.name} ({name}). Fail that link over first.",
                    )
                return MirrorPosition(mirror.state.position_epoch, mirror.state.position_offset)
        return None
