"""Machine: decides by the ACLs of the cluster, and writes the audit log (Kafka's `StandardAuthorizer`).

The audit log is the logger `kafka.authorizer.logger` of Python's logging, in the words of Kafka's: denied operations at
INFO, allowed ones at DEBUG, and checks that only filter a list at level 5, Kafka's TRACE.

Until the node has read the metadata log, only super users pass: the first ACLs of the log may allow what later ones
deny. The requests of others are answered with an error, and clients retry them.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Final
from uuid import UUID

from barnabas.core.config import ConfigError
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.telemetry import Metrics
from barnabas.core.telemetry.log import AUDIT_LOGGER
from barnabas.protocol.security.acl_index import AclIndex, Ruling
from barnabas.protocol.security.acls import AclResourceType
from barnabas.protocol.security.operations import AclOperation
from barnabas.protocol.security.principals import KafkaPrincipal, parse_principal
from barnabas.server.broker.authorization.grants import Grants
from barnabas.server.broker.authorization.ports import Action, AuthorizedClient
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta

TRACE: Final = 5
audit_log = logging.getLogger(AUDIT_LOGGER)

_SUPER_USER: Final = Ruling(allowed=True, basis="SuperUser")


class StandardAuthorizer:
    """Kafka's authorizer: super users, then the ACLs, then `allow.everyone.if.no.acl.found`."""

    def __init__(self, configs: Mapping[str, str]) -> None:
        """Reads `super.users` and `allow.everyone.if.no.acl.found`. Raises ConfigError."""
        self._super_users = parse_super_users(configs.get("super.users", ""))
        self._acls: AclIndex[UUID] = AclIndex(
            allow_if_no_acl=_boolean("allow.everyone.if.no.acl.found", configs.get("allow.everyone.if.no.acl.found"))
        )
        self._ready = False
        self.decisions = {True: 0, False: 0}
        """The number of operations that were allowed and denied. For metrics."""
        self._grants = Grants(partial(audit_log.isEnabledFor, logging.DEBUG))

    def add_metrics(self, metrics: Metrics) -> None:
        """Register the metrics of KIP-801."""
        for allowed, result in ((True, "allowed"), (False, "denied")):
            metrics.gauge(
                "barnabas_authorizer_decisions",
                "Operations that the authorizer has allowed or denied since the node started.",
                partial(self._decided, allowed),
                result=result,
            )
        metrics.gauge("barnabas_authorizer_acls", "ACLs that the authorizer has loaded.", lambda: len(self._acls))

    def _decided(self, allowed: bool) -> int:
        return self.decisions[allowed] + (self._grants.hits if allowed else 0)

    @property
    def keeps_acls(self) -> bool:
        return True

    @property
    def grants(self) -> Grants:
        """What was allowed since the ACLs changed last."""
        return self._grants

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        if delta.acls.changed:
            self._grants.forget()
        for acl_id, acl in delta.acls.changed.items():
            if acl is None:
                self._acls.remove(acl_id)
            else:
                self._acls.put(acl_id, acl.binding)

    def on_caught_up(self) -> None:
        self._grants.forget()
        self._ready = True

    def authorize(self, client: AuthorizedClient, action: Action) -> bool:
        ruling = self._ruling(client, action)
        allowed = ruling.allowed
        self.decisions[allowed] += 1
        if allowed:
            level = logging.DEBUG if action.log_if_allowed else TRACE
        else:
            level = logging.INFO if action.log_if_denied else TRACE
        if audit_log.isEnabledFor(level):
            audit_log.log(level, _audit_entry(client, action, ruling))
        return allowed

    def authorize_by_resource_type(
        self, client: AuthorizedClient, operation: AclOperation, resource_type: AclResourceType
    ) -> bool:
        principal = str(client.principal)
        if principal in self._super_users:
            return True
        self._require_ready()
        return self._acls.decide_by_type(principal, client.host, operation, resource_type)

    def _ruling(self, client: AuthorizedClient, action: Action) -> Ruling:
        principal = str(client.principal)
        if principal in self._super_users:
            return _SUPER_USER
        self._require_ready()
        return self._acls.decide(principal, client.host, action.operation, action.resource_type, action.resource_name)

    def _require_ready(self) -> None:
        if not self._ready:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                "The authorizer has not read the ACLs of the cluster yet; until then only super users are served. The "
                "principals of controllers and brokers must be in super.users.",
            )


def parse_super_users(text: str) -> frozenset[str]:
    """The principals of `super.users`, which semicolons separate. Raises ConfigError."""
    users: set[str] = set()
    for part in text.split(";"):
        if part.strip():
            users.add(str(_principal(part.strip())))
    return frozenset(users)


def _principal(text: str) -> KafkaPrincipal:
    try:
        return parse_principal(text)
    except ValueError as error:
        raise ConfigError(f"super.users: {error}. Semicolons separate several principals.") from None


def _boolean(name: str, text: str | None) -> bool:
    value = (text or "false").strip().lower()
    if value not in ("true", "false"):
        raise ConfigError(f"{name}={text}: the value must be true or false.")
    return value == "true"


def _audit_entry(client: AuthorizedClient, action: Action, ruling: Ruling) -> str:
    return (
        f"Principal = {client.principal} is {'Allowed' if ruling.allowed else 'Denied'} "
        f"operation = {action.operation.name} from host = {client.host} on resource = "
        f"{action.resource_type.camel}:LITERAL:{action.resource_name} for request = {client.api} "
        f"with resourceRefCount = {action.ref_count} based on rule {ruling.rule}"
    )
