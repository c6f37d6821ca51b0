"""Port: what a Connect worker needs: something that runs connectors, and the topic with their statuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from barnabas.spark.connectors.connect.cluster.records import StatusRecord
from barnabas.spark.connectors.connect.cluster.values import ConnectorConfig, ConnectorKind, ConnectorState


class ConnectPlugin(Struct, frozen=True):
    """A class that a configuration can name: a connector, a converter, a transform or a predicate.

    `kind` has Connect's words: source, sink, converter, header_converter, transformation, predicate.
    """

    class_name: str
    kind: str
    version: str


class ConfigDefinition(Struct, frozen=True):
    """One key of a plugin's configuration, with the fields of Connect's `ConfigKeyInfo`."""

    name: str
    type: str = "STRING"
    required: bool = False
    default_value: str | None = None
    importance: str = "MEDIUM"
    documentation: str = ""
    group: str = ""
    order_in_group: int = -1
    width: str = "NONE"
    display_name: str = ""
    dependents: tuple[str, ...] = ()


class ConfigFinding(Struct, frozen=True):
    """What the validation of a configuration says about one key. A key without a definition has an unknown name."""

    name: str
    definition: ConfigDefinition | None = None
    value: str | None = None
    errors: tuple[str, ...] = ()
    recommended_values: tuple[str, ...] = ()


class TaskReport(Struct, frozen=True):
    """The state of one task of a running connector: RUNNING, or FAILED with the text of the error."""

    state: ConnectorState
    trace: str | None = None


class ConnectorReport(Struct, frozen=True):
    """What the runtime knows about a connector that it runs."""

    tasks: tuple[TaskReport, ...]
    topics: tuple[str, ...] = ()
    """The topics that the connector has read or written so far."""


class ConnectorPlaces(Struct, frozen=True):
    """The directories of a connector, on storage that all workers share; the runtime creates them.

    `checkpoint` is the checkpoint of its query, or has a directory for each of several queries. A source that has to
    copy what it reads has the copies in `staging`.
    """

    checkpoint: str
    staging: str


class ConnectorJob(Struct, frozen=True):
    """A connector to run."""

    name: str
    config: ConnectorConfig
    places: ConnectorPlaces


class StartedConnector(Struct, frozen=True):
    """A connector that runs: the configuration of each of its tasks, and the version of the plugin."""

    tasks: tuple[ConnectorConfig, ...]
    version: str | None = None


class ConnectorRuntime(Protocol):
    """Runs connectors in this process. Methods that take long must not block the event loop."""

    def plugins(self) -> Sequence[ConnectPlugin]:
        """The plugins that a configuration can name."""

    def kind(self, config: ConnectorConfig) -> ConnectorKind:
        """Whether this is the configuration of a source or of a sink."""

    def definitions(self, plugin: str) -> Sequence[ConfigDefinition]:
        """The keys of a plugin. Raises LookupError for an unknown plugin."""

    async def validate(self, config: ConnectorConfig) -> Sequence[ConfigFinding]:
        """Check a configuration without connecting to any system. Raises LookupError for an unknown plugin."""

    async def start(self, job: ConnectorJob) -> StartedConnector:
        """Start a connector. Raises an exception whose text says what to do."""

    async def stop(self, name: str) -> None:
        """Stop a connector, and return when nothing of it runs. Does nothing if the connector does not run."""

    async def report(self, name: str) -> ConnectorReport | None:
        """The state of a connector; None if it does not run."""

    async def close(self) -> None:
        """Stop everything."""


class StatusLog(Protocol):
    """The storage of statuses, which all workers read and write."""

    async def catch_up(self, apply: Callable[[StatusRecord], None]) -> None:
        """Apply the records that were written since the last call."""

    async def append(self, records: Sequence[StatusRecord]) -> None:
        """Append the records."""


class OffsetStore(Protocol):
    """The offsets of connectors, in their checkpoints."""

    async def places(self, name: str) -> ConnectorPlaces:
        """The directories of a connector, which need not exist."""

    async def read(self, name: str, config: ConnectorConfig) -> list[dict[str, Any]]:
        """The committed offsets: `{"partition": {...}, "offset": {...}}`."""

    async def alter(
        self, name: str, config: ConnectorConfig, offsets: Sequence[tuple[Mapping[str, Any], Mapping[str, Any] | None]]
    ) -> None:
        """Change offsets of a connector that no worker runs; None resets a partition. Raises ConnectRequestError."""

    async def reset(self, name: str) -> None:
        """Let the connector begin anew."""
