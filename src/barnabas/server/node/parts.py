"""Value: the objects from which the roles of a node are built. A process has one of each."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING

from msgspec import Struct, field

from barnabas.core.clock import Clock
from barnabas.core.objects.ports import ObjectStore
from barnabas.core.rng import Rng
from barnabas.core.telemetry import Metrics, get_logger
from barnabas.core.telemetry.loop_watch import LoopWatch
from barnabas.protocol.security.principal_builder import PrincipalBuilder
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.protocol.transport.node_client import NodeClient
from barnabas.server.broker.authorization.ports import Authorizer
from barnabas.server.metadata.config_view import ConfigView
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.publish import Publisher
from barnabas.server.node.config import NodeConfig
from barnabas.server.node.setup.identity import Identity
from barnabas.server.node.setup.security import BuiltSecurity, NodeSecurity
from barnabas.server.quorum.metadata_log import RaftMetadataLog
from barnabas.server.storage.config import LogConfig
from barnabas.server.storage.descriptors import DescriptorShares
from barnabas.server.storage.directory.log_dir import LogDir
from barnabas.server.storage.fs import FileSystem

if TYPE_CHECKING:
    from barnabas.server.quorum.zookeeper.metadata_log import ZooKeeperMetadataLog

log = get_logger("barnabas.server.broker")


class Parts(Struct):
    """The identity of this node, its resources, and its copy of the cluster's metadata."""

    config: NodeConfig
    identity: Identity
    fs: FileSystem
    clock: Clock
    rng: Rng
    nonces: Rng
    """The source of nonces and salts; unpredictable, but in a simulation."""
    metrics: Metrics
    watch: LoopWatch
    disk: Executor
    """Executes fsync, and reads that miss the page cache."""
    codecs: Executor
    """Encodes long responses, one at a time."""
    cleaners: Executor
    dirs: list[LogDir]
    missing_dirs: list[str]
    """Paths of log.dirs that could not be opened."""
    outgoing: NodeClient
    """Connects to controllers."""
    to_brokers: NodeClient
    """Connects to other brokers: `outgoing`, unless the listeners of brokers have other security settings."""
    security: NodeSecurity
    metadata: RaftMetadataLog | ZooKeeperMetadataLog
    publisher: Publisher
    descriptors: DescriptorShares
    """How the file descriptors of the process are divided."""
    listen_at: Callable[[ListenerEndpoint], socket.socket]
    build_security: Callable[[NodeConfig, ListenerEndpoint], BuiltSecurity]
    """The security of a listener that is opened while the node runs. Raises ConfigError."""
    objects: ObjectStore | None = None
    """Replaces the object store of the configs, in a simulation."""
    authorizer: Authorizer | None = None
    principals: PrincipalBuilder | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set to stop the node."""

    @property
    def node_id(self) -> int:
        return self.identity.node_id

    @property
    def image(self) -> ClusterImage:
        """The newest committed image."""
        return self.publisher.image

    def config_view(self, image: ClusterImage) -> ConfigView:
        """The configs in effect on this node, according to `image`."""
        return ConfigView(image.configs, node_id=self.node_id, static=self.config.given)

    def log_config(self, image: ClusterImage, topic: str) -> LogConfig:
        """The config of each log of `topic`, according to `image`."""
        from barnabas.server.node.typed_configs import build_log_config

        view = self.config_view(image)
        for name, (text, used) in view.replaced_topic_values(topic).items():
            log.warning(
                "a config of a topic is not valid in this version: another value is used",
                topic=topic,
                config=name,
                value=text,
                used=used,
            )
        return build_log_config(view, topic)
