"""Shell: reads the cluster id and the node id from `meta.properties`, before any log directory is opened.

The ids in a directory that Apache Kafka formatted are taken over. A new node that is a whole cluster gets a random
cluster id here; there is no format step.
"""

from __future__ import annotations

from msgspec import Struct

from barnabas.core.errors import BarnabasError
from barnabas.core.ids import uuid_to_text
from barnabas.core.properties import parse_properties
from barnabas.core.rng import Rng, random_uuid
from barnabas.server.node.config import DEFAULT_NODE_ID, NodeConfig
from barnabas.server.storage.errors import StorageError
from barnabas.server.storage.fs import FileSystem, read_file
from barnabas.server.storage.names import META_PROPERTIES


class IdentityError(BarnabasError):
    """The data directories contradict each other or the configuration."""


class Identity(Struct, frozen=True):
    """The ids of this node and its cluster."""

    cluster_id: str
    """Empty for a new node of a cluster with several nodes; `cluster_id.py` finds the id later."""
    node_id: int
    is_new: bool


def find_identity(fs: FileSystem, config: NodeConfig, rng: Rng, cluster_id: str | None = None) -> Identity:
    """Return the ids of this node.

    Raises IdentityError if the directories or the configuration contradict each other, and StorageError if a directory
    cannot be read and no other directory has the ids.
    """
    found: dict[str, dict[str, str]] = {}
    unreadable: StorageError | None = None
    for directory in config.log_dirs:
        path = f"{directory}/{META_PROPERTIES}"
        try:
            if fs.exists(path):
                found[path] = parse_properties(read_file(fs, path).decode("utf-8", "replace"))
        except StorageError as error:
            unreadable = error
    if unreadable is not None and not found:
        raise unreadable
    known_cluster = _agree(found, "cluster.id")
    known_node = _agree(found, "node.id") or _agree(found, "broker.id")
    if cluster_id is not None and known_cluster not in (None, cluster_id):
        raise IdentityError(
            f"{', '.join(found)} belongs to cluster {known_cluster}, not to {cluster_id}: "
            "use another data directory, or omit the cluster id."
        )
    node_id = config.node_id
    if known_node is not None:
        if node_id is not None and node_id != int(known_node):
            raise IdentityError(
                f"{', '.join(found)} belongs to node {known_node}, but node.id is {node_id}: "
                f"set node.id={known_node}, or use another data directory."
            )
        node_id = int(known_node)
    cluster = known_cluster or cluster_id
    if not cluster and config.topology.decides_alone:
        cluster = new_cluster_id(rng)
    return Identity(cluster or "", DEFAULT_NODE_ID if node_id is None else node_id, is_new=not found)


def new_cluster_id(rng: Rng) -> str:
    """A random UUID in Kafka's text form of 22 characters."""
    return uuid_to_text(random_uuid(rng))


def _agree(found: dict[str, dict[str, str]], name: str) -> str | None:
    values = {path: properties[name] for path, properties in found.items() if properties.get(name)}
    if len(set(values.values())) > 1:
        found_ids = ", ".join(f"{value} in {path}" for path, value in values.items())
        raise IdentityError(f"The data directories have different values of {name}: {found_ids}. Correct log.dirs.")
    return next(iter(values.values()), None)
