"""Port: the authorizer, which decides whether a client may do an operation on a resource.

`StandardAuthorizer` decides by the ACLs of the cluster. A class of a user is named by `authorizer.class.name`, as
`package.module.Class` or `package.module:Class`, and must have the methods of `Authorizer`. Its constructor gets the
configs of the node as a mapping of texts. A class that extends `StandardAuthorizer` keeps the ACLs of the cluster, and
may allow or deny more than they do. It is asked about each request, unless it has the attribute `grants` (`grants.py`).
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from barnabas.protocol.security.acls import AclResourceType
from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.security.principals import KafkaPrincipal
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.metadata.ports import ImageView

NO_AUTHORIZER: Final = (
    "No Authorizer is configured on the broker. Set authorizer.class.name="
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer on every broker and controller."
)


class AuthorizedClient(NamedTuple):
    """The client whose request is authorized, and the name of the API."""

    principal: KafkaPrincipal
    host: str
    api: str


class Action(NamedTuple):
    """An operation on one resource, to which the request refers `ref_count` times. The flags say whether the
    decision is written to the audit log; a check that only filters a list is not."""

    operation: AclOperation
    resource_type: AclResourceType
    resource_name: str
    ref_count: int = 1
    log_if_allowed: bool = True
    log_if_denied: bool = True


class Authorizer(Protocol):
    """Decides whether clients may do operations. The methods are called on the event loop and must not block."""

    @property
    def keeps_acls(self) -> bool:
        """Whether the authorizer decides by the ACLs in the metadata of the cluster, so that CreateAcls, DeleteAcls and
        DescribeAcls are served."""
        ...

    def authorize(self, client: AuthorizedClient, action: Action) -> bool:
        """Whether `client` may do `action`. May raise KafkaError, which answers the request."""
        ...

    def authorize_by_resource_type(
        self, client: AuthorizedClient, operation: AclOperation, resource_type: AclResourceType
    ) -> bool:
        """Whether `client` may do the operation on at least one resource of the type."""
        ...

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        """The metadata of the cluster, and so possibly its ACLs, have changed."""
        ...

    def on_caught_up(self) -> None:
        """The image contains all metadata that was committed when the node started."""
        ...


def keeps_acls(authorizer: Authorizer | None) -> bool:
    return authorizer is not None and authorizer.keeps_acls


class GuardPort(Protocol):
    """What guards read besides the rights of the client. The port of each folder of handlers has it."""

    @property
    def metadata(self) -> ImageView: ...
