"""Port: the class that computes the quotas of clients (`client.quota.callback.class`, KIP-257), and its adapter.

The config names a Python class, as `package.module:Class` or `package.module.Class`, whose constructor gets the configs
of the node as texts. The methods of `QuotaCallback` are those of Kafka's ClientQuotaCallback, but for two:
`quotaResetRequired` is not needed, because the limit is computed for each request, and `close` is not called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol, cast

from barnabas.core.plugins import check_methods, load_class
from barnabas.protocol.security.principals import KafkaPrincipal
from barnabas.protocol.security.quotas.limits import IP, ClientQuotaCallback, QuotaEntity, QuotaKind, QuotaLimits
from barnabas.server.metadata.image.cluster import ClusterImage

SETTING: Final = "client.quota.callback.class"
_KINDS: Final = frozenset(kind.value for kind in QuotaKind)
_METHODS: Final = ("quota_metric_tags", "quota_limit", "update_quota", "remove_quota", "update_cluster_metadata")


class QuotaCallback(Protocol):
    """Computes the quotas of clients. The methods are called on the event loop and must not block. A broker and a
    controller in one process have an instance each."""

    def quota_metric_tags(self, kind: QuotaKind, principal: KafkaPrincipal, client_id: str) -> Mapping[str, str]:
        """Which clients share a quota: those with the same tags. Clients with other tags are measured by themselves."""
        ...

    def quota_limit(self, kind: QuotaKind, tags: Mapping[str, str]) -> float | None:
        """The limit of all clients with these tags together; None for no limit. `kind` has the unit: bytes per second,
        percent of the event loop's time, or partitions per second."""
        ...

    def update_quota(self, kind: QuotaKind, entity: QuotaEntity, value: float) -> None:
        """A quota has been set, as with `kafka-configs`. `entity` is, for example, (("user", "alice"),), with the name
        None for the default entity."""
        ...

    def remove_quota(self, kind: QuotaKind, entity: QuotaEntity) -> None:
        """A quota has been removed."""
        ...

    def update_cluster_metadata(self, image: ClusterImage) -> None:
        """The metadata of the cluster has changed: topics, partitions, leaders, brokers."""
        ...


class CallbackLimits:
    """Asks the class of a user for the limits of clients. Implements `ClientQuotaCallback`."""

    def __init__(self, callback: QuotaCallback) -> None:
        self._callback = callback
        self._set: dict[QuotaEntity, dict[str, float]] = {}

    def is_active(self, kind: QuotaKind) -> bool:
        return True

    def bucket(self, kind: QuotaKind, principal: KafkaPrincipal, client_id: str) -> tuple[tuple[str, str], ...]:
        return tuple(sorted(self._callback.quota_metric_tags(kind, principal, client_id).items()))

    def limit(self, kind: QuotaKind, bucket: Any) -> float | None:
        return self._callback.quota_limit(kind, dict(bucket))

    def change(self, changed: Mapping[QuotaEntity, Mapping[str, float] | None]) -> None:
        for entity, limits in changed.items():
            if any(kind == IP for kind, _ in entity):
                continue
            before = self._set.get(entity, {})
            after = {key: value for key, value in (limits or {}).items() if key in _KINDS}
            for key in before:
                if key not in after:
                    self._callback.remove_quota(QuotaKind(key), entity)
            for key, value in after.items():
                if before.get(key) != value:
                    self._callback.update_quota(QuotaKind(key), entity, value)
            if after:
                self._set[entity] = after
            else:
                self._set.pop(entity, None)

    def on_image(self, image: ClusterImage) -> None:
        """The metadata of the cluster has changed."""
        self._callback.update_cluster_metadata(image)


def build_limits(configs: Mapping[str, str]) -> ClientQuotaCallback:
    """What computes the limits of clients: the quotas that are set in the cluster, or the class of a user. Raises
    ConfigError."""
    name = configs.get(SETTING, "").strip()
    if not name:
        return QuotaLimits()
    callback = load_class(SETTING, name)(configs)
    check_methods(SETTING, callback, _METHODS, "barnabas.server.metadata.quota_callback.QuotaCallback")
    return CallbackLimits(cast("QuotaCallback", callback))
