"""Programs of administrative clients.

The rules: a call that was interrupted can be repeated. If the interrupted call has had its effect already, the repeated
one may say so (TOPIC_ALREADY_EXISTS); no other error is raised. The state is then what a call without an interruption
leaves behind, and the client stays usable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from barnabas.client.errors import ClientClosedError
from barnabas.client.values import LATEST, ConfigChange, ConfigResource, OffsetAndMetadata
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.ids import TopicPartition
from tests.system.client.interrupted.attempts import Call, Interrupted
from tests.system.client.interrupted.world import PARTITIONS, RECORDS, World

CALLS: Final = 40
"""The number of calls of one program."""
STEPS_MAX: Final = 1_000
"""The number of questions after which a broker must know a change."""


class Administrator:
    """One program: an administrative client with a topic and a group of its own."""

    def __init__(self, world: World, admin: Any) -> None:
        self.world = world
        self.attempts = world.attempts
        self.rng = world.rng
        self.admin = admin
        self.name = world.new_name()
        """Of the topic and of the group."""
        self.partitions = 0
        """The number of partitions of the topic; 0 without a topic."""

    async def repeated(self, name: str, call: Call, *, done: ErrorCode | None = None) -> Any:
        """Make a call until it is not interrupted. An attempt after an interrupted one may fail with `done`."""
        was_interrupted = False
        while True:
            try:
                return await self.attempts.attempt(name, call)
            except Interrupted:
                was_interrupted = True
            except KafkaError as error:
                if not was_interrupted or error.code is not done:
                    raise
                return None

    async def change(self, name: str, call: Call, *, done: ErrorCode | None = None) -> None:
        """`repeated`, for a call that returns an error or None for each item, of which there is one."""

        def succeeds(results: dict[Any, Any]) -> None:
            for error in results.values():
                if isinstance(error, KafkaError):
                    raise error

        async def checked() -> None:
            succeeds(await call())

        await self.repeated(name, (lambda: succeeds(call())) if self.world.is_blocking else checked, done=done)

    # -- changes ---------------------------------------------------------------------------------------------------

    async def topic(self) -> None:
        """Create the topic, give it more partitions, or delete it."""
        admin, name = self.admin, self.name
        if not self.partitions:
            self.partitions = self.rng.randrange(1, 4)
            exists = ErrorCode.TOPIC_ALREADY_EXISTS
            await self.repeated("create_topic", lambda: admin.create_topic(name, self.partitions, 1), done=exists)
        elif self.partitions < 6 and self.rng.random() < 0.7:
            self.partitions += 1
            same = ErrorCode.INVALID_PARTITIONS
            await self.change("create_partitions", lambda: admin.create_partitions({name: self.partitions}), done=same)
        else:
            self.partitions = 0
            gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            await self.change("delete_topics", lambda: admin.delete_topics([name]), done=gone)
        for _ in range(STEPS_MAX):
            found = (await self.repeated("describe_topics", lambda: admin.describe_topics([name])))[name]
            count = 0 if isinstance(found, KafkaError) else found.partition_count
            if count == self.partitions:
                return
        raise AssertionError(f"{self.partitions} partitions are due, and there is {found}")

    async def config(self) -> None:
        resource, value = ConfigResource.group(self.name), str(self.rng.randrange(45_000, 60_000))
        changes = {resource: [ConfigChange("consumer.session.timeout.ms", value)]}
        await self.change("incremental_alter_configs", lambda: self.admin.incremental_alter_configs(changes))
        for _ in range(STEPS_MAX):  # the broker answers before it has read of a change that the controller has made
            found = await self.repeated("describe_configs", lambda: self.admin.describe_configs([resource]))
            if found[resource]["consumer.session.timeout.ms"].value == value:
                return
        raise AssertionError(f"{value} is due, and there is {found}")

    async def offsets(self) -> None:
        """Set the group's offsets, and delete one of them, or the group."""
        admin, group, partition = (
            self.admin,
            self.name,
            TopicPartition(self.world.topic, self.rng.randrange(PARTITIONS)),
        )
        offset = self.rng.randrange(RECORDS)
        await self.change("alter_group_offsets", lambda: admin.alter_group_offsets(group, {partition: offset}))
        found = await self.repeated("list_group_offsets", lambda: admin.list_group_offsets(group, [partition]))
        assert isinstance(found[partition], OffsetAndMetadata) and found[partition].offset == offset
        if self.rng.random() < 0.5:
            await self.change("delete_group_offsets", lambda: admin.delete_group_offsets(group, [partition]))
        else:
            gone = ErrorCode.GROUP_ID_NOT_FOUND
            await self.change("delete_groups", lambda: admin.delete_groups([group]), done=gone)

    async def fence(self) -> None:
        await self.repeated("fence_producer", lambda: self.admin.fence_producer(self.name))

    # -- questions -------------------------------------------------------------------------------------------------

    async def ask(self) -> None:
        admin, partitions = self.admin, self.world.partitions
        first = partitions[0]
        questions: list[tuple[str, Call, Callable[[Any], bool]]] = [
            ("list_topics", lambda: admin.list_topics(), lambda r: self.world.topic in {t.name for t in r}),
            ("describe_cluster", lambda: admin.describe_cluster(), lambda r: bool(r.brokers)),
            (
                "list_offsets",
                lambda: admin.list_offsets(dict.fromkeys(partitions, LATEST)),
                lambda r: [r[p].offset for p in partitions] == [RECORDS] * PARTITIONS,
            ),
            ("list_groups", lambda: admin.list_groups(), lambda r: isinstance(r, list)),
            ("describe_groups", lambda: admin.describe_groups([self.name]), lambda r: set(r) == {self.name}),
            ("describe_log_dirs", lambda: admin.describe_log_dirs(), bool),
            ("describe_producers", lambda: admin.describe_producers([first]), lambda r: set(r) == {first}),
            ("list_transactions", lambda: admin.list_transactions(), lambda r: isinstance(r, list)),
        ]
        name, call, holds = self.rng.choice(questions)
        result = await self.repeated(name, call)
        assert holds(result), f"{name}: {result}"


async def administer(world: World) -> None:
    """One program: calls of all kinds, and an end."""
    administrator = Administrator(world, await world.administrator())
    admin = administrator.admin
    calls = [
        administrator.topic,
        administrator.config,
        administrator.offsets,
        administrator.fence,
        administrator.ask,
        administrator.ask,
    ]
    for _ in range(CALLS):
        await world.rng.choice(calls)()
    if administrator.partitions:
        await world.attempts.plain(lambda: admin.delete_topics([administrator.name]))
    await world.attempts.tried("close", lambda: admin.close())
    await world.attempts.plain(lambda: admin.close())
    try:
        await world.attempts.plain(lambda: admin.describe_cluster())
    except ClientClosedError:
        return
    raise AssertionError("describe_cluster after close")
