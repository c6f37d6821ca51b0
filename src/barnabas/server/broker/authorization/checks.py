"""Machine: the checks of one request: what its client may do, by the authorizer of the node."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from barnabas.core.errors import ErrorCode
from barnabas.core.telemetry.log import AUDIT_LOGGER
from barnabas.core.work import Pauses
from barnabas.protocol.security.acls import CLUSTER_NAME, AclResourceType
from barnabas.protocol.security.operations import (
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    NOT_ASKED,
    TOPIC_OPERATIONS,
    AclOperation,
)
from barnabas.protocol.wire.apis import APIS, ApiKey
from barnabas.server.broker.authorization.grants import Grants, operation_on
from barnabas.server.broker.authorization.ports import Action, AuthorizedClient, Authorizer
from barnabas.server.broker.request_context import RequestContext

TOPIC: Final = AclResourceType.TOPIC
GROUP: Final = AclResourceType.GROUP
CLUSTER: Final = AclResourceType.CLUSTER
TRANSACTIONAL_ID: Final = AclResourceType.TRANSACTIONAL_ID
DELEGATION_TOKEN: Final = AclResourceType.DELEGATION_TOKEN
USER: Final = AclResourceType.USER

REFUSALS: Final[Mapping[AclResourceType, ErrorCode]] = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""The error code of an operation that the authorizer denies, by the type of the resource."""

MANY: Final = 500
"""More names are checked with pauses."""
CHECKS_PER_TURN: Final = 500
"""The number of checks after which the loop is given back, about 2 ms."""
DENIALS_LOGGED: Final = 1_000
"""So many denials of one request are entries of the audit log. An entry takes about 40 microseconds, and a request of
2 MB can name 100,000 resources."""

audit_log = logging.getLogger(AUDIT_LOGGER)
_API_NAMES: Final[Mapping[int, str]] = {int(key): APIS[key].name for key in ApiKey}

_SUPPORTED: Final[Mapping[AclResourceType, int]] = {
    TOPIC: TOPIC_OPERATIONS,
    GROUP: GROUP_OPERATIONS,
    CLUSTER: CLUSTER_OPERATIONS,
}


class ClientRights:
    """What the client of one request may do."""

    __slots__ = ("_api_key", "_authorizer", "_denials", "_grants", "_peer", "version")

    def __init__(self, authorizer: Authorizer, grants: Grants | None, ctx: RequestContext) -> None:
        """`grants` are those of the authorizer; None if it is asked each time."""
        self._authorizer = authorizer
        self._grants = grants
        self._peer = ctx.client
        self._api_key = ctx.api_key
        self._denials = 0
        """The denials that are entries of the audit log."""
        self.version = ctx.api_version

    @property
    def _client(self) -> AuthorizedClient:
        return AuthorizedClient(self._peer.principal, self._peer.host, _API_NAMES[self._api_key])

    def allows(
        self,
        operation: AclOperation,
        resource_type: AclResourceType,
        name: str = CLUSTER_NAME,
        *,
        ref_count: int = 1,
        silent: bool = False,
    ) -> bool:
        """Whether the client may do the operation. With `silent` a denial is not written to the audit log, because
        another right may allow the request, or because the check filters a list. After DENIALS_LOGGED denials, one
        entry of the audit log says that the request has more of them."""
        grants = self._grants
        if grants is None:
            return self._decide(operation, resource_type, name, ref_count, silent)
        grant = (operation_on(operation, resource_type), name, self._peer.principal, self._peer.host)
        if grant in grants.known and not grants.is_audited():
            grants.hits += 1
            return True
        allowed = self._decide(operation, resource_type, name, ref_count, silent)
        if allowed:
            grants.remember(grant)
        return allowed

    def _decide(
        self, operation: AclOperation, resource_type: AclResourceType, name: str, ref_count: int, silent: bool
    ) -> bool:
        is_logged = not silent and self._denials < DENIALS_LOGGED
        action = Action(operation, resource_type, name, ref_count, log_if_denied=is_logged)
        allowed = self._authorizer.authorize(self._client, action)
        if not allowed and is_logged:
            self._denials += 1
            if self._denials == DENIALS_LOGGED:
                client = self._client
                audit_log.info(
                    "Principal = %s from host = %s: the request = %s has %d denied operations; further ones of this "
                    "request are not logged.",
                    client.principal, client.host, client.api, DENIALS_LOGGED,
                )  # fmt: skip
        return allowed

    def allowed_names(
        self, operation: AclOperation, resource_type: AclResourceType, names: Iterable[str], *, silent: bool = False
    ) -> set[str]:
        """The names of those resources on which the client may do the operation."""
        names = list(names)
        if len(names) == 1:  # most requests
            return set(names) if self.allows(operation, resource_type, names[0], silent=silent) else set()
        return {
            name
            for name, count in Counter(names).items()
            if self.allows(operation, resource_type, name, ref_count=count, silent=silent)
        }

    async def many_allowed_names(
        self, operation: AclOperation, resource_type: AclResourceType, names: Iterable[str], *, silent: bool = False
    ) -> set[str]:
        """As `allowed_names`, with pauses in which the event loop serves others."""
        pauses = Pauses(CHECKS_PER_TURN)
        found: set[str] = set()
        for name, count in Counter(names).items():
            if self.allows(operation, resource_type, name, ref_count=count, silent=silent):
                found.add(name)
            await pauses.after(1)
        return found

    def allows_on_any(self, operation: AclOperation, resource_type: AclResourceType) -> bool:
        """Whether the client may do the operation on at least one resource of the type."""
        return self._authorizer.authorize_by_resource_type(self._client, operation, resource_type)

    def operations(self, resource_type: AclResourceType, name: str = CLUSTER_NAME) -> int:
        """The operations that the client may do on a resource, as the bit field of `authorized_operations`."""
        found = 0
        client = self._client
        for operation in AclOperation:
            if _SUPPORTED[resource_type] >> operation & 1:
                action = Action(operation, resource_type, name, log_if_allowed=False, log_if_denied=False)
                found |= self._authorizer.authorize(client, action) << operation
        return found

    def cluster_operations(self, present: int) -> int:
        """The value of `cluster_authorized_operations`, of which a handler has filled in `present`."""
        if present == NOT_ASKED:
            return present
        return self.operations(CLUSTER) if self.allows(AclOperation.DESCRIBE, CLUSTER) else 0

    def reader(self) -> Callable[[str], bool]:
        """Whether the client may read a topic. Each topic is checked once."""
        known: dict[str, bool] = {}

        def may_read(name: str) -> bool:
            try:
                return known[name]
            except KeyError:
                found = known[name] = self.allows(AclOperation.READ, TOPIC, name)
                return found

        return may_read
