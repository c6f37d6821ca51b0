"""Shell: connects a starting node to the cluster whose metadata log is in ZooKeeper."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from barnabas.core.clock import Clock
from barnabas.core.rng import Rng
from barnabas.protocol.transport.endpoint import ListenerEndpoint
from barnabas.server.node.config import NodeConfig
from barnabas.server.node.setup.identity import Identity, IdentityError, new_cluster_id
from barnabas.server.quorum.zookeeper.config import read_zookeeper_config
from barnabas.server.quorum.zookeeper.metadata_log import NodeInfo, ZooKeeperMetadataLog


async def join(
    config: NodeConfig, identity: Identity, clients: Sequence[ListenerEndpoint],
    controllers: Sequence[ListenerEndpoint], clock: Clock, rng: Rng,
) -> tuple[ZooKeeperMetadataLog, Identity]:  # fmt: skip
    """Return the connected log, and `identity` with the cluster id from ZooKeeper.

    If ZooKeeper has no cluster id yet, this node's is written. `clients` and `controllers` are the advertised
    listeners. Raises ConfigError, ZooKeeperError, and IdentityError for a data directory of another cluster.
    """
    controller = controllers[0] if controllers else None
    me = NodeInfo(
        identity.node_id,
        tuple(clients or controllers),
        (controller.host, controller.port) if controller is not None else ("", -1),
        rack=config["broker.rack"],
        eligible=config.topology.is_controller,
    )
    log = ZooKeeperMetadataLog(read_zookeeper_config(config.values), me, clock)
    proposed = identity.cluster_id or new_cluster_id(rng) if identity.is_new else ""
    cluster_id = await log.connect(proposed)
    if identity.cluster_id not in ("", cluster_id):
        log.close(clean=False)
        found = f"cluster {cluster_id}" if cluster_id else "no cluster"
        raise IdentityError(
            f"The data directories {', '.join(config.log_dirs)} belong to cluster {identity.cluster_id}, but "
            f"ZooKeeper ({config['zookeeper.connect']}) has {found}. Use other data directories, or the path of this "
            "cluster in ZooKeeper: zookeeper.connect=host:port/name"
        )
    return log, replace(identity, cluster_id=cluster_id)
