"""A simulated cluster under faults, with an authorizer that gives nodes and clients no more rights than they need."""

from __future__ import annotations

import pytest

from barnabas.protocol.security.acls import AclResourceType
from barnabas.protocol.security.operations import AclOperation
from barnabas.server.broker.authorization.ports import Action, AuthorizedClient
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.testing.sim.cluster.storm import Storm
from barnabas.testing.sim.outcome import play
from barnabas.testing.sim.world import World

_NODE_RIGHTS = {
    (AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER),
    (AclOperation.CREATE, AclResourceType.CLUSTER),  # a broker creates the internal topics
    (AclOperation.ALTER, AclResourceType.CLUSTER),  # a new node asks controllers for the id of their cluster
}
_nodes: set[str] = set()
"""The names of the hosts of the nodes."""
_denied: set[tuple[str, str, str, str]] = set()
_checked: set[str] = set()


class LeastRights:
    """Nodes may do what nodes need; clients may do everything but what only nodes do."""

    def __init__(self, configs: object) -> None:
        self.keeps_acls = False

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None: ...

    def on_caught_up(self) -> None: ...

    def authorize(self, client: AuthorizedClient, action: Action) -> bool:
        is_node = client.host in _nodes
        _checked.add("node" if is_node else "client")
        right = (action.operation, action.resource_type)
        allowed = right in _NODE_RIGHTS if is_node else action.operation is not AclOperation.CLUSTER_ACTION
        if not allowed and action.log_if_denied:
            _denied.add(("node" if is_node else "client", client.api, action.operation.name, action.resource_name))
        return allowed

    def authorize_by_resource_type(
        self, client: AuthorizedClient, operation: AclOperation, resource_type: AclResourceType
    ) -> bool:
        return True


@pytest.mark.parametrize("seed", [101, pytest.param(255, marks=pytest.mark.system)])
def test_no_node_and_no_client_lacks_a_right(seed: int) -> None:
    _denied.clear()
    _checked.clear()
    world = World(seed)
    storm = Storm(world, 3.0, None)
    _nodes.clear()
    _nodes.update(storm.cluster.hosts)
    for node in storm.cluster.hosts.values():
        node.config["authorizer.class.name"] = f"{__name__}.LeastRights"
    assert play(world, storm).acknowledged > 0
    assert _checked == {"node", "client"}
    assert _denied == set()
