"""Shell: the links that this broker coordinates. Each has a worker, which follows the source.

    the coordinator's partition is loaded ──► a worker for each of its links
                                                 ├─ rounds, every mirror.metadata.refresh.interval.ms
                                                 └─ topics become writable, when the state of a mirror was stored

A worker of a former coordinator may still be in a round. Its changes are those that the new one makes, too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from barnabas.core.config import ConfigError
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicId
from barnabas.core.telemetry import get_logger
from barnabas.protocol.wire.messages.alter_mirrors import AlteredMirror, AlterMirrorsRequest, AlterMirrorsResponse
from barnabas.server.links.changes import NAME, STATE, LocalMirrors
from barnabas.server.links.coordination.mirror_commands import (
    ACTIVE,
    MirrorCommand,
    MirrorOperation,
    plan_change,
    plan_start,
)
from barnabas.server.links.coordination.service import LinkCoordinator
from barnabas.server.links.coordination.values import StoredLink
from barnabas.server.links.fetching.ports import OpenSource, SourceCluster
from barnabas.server.links.fetching.states import MirrorState
from barnabas.server.links.fetching.values import LinkDefinition
from barnabas.server.links.forms import definition_of
from barnabas.server.links.group_offsets import PeerRequests
from barnabas.server.links.references import Resolve
from barnabas.server.links.rounds import LinkRounds
from barnabas.server.links.source_reading import SourceMetadata, read_metadata
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.metadata.image.small import ResourceType

log = get_logger("barnabas.server.links")

_CHECK_INTERVAL_S: Final = 1.0
"""How often the links of newly loaded partitions of `__mirror_state` are looked up."""
_CHECK_TIMEOUT_S: Final = 20.0
_PAUSE_WAIT_S: Final = 10.0
"""How long `recover` waits for a mirror to be paused before it is resumed."""
_PAUSE_CHECK_S: Final = 0.05
_REPEAT_S: Final = 5.0
"""The pause before the work of a link is repeated after an unexpected error."""


class SourceOpening:
    """Opens the sources of links, with the secrets to which their definitions refer."""

    def __init__(self, resolve: Resolve, open_source: OpenSource) -> None:
        self.resolve = resolve
        self._open_source = open_source

    def check(self, definition: LinkDefinition) -> None:
        """Raises ConfigError for a definition with which no source can be opened."""
        self._open_source(self.resolve(definition))

    def is_current(self, definition: LinkDefinition, resolved: LinkDefinition) -> bool:
        """Whether the secrets are still those in `resolved`. True if they cannot be read now."""
        try:
            return self.resolve(definition) == resolved
        except ConfigError:
            return True

    @contextlib.asynccontextmanager
    async def opened(self, resolved: LinkDefinition) -> AsyncIterator[SourceCluster]:
        """The source of a link, with connections of this block. Raises ConfigError."""
        source = self._open_source(resolved)
        connections = asyncio.ensure_future(source.run())
        try:
            await asyncio.sleep(0)  # connections can be opened after the first step of `run`
            yield source
        finally:
            connections.cancel()
            await asyncio.gather(connections, return_exceptions=True)


class LinkWorkers:
    """The workers of all links that this broker coordinates."""

    def __init__(
        self,
        coordinator: LinkCoordinator,
        mirrors: LocalMirrors,
        peers: PeerRequests,
        sources: SourceOpening,
        on_definition_changed: Callable[[str], Coroutine[Any, Any, None]],
    ) -> None:
        self._coordinator = coordinator
        self._mirrors = mirrors
        self._peers = peers
        self._sources = sources
        self._on_definition_changed = on_definition_changed
        self._rounds: dict[str, LinkRounds] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()

    def on_changed(self, link: str) -> None:
        """What the coordinator has stored about a link has changed."""
        self._changed.set()
        rounds = self._rounds.get(link)
        if rounds is not None:
            rounds.wake()

    def on_image(self, delta: ClusterDelta) -> None:
        """A coordinator may learn that a topic is to be stopped after it has stored that its partitions are."""
        if any(resource.type == ResourceType.TOPIC for resource in delta.configs.changed):
            for rounds in self._rounds.values():
                rounds.wake()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._settle(group)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_CHECK_INTERVAL_S):
                        await self._changed.wait()
                self._changed.clear()

    def _settle(self, group: asyncio.TaskGroup) -> None:
        """A worker for each link that this broker coordinates in its newest definition, and no other."""
        wanted = {link.name: link for link in self._coordinator.links()}
        for name, rounds in list(self._rounds.items()):
            if wanted.get(name) != rounds.link:
                self._tasks.pop(name).cancel()
                del self._rounds[name]
                group.create_task(self._on_definition_changed(name), name=f"announce link {name}")
        for name, link in wanted.items():
            if name not in self._rounds:
                rounds = self._rounds[name] = LinkRounds(link, self._coordinator, self._mirrors, self._peers)
                self._tasks[name] = group.create_task(self._serve(rounds), name=f"link {name}")

    async def _serve(self, rounds: LinkRounds) -> None:
        """Run a worker."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat(rounds, rounds.make_writable))
            tasks.create_task(self._repeat(rounds, partial(self._follow, rounds)))

    async def _follow(self, rounds: LinkRounds) -> None:
        """Follow the source, over new connections when a secret has changed to which the link refers."""
        while True:
            definition = self._sources.resolve(definition_of(rounds.link))
            async with self._sources.opened(definition) as source:
                await rounds.run(source, partial(self._sources.is_current, definition_of(rounds.link), definition))

    async def _repeat(self, rounds: LinkRounds, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work of a link until cancelled, again after each error."""
        while True:
            try:
                await work()
            except (KafkaError, ConfigError) as error:
                rounds.trouble = str(error)
                log.warning("a link does not work", link=rounds.link.name, reason=str(error))
            except Exception as error:  # a defect in one link must not stop the others, nor the broker
                rounds.trouble = f"{type(error).__name__}: {error}"
                log.exception("a link does not work", link=rounds.link.name, error=error)
            await asyncio.sleep(_REPEAT_S)

    # -- questions -----------------------------------------------------------------------------------------------

    def trouble(self, link: str) -> str:
        """Why the last round of the link did not do all; empty if it did."""
        rounds = self._rounds.get(link)
        return "" if rounds is None else rounds.trouble

    def troubles(self) -> dict[str, str]:
        """`trouble` of each link that this broker coordinates."""
        return {name: rounds.trouble for name, rounds in self._rounds.items()}

    def mirrors_of(self, link: str) -> list[str]:
        """The topics that are mirrors of the link."""
        return [topic.name for topic in self._mirrors.linked_topics() if topic.link == link and topic.is_mirror]

    def has_topic(self, topic_id: TopicId) -> bool:
        return self._mirrors.has_topic(topic_id)

    # -- requests ------------------------------------------------------------------------------------------------

    async def release_topics(self, link: str) -> None:
        """Make the stopped mirrors of a link that is being deleted ordinary topics: another link of the same name must
        not find topics that it never had. An interrupted deletion is repeated. Raises KafkaError."""
        for topic in self._mirrors.linked_topics():
            if topic.link == link:
                await self._mirrors.configure(topic.name, {NAME: None, STATE: None})

    async def identified(self, link: StoredLink) -> StoredLink:
        """The link with the id of its source cluster. Raises KafkaError if the source does not answer, or if it is this
        cluster."""
        cluster_id = (await self._read_source(link, with_topics=False)).cluster_id
        if cluster_id is not None and cluster_id == self._mirrors.cluster_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The bootstrap servers are those of this cluster itself.")
        return replace(link, source_cluster_id=cluster_id)

    async def alter_mirrors(self, link: StoredLink, request: AlterMirrorsRequest) -> AlterMirrorsResponse:
        """Carry out a command on mirror topics of a link that this broker coordinates. Raises KafkaError."""
        if request.operation not in list(MirrorOperation):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Operation {request.operation} is unknown: 0 starts, 1 pauses, 2 resumes, 3 stops, 4 recovers.",
            )
        operation = MirrorOperation(request.operation)
        local = {topic.name: topic for topic in self._mirrors.topics()}
        if operation is MirrorOperation.START:
            found = (await self._read_source(link, with_topics=True)).topics
            commands = plan_start(link, request.topics or link.topics, found, local)
        else:
            commands = plan_change(link, operation, request.topics or [".*"], local.values())
        if not request.validate_only:
            commands = await self._mirrors.carry_out(link.name, commands)
            if operation is MirrorOperation.RECOVER:
                await self._resume_paused(link, commands)
        return AlterMirrorsResponse(topics=[_answer(command) for command in commands])

    async def _read_source(self, link: StoredLink, *, with_topics: bool) -> SourceMetadata:
        """Raises KafkaError, with the address of the source in the message."""
        try:
            definition = self._sources.resolve(definition_of(link))
            async with asyncio.timeout(_CHECK_TIMEOUT_S), self._sources.opened(definition) as source:
                return await read_metadata(source, with_topics=with_topics)
        except TimeoutError:
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT, f"The source at {link.bootstrap_servers} has not answered in time."
            ) from None
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        except KafkaError as error:
            raise KafkaError(
                error.code, f"The source at {link.bootstrap_servers} cannot be reached from the brokers: {error}"
            ) from error

    async def _resume_paused(self, link: StoredLink, commands: list[MirrorCommand]) -> None:
        """The second half of `recover`: resume the mirrors when they are paused, which clears the failure."""
        paused = [command for command in commands if command.error is None]
        names = {command.topic for command in paused}
        deadline = asyncio.get_running_loop().time() + _PAUSE_WAIT_S
        while asyncio.get_running_loop().time() < deadline:
            ids = {topic.topic_id for topic in self._mirrors.linked_topics() if topic.name in names}
            states = self._coordinator.states(link.name)
            if all(stored.state == MirrorState.PAUSED for key, stored in states.items() if key.topic_id in ids):
                break
            await asyncio.sleep(_PAUSE_CHECK_S)
        await self._mirrors.carry_out(link.name, [replace(command, mode=ACTIVE) for command in paused])


def _answer(command: MirrorCommand) -> AlteredMirror:
    error = command.error
    return AlteredMirror(
        topic=command.topic,
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else str(error),
        state="new" if command.create is not None else command.mode or "unchanged",
        partitions=command.partitions,
    )
