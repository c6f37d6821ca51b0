"""Shell: the requests about cluster links. Implements `Links` of the broker package.

    client ──► any broker ──► the link's coordinator ──► __mirror_state, controller, source cluster

A request that reaches another broker than the coordinator is sent on once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from barnabas.core.config import ConfigError
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import MIRROR_STATE_TOPIC, NO_LEADER
from barnabas.core.tasks import enter_task
from barnabas.protocol.wire.messages.alter_link import AlterLinkRequest, AlterLinkResponse, LinkData
from barnabas.protocol.wire.messages.alter_mirrors import AlterMirrorsRequest, AlterMirrorsResponse
from barnabas.protocol.wire.messages.describe_links import (
    DescribedLink,
    DescribeLinksRequest,
    DescribeLinksResponse,
    StoredPartition,
)
from barnabas.protocol.wire.messages.describe_mirrors import (
    DescribedMirror,
    DescribeMirrorsRequest,
    DescribeMirrorsResponse,
)
from barnabas.protocol.wire.messages.read_link import ReadLinkRequest, ReadLinkResponse
from barnabas.protocol.wire.messages.read_mirror_state import ReadMirrorStateRequest, ReadMirrorStateResponse
from barnabas.protocol.wire.messages.write_mirror_state import WriteMirrorStateRequest, WriteMirrorStateResponse
from barnabas.server.links.coordination.mirror_commands import LinkOperation
from barnabas.server.links.coordination.planning import check_link
from barnabas.server.links.coordination.service import LinkCoordinator
from barnabas.server.links.coordination.shard import unknown_link
from barnabas.server.links.coordination.values import MirrorId, StoredLink
from barnabas.server.links.coordination.wire_forms import HIDDEN, data_of, link_of, state_data_of, stored_of
from barnabas.server.links.fetching.values import LinkDefinition, MirrorReport
from barnabas.server.links.forms import definition_of
from barnabas.server.links.router import LinkRouter, raise_error
from barnabas.server.links.work import LinkWorkers
from barnabas.server.metadata.controller.topic_names import name_problem

R = TypeVar("R")


class MirrorReports(Protocol):
    """The mirror partitions that this broker leads."""

    def reports(self, link: str | None = None) -> list[MirrorReport]: ...

    def on_link_changed(self, link: str) -> None:
        """The definition of a link has changed: read it again."""
        ...


class LinkRequests:
    """Implements `Links`. `check` raises ConfigError for a definition with which no source can be opened."""

    def __init__(
        self,
        router: LinkRouter,
        coordinator: LinkCoordinator,
        workers: LinkWorkers,
        reports: MirrorReports,
        check: Callable[[LinkDefinition], object],
    ) -> None:
        self._router = router
        self._coordinator = coordinator
        self._workers = workers
        self._reports = reports
        self._check = check

    # -- any broker ----------------------------------------------------------------------------------------------

    async def alter_link(self, request: AlterLinkRequest) -> AlterLinkResponse:
        await enter_task()
        link = link_of(request.link)
        if request.operation not in list(LinkOperation):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Operation {request.operation} is unknown: 0 creates, 1 replaces, 2 deletes.",
            )
        operation = LinkOperation(request.operation)
        if operation is LinkOperation.ANNOUNCE:
            self._reports.on_link_changed(link.name)
            return AlterLinkResponse(link=LinkData(name=link.name))
        if operation is LinkOperation.CREATE:
            await self._router.require_topic()
        elif not self._router.has_topic:
            raise unknown_link(link.name)
        return await self._at_coordinator(link.name, request, lambda: self._alter(operation, link, request))

    async def alter_mirrors(self, request: AlterMirrorsRequest) -> AlterMirrorsResponse:
        await enter_task()
        if not self._router.has_topic:
            raise unknown_link(request.link)

        async def local() -> AlterMirrorsResponse:
            link = self._coordinator.definition(request.link)
            if link is None:
                raise unknown_link(request.link)
            return await self._workers.alter_mirrors(link, request)

        return await self._at_coordinator(request.link, request, local)

    async def describe_links(self, request: DescribeLinksRequest) -> DescribeLinksResponse:
        await enter_task()
        if request.only_local:
            return self._describe(request)
        topic = self._router.router.local.metadata.image.topics.get(MIRROR_STATE_TOPIC)
        if topic is None:
            return DescribeLinksResponse()
        leaders = {partition.leader for partition in topic.partitions}
        if request.names is not None:  # a failover must not depend on the coordinators of other links
            leaders = {self._router.router.coordinator(MIRROR_STATE_TOPIC, name) for name in request.names}
        if NO_LEADER in leaders:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"A partition of {MIRROR_STATE_TOPIC} has no leader. Retry later."
            )
        asked = DescribeLinksRequest(
            names=request.names,
            include_mirrors=request.include_mirrors,
            topic_ids=request.topic_ids,
            only_local=True,
        )
        answers = await asyncio.gather(*(self._ask(leader, asked) for leader in sorted(leaders)))
        links = sorted((link for answer in answers for link in answer.links), key=lambda link: link.link.name)
        return DescribeLinksResponse(links=links)

    async def _ask(self, broker_id: int, request: DescribeLinksRequest) -> DescribeLinksResponse:
        if self._router.router.is_local(broker_id):
            return self._describe(request)
        response: Any = await self._router.router.send(broker_id, request, "links")
        raise_error(response)
        answer: DescribeLinksResponse = response
        return answer

    async def _at_coordinator(self, link: str, request: Any, local: Callable[[], Awaitable[R]]) -> R:
        if request.only_local:
            return await local()
        request.only_local = True
        return await self._router.send(link, request, local)

    # -- the coordinator -----------------------------------------------------------------------------------------

    async def _alter(self, operation: LinkOperation, link: StoredLink, request: AlterLinkRequest) -> AlterLinkResponse:
        before = self._coordinator.definition(link.name)
        if operation is LinkOperation.DELETE:
            return await self._delete(before, link.name, validate_only=request.validate_only)
        if operation is LinkOperation.REPLACE and before is None:
            raise unknown_link(link.name)
        link = _with_secrets(link, before)
        self._validate(link)
        link = await self._workers.identified(link)
        if not request.validate_only:
            store = self._coordinator.create if operation is LinkOperation.CREATE else self._coordinator.alter
            link = await store(link)
        elif operation is LinkOperation.CREATE and before is not None:
            raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, f"A link {link.name} exists already.")
        return AlterLinkResponse(link=data_of(link, hide_secrets=True))

    async def _delete(self, before: StoredLink | None, name: str, *, validate_only: bool) -> AlterLinkResponse:
        if before is None:
            raise unknown_link(name)
        running = self._workers.mirrors_of(name)
        if running:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Link {name} has {len(running)} mirror topics, for example {running[0]}. Stop them first: "
                f"barnabas links failover {name}.",
            )
        if not validate_only:
            await self._workers.release_topics(name)
            await self._coordinator.delete(name, self._workers.has_topic)
        return AlterLinkResponse(link=data_of(before, hide_secrets=True))

    def _validate(self, link: StoredLink) -> None:
        """Raises KafkaError INVALID_REQUEST, INVALID_CONFIG or INVALID_REGULAR_EXPRESSION."""
        problem = name_problem(link.name)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"The name of the link is invalid: {problem}")
        try:
            check_link(link)
            self._check(definition_of(link))
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        except ValueError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error

    def _describe(self, request: DescribeLinksRequest) -> DescribeLinksResponse:
        described = []
        topics = self._router.router.local.metadata.image.topics
        names = None if request.names is None else set(request.names)
        ids = None if request.topic_ids is None else set(request.topic_ids)
        for link in self._coordinator.links():
            if names is not None and link.name not in names:
                continue
            entry = DescribedLink(
                link=data_of(link, hide_secrets=True),
                coordinator_id=self._router.router.local.node_id,
                trouble=self._workers.trouble(link.name),
            )
            if request.include_mirrors:
                for key, stored in sorted(self._coordinator.states(link.name).items()):
                    if ids is not None and key.topic_id not in ids:
                        continue
                    topic = topics.get_by_id(key.topic_id)
                    entry.mirrors.append(
                        StoredPartition(
                            topic_id=key.topic_id,
                            topic=None if topic is None else topic.name,
                            partition=key.partition,
                            state=state_data_of(stored),
                        )
                    )
            described.append(entry)
        return DescribeLinksResponse(links=described)

    # -- this broker only ----------------------------------------------------------------------------------------

    def describe_mirrors(self, request: DescribeMirrorsRequest) -> DescribeMirrorsResponse:
        links = None if request.links is None else set(request.links)
        reports = [report for report in self._reports.reports() if links is None or report.link in links]
        return DescribeMirrorsResponse(
            mirrors=[
                DescribedMirror(
                    link=report.link,
                    topic=report.topic,
                    partition=report.partition,
                    state=0 if report.state is None else int(report.state),
                    position_epoch=report.position.epoch,
                    position_offset=report.position.offset,
                    source_high_watermark=report.source_high_watermark,
                    lag=report.lag,
                    last_fetch_ms=report.last_fetch_ms,
                    skipped_records=report.skipped_records,
                    reason=report.reason,
                )
                for report in reports
            ]
        )

    def read_link(self, request: ReadLinkRequest) -> ReadLinkResponse:
        link = self._coordinator.definition(request.link)
        return ReadLinkResponse(link=None if link is None else data_of(link))

    async def read_state(self, request: ReadMirrorStateRequest) -> ReadMirrorStateResponse:
        key = MirrorId(request.link, request.topic_id, request.partition)
        return ReadMirrorStateResponse(state=state_data_of(await self._coordinator.read(key, request.leader_epoch)))

    async def write_state(self, request: WriteMirrorStateRequest) -> WriteMirrorStateResponse:
        key = MirrorId(request.link, request.topic_id, request.partition)
        await self._coordinator.write(key, stored_of(request.state))
        return WriteMirrorStateResponse()


def _with_secrets(link: StoredLink, before: StoredLink | None) -> StoredLink:
    """The link with its passwords: a client that changes a link sends back what it was shown."""
    if before is None:
        return link
    known = dict(before.client)
    client = tuple((name, known.get(name, value) if value == HIDDEN else value) for name, value in link.client)
    return StoredLink(
        link.name, link.bootstrap_servers, client, link.topics, link.topics_exclude, link.groups, link.groups_exclude,
        link.acls, link.settings, link.source_cluster_id, link.version,
    )  # fmt: skip
