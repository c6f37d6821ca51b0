"""Machine: the limit that holds for a client, out of eight levels (KIP-55, `ClientQuotaManager.DefaultQuotaCallback`).

    1. user and client id            5. default user and default client id
    2. user and default client id    6. default user
    3. user                          7. client id
    4. default user and client id    8. default client id

The first level at which a limit is set decides, for each kind of quota by itself. The level also decides which clients
share the limit: at levels 1, 2, 4 and 5 those with the same user and client id, at 3 and 6 all clients of the user, at
7 and 8 all clients with the client id.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

from barnabas.protocol.security.principals import KafkaPrincipal

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"


class QuotaKind(StrEnum):
    """What a quota limits; the values are the names of the quotas."""

    PRODUCE = "producer_byte_rate"
    """Bytes of Produce requests per second."""
    FETCH = "consumer_byte_rate"
    """Bytes of Fetch responses per second."""
    REQUEST = "request_percentage"
    """The share of the broker's time that requests use; 100 is all of one thread."""
    CONTROLLER_MUTATION = "controller_mutation_rate"
    """Partitions that are created or deleted per second."""


CONNECTION_RATE: Final = "connection_creation_rate"
"""The quota of an address: new connections per second."""

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Sorted (entity type, entity name) pairs; the name None denotes the default entity of that type."""


class QuotaBucket(NamedTuple):
    """The clients that share a limit. An empty name stands for all users, or all client ids."""

    user: str
    client_id: str


class ClientQuotaCallback(Protocol):
    """Port: computes the limits of clients, by the quotas of the cluster (`QuotaLimits`) or by the class of a user
    (`server/metadata/quota_callback`)."""

    def bucket(self, kind: QuotaKind, principal: KafkaPrincipal, client_id: str) -> Hashable:
        """The clients with which this client shares its limit."""
        ...

    def limit(self, kind: QuotaKind, bucket: Any) -> float | None:
        """The limit of these clients together; None for no limit."""
        ...

    def change(self, changed: Mapping[QuotaEntity, Mapping[str, float] | None]) -> None:
        """All quotas of the entities whose quotas have changed in the cluster; None or no quotas if they were removed.
        At first that are all entities with quotas."""
        ...

    def is_active(self, kind: QuotaKind) -> bool:
        """Whether any client may have a limit. If not, nothing is measured."""
        ...


class QuotaLimits:
    """The limits that are set in the cluster's metadata. Implements `ClientQuotaCallback`."""

    def __init__(self) -> None:
        self._by_kind: dict[str, dict[tuple[str | None, str | None], float]] = {}

    def change(self, changed: Mapping[QuotaEntity, Mapping[str, float] | None]) -> None:
        by_kind = self._by_kind
        for entity, set_now in changed.items():
            names = {kind: _DEFAULT if name is None else name for kind, name in entity}
            if IP in names:
                continue
            limits = set_now or {}
            level = names.get(USER), names.get(CLIENT_ID)
            for key in [key for key in by_kind if key not in limits]:
                by_kind[key].pop(level, None)
                if not by_kind[key]:
                    del by_kind[key]
            for key, limit in limits.items():
                by_kind.setdefault(key, {})[level] = limit

    def is_active(self, kind: QuotaKind) -> bool:
        return kind in self._by_kind

    def bucket(self, kind: QuotaKind, principal: KafkaPrincipal, client_id: str) -> QuotaBucket:
        set_at = self._by_kind.get(kind, {})
        user = principal.name
        for at_user, at_client in _levels(user, client_id):
            if (at_user, at_client) in set_at:
                return QuotaBucket("" if at_user is None else user, "" if at_client is None else client_id)
        return QuotaBucket(user, client_id)

    def limit(self, kind: QuotaKind, bucket: QuotaBucket) -> float | None:
        set_at = self._by_kind.get(kind, {})
        if bucket.user and bucket.client_id:
            levels = _levels(bucket.user, bucket.client_id)
            chosen: tuple[tuple[str | None, str | None], ...] = (levels[0], levels[1], levels[3], levels[4])
        elif bucket.user:
            chosen = ((bucket.user, None), (_DEFAULT, None))
        elif bucket.client_id:
            chosen = ((None, bucket.client_id), (None, _DEFAULT))
        else:
            return None  # no limit by client id holds for clients without one
        return next((set_at[level] for level in chosen if level in set_at), None)


_DEFAULT: Final = "\0default"
"""The name of the default entity here; no user and no client id has this name."""


def _levels(user: str, client_id: str) -> tuple[tuple[str | None, str | None], ...]:
    """The eight levels for a client, the first of which decides; None for "not at this level"."""
    return (
        (user, client_id),
        (user, _DEFAULT),
        (user, None),
        (_DEFAULT, client_id),
        (_DEFAULT, _DEFAULT),
        (_DEFAULT, None),
        (None, client_id),
        (None, _DEFAULT),
    )
