"""Shell: keeps topics, configs and ACLs of the target cluster as those of the source cluster are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.client.admin import AsyncAdmin
from barnabas.client.values import ConfigEntry, ConfigResource
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.telemetry import get_logger
from barnabas.protocol.security.acls import AclBindingFilter, AclResourceType
from barnabas.spark.mirror.config.values import PairConfig
from barnabas.spark.mirror.deciding.topic_acls import missing_acls
from barnabas.spark.mirror.deciding.topic_configs import config_changes, creation_configs
from barnabas.spark.mirror.deciding.topics import SeenTopic, TopicChanges, new_topic, plan_topics
from barnabas.spark.mirror.running.clusters import PairClients

log = get_logger("barnabas.mirror")


class Administration:
    """The administrative jobs of one pair."""

    def __init__(self, config: PairConfig, clients: PairClients) -> None:
        self._config = config
        self._clients = clients
        self._copies: Mapping[str, str] = {}
        self._has_acls = True

    async def refresh_topics(self) -> tuple[TopicChanges, dict[str, SeenTopic]]:
        """Create the copies that are missing and grow those that have too few partitions. Returns what is copied, and
        the source topics. Raises KafkaError."""
        selection = self._config.selection
        names = [topic.name for topic in await self._clients.source.admin.list_topics(include_internal=False)]
        source = await see_topics(self._clients.source.admin, [name for name in names if selection.selects(name)])
        copies = [selection.target_of(name) for name in source]
        target = await see_topics(self._clients.target.admin, copies)
        changes = plan_topics(selection, source, target)
        await self._create(changes, source)
        await self._grow(changes.to_grow)
        self._copies = changes.copies
        return changes, source

    async def _create(self, changes: TopicChanges, source: Mapping[str, SeenTopic]) -> None:
        if not changes.to_create:
            return
        configs = await _configs(self._clients.source.admin, changes.to_create)
        brokers = await self._clients.target.broker_count()
        topics = [
            new_topic(
                source[name],
                changes.copies[name],
                creation_configs(
                    configs.get(name, {}).values(),
                    self._config.configs,
                    use_source_defaults=self._config.use_source_defaults,
                ),
                self._config.replication.topics,
                brokers,
            )
            for name in changes.to_create
        ]
        found = await self._clients.target.admin.create_topics(topics)
        for copy, outcome in found.items():
            if not isinstance(outcome, KafkaError):
                log.info("created a topic", pair=self._config.name, topic=copy)
            elif outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise KafkaError(
                    outcome.code, f"the topic {copy} cannot be created in {self._config.target}: {outcome}"
                )

    async def _grow(self, totals: Mapping[str, int]) -> None:
        if not totals:
            return
        for copy, error in (await self._clients.target.admin.create_partitions(totals)).items():
            if error is None:
                log.info("added partitions", pair=self._config.name, topic=copy, partitions=totals[copy])
            elif error.code is not ErrorCode.INVALID_PARTITIONS:  # another mirror has added them
                raise KafkaError(error.code, f"{copy} of {self._config.target} cannot get more partitions: {error}")

    async def sync_configs(self) -> None:
        """Raises KafkaError."""
        if not self._copies:
            return
        source = await _configs(self._clients.source.admin, self._copies)
        target = await _configs(self._clients.target.admin, self._copies.values())
        changes = {
            ConfigResource.topic(copy): found
            for name, copy in self._copies.items()
            if name in source
            and copy in target
            and (
                found := config_changes(
                    source[name].values(),
                    target[copy],
                    self._config.configs,
                    use_source_defaults=self._config.use_source_defaults,
                )
            )
        }
        if not changes:
            return
        outcomes = await self._clients.target.admin.incremental_alter_configs(changes)
        refused = {resource.name: error for resource, error in outcomes.items() if error is not None}
        log.info("changed configs", pair=self._config.name, topics=len(outcomes) - len(refused))
        for copy, error in refused.items():
            raise KafkaError(error.code, f"the configs of {copy} in {self._config.target} cannot be changed: {error}")

    async def sync_acls(self) -> None:
        """Raises KafkaError. Does nothing if one of the clusters has no authorizer."""
        if not self._has_acls:
            return
        every_topic = AclBindingFilter(AclResourceType.TOPIC)
        try:
            source = await self._clients.source.admin.describe_acls(every_topic)
            target = await self._clients.target.admin.describe_acls(every_topic)
        except KafkaError as error:
            if error.code is not ErrorCode.SECURITY_DISABLED:
                raise
            self._has_acls = False
            log.info("a cluster has no authorizer, so that no ACLs are copied", pair=self._config.name)
            return
        missing = missing_acls(source, target, self._config.selection)
        outcomes = await self._clients.target.admin.create_acls(missing)
        for acl, refused in outcomes.items():
            if refused is not None:
                raise KafkaError(refused.code, f"the ACL of {acl.resource_name} cannot be created: {refused}")
        if missing:
            log.info("created ACLs", pair=self._config.name, acls=len(missing))


async def see_topics(admin: AsyncAdmin, names: Iterable[str]) -> dict[str, SeenTopic]:
    """The topics of these names that exist. Raises KafkaError."""
    wanted = sorted(set(names))
    found = await admin.describe_topics(wanted) if wanted else {}
    seen = {}
    for name, topic in found.items():
        if not isinstance(topic, KafkaError):
            seen[name] = SeenTopic(name, topic.partition_count, topic.topic_id)
        elif topic.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise topic
    return seen


async def _configs(admin: AsyncAdmin, topics: Iterable[str]) -> dict[str, dict[str, ConfigEntry]]:
    """The configs of topics; a topic that was deleted meanwhile is left out. Raises KafkaError."""
    found = await admin.describe_configs([ConfigResource.topic(name) for name in topics])
    configs = {}
    for resource, entries in found.items():
        if isinstance(entries, dict):
            configs[resource.name] = entries
        elif entries.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise entries
    return configs
