"""A node with an authorizer whose ACLs a test sets between two requests. All requests come from User:ANONYMOUS."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any
from uuid import UUID

from barnabas.core.errors import ErrorCode
from barnabas.core.ids import NO_TOPIC_ID
from barnabas.protocol.security.acls import AclBinding, AclPermissionType, PatternType
from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.transport.node_client import NodeClient
from barnabas.protocol.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.protocol.wire.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.protocol.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.protocol.wire.schema import MessageStruct, Request, Response
from barnabas.server.broker.authorization.ports import Action, AuthorizedClient
from barnabas.server.broker.authorization.standard import StandardAuthorizer
from barnabas.testing import AsyncEmbeddedBroker
from tests.unit.server.broker.authorization.requests import GROUP, OTHER, RESOURCES, TOPIC, TRANSACTION

REFUSED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
TIMEOUT_MS = 30_000


class SettableAuthorizer(StandardAuthorizer):
    """An authorizer that takes its ACLs from a test, and whose permissions are remembered until the next ones."""

    _is_open = False
    grants = StandardAuthorizer.grants

    @property
    def is_open(self) -> bool:
        """Whether every client may do everything."""
        return self._is_open

    @is_open.setter
    def is_open(self, is_open: bool) -> None:
        self._is_open = is_open
        self._grants.forget()

    def authorize(self, client: AuthorizedClient, action: Action) -> bool:
        return self._is_open or super().authorize(client, action)

    def set_acls(self, *acls: AclBinding) -> None:
        self._grants.forget()
        self._acls.clear()
        for number, acl in enumerate(acls):
            self._acls.put(UUID(int=number + 1), acl)


def acl(right: str, *, deny: bool = False) -> AclBinding:
    """The ACL of a right that is written as in `requests.py`."""
    letter, _, operation = right.partition("=")[0].partition(":")
    kind, name = RESOURCES[letter]
    permission = AclPermissionType.DENY if deny else AclPermissionType.ALLOW
    return AclBinding(kind, name, PatternType.LITERAL, "User:ANONYMOUS", "*", AclOperation[operation], permission)


def error_codes(message: Any) -> set[ErrorCode]:
    """Every error code of a response, at any depth."""
    found: set[ErrorCode] = set()
    for field in message.__schema__.fields:
        value = getattr(message, field.name)
        if field.name.endswith("error_code"):
            found.add(ErrorCode(value))
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, MessageStruct):
                found |= error_codes(item)
    return found


async def wait_for_coordinators(send: Callable[[Request, int], Awaitable[Response]]) -> None:
    """Return when the coordinators of the group and of the transactional id of the requests are loaded."""
    loading = {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
    for request, version in (
        (FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 6),
        (FindCoordinatorRequest(key_type=1, coordinator_keys=[TRANSACTION]), 6),
        (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)]), 9),
        (DescribeTransactionsRequest(transactional_ids=[TRANSACTION]), 0),
    ):
        while error_codes(await send(request, version)) & loading:
            await asyncio.sleep(0.01)  # there is no event to wait for on the wire


class Cluster:
    """A running node, as a context manager."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._broker = AsyncEmbeddedBroker(
            {
                "authorizer.class.name": f"{__name__}.SettableAuthorizer",
                "controller.listener.names": "CONTROLLER",
                "auto.create.topics.enable": "true",
                "transaction.two.phase.commit.enable": "true",
            },
            listener="PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        )
        self._client = NodeClient("test", random.Random(1))
        self._tasks: list[asyncio.Task[None]] = []
        self.topic_id = NO_TOPIC_ID

    def __enter__(self) -> Cluster:
        self._runner.run(self._start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._runner.run(self._stop())
        self._runner.close()

    async def _start(self) -> None:
        await self._broker.start()
        self._tasks.append(asyncio.create_task(self._client.run()))
        await asyncio.sleep(0)  # the client starts
        assert self._broker.node is not None
        assert self._broker.node.parts is not None
        authorizer = self._broker.node.parts.authorizer
        assert isinstance(authorizer, SettableAuthorizer)
        self.authorizer = authorizer
        self.authorizer.is_open = True
        topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in (TOPIC, OTHER)]
        created = await self._send(CreateTopicsRequest(topics=topics), 7)
        assert isinstance(created, CreateTopicsResponse)
        self.topic_id = created.topics[0].topic_id
        await wait_for_coordinators(self._send)
        self.authorizer.is_open = False

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await self._broker.stop()

    def allow(self, *rights: str, deny: tuple[str, ...] = ()) -> None:
        """The client has exactly these rights; `deny` are DENY entries beside them."""
        self.authorizer.set_acls(*(acl(right) for right in rights), *(acl(right, deny=True) for right in deny))

    def acls_of(self, *rights: str, topic: str = TOPIC) -> list[AclBinding]:
        """The ACLs of rights in which T stands for the topic of this name."""
        found = [acl(right) for right in rights]
        return [
            entry._replace(resource_name=topic) if right[0] == "T" else entry
            for right, entry in zip(rights, found, strict=True)
        ]

    def prepare(self, request: Request, version: int) -> None:
        """Send a request that precedes the request of a test, with all rights."""
        self.authorizer.is_open = True
        self.send(request, version)
        self.authorizer.is_open = False

    def send(self, request: Request, version: int, *, to_controller: bool = False) -> Any:
        """The response to a request. Raises KafkaError if the connection is closed."""
        return self._runner.run(self._send(request, version, to_controller=to_controller))

    async def _send(self, request: Request, version: int, *, to_controller: bool = False) -> Response:
        node = self._broker.node
        assert node is not None
        if to_controller:
            endpoint = node.config.controller_advertised[0]
            port = endpoint.port
            if not port:
                assert node.parts is not None
                port = node.parts.image.brokers.controllers[node.parts.node_id].endpoints[0].port
        else:
            port = node.endpoints[0].port
        purpose = "controller" if to_controller else ""
        return await self._client.send(
            "127.0.0.1", port, request, timeout_ms=TIMEOUT_MS, purpose=purpose, version_max=version
        )
