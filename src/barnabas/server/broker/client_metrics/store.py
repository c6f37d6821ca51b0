"""Shell: keeps the newest values of the metrics that clients have pushed, and shows them on the page of metrics.

Values are kept of the metrics that the client was asked for. `SERIES` has the most values of all clients, of one
principal and of one address, `SERIES_OF_CLIENT_MAX` those of one client; the names of a value are limited by
`NAMES_LENGTH_MAX`. The values of a client that has been silent for three of its intervals are dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from uuid import UUID

from msgspec import Struct

from barnabas.core.clock import Clock
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.core.rng import Rng
from barnabas.core.telemetry import Metrics, get_logger
from barnabas.core.telemetry.exposition import Exposition, label_text
from barnabas.server.broker.client_metrics.instances import ClientInstance, ClientInstances
from barnabas.server.broker.client_metrics.otlp import MetricPoint
from barnabas.server.broker.client_metrics.shares import Bounds, ClientShares
from barnabas.server.broker.client_metrics.subscriptions import read_subscriptions
from barnabas.server.metadata.config_view import ConfigView
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta

log = get_logger("barnabas.server.broker")

SERIES: Final = Bounds(total=10_000, of_principal=5_000, of_address=1_000)
SERIES_OF_CLIENT_MAX: Final = 500
NAMES_LENGTH_MAX: Final = 2_000
"""The characters of the name of a metric and of its attributes together."""
_SILENT_MS_MIN: Final = 60_000
_SWEEP_MS: Final = 1_000
_AT_ONCE: Final = 200

_Key = tuple[str, tuple[tuple[str, str], ...]]


class _Client(Struct):
    """The values of one instance of a client. `instance` is the one that pushed first, whose owner the values count
    for."""

    instance: ClientInstance
    values: dict[_Key, float]
    expires_ms: int


class ClientMetrics:
    """The metrics of the clients of one broker. An image subscriber, too."""

    def __init__(self, clock: Clock, rng: Rng, bounds: Bounds = SERIES) -> None:
        self.instances = ClientInstances(rng)
        self.left_out = 0
        """Values that were not kept: no subscription has them, there are too many, or their names are too long."""
        self._shares = ClientShares(bounds)
        self._swept_ms = 0
        self._clock = clock
        self._clients: dict[UUID, _Client] = {}
        self._results: dict[str, int] = {}

    def add_metrics(self, metrics: Metrics) -> None:
        """Show the values on the page of this registry."""
        metrics.collectors.append(self.collect)

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        """Read the subscriptions again if configs have changed."""
        if delta.configs:
            view = ConfigView(image.configs, node_id=-1, static={})
            subscriptions, unreadable = read_subscriptions(view, image.configs)
            self.instances.on_subscriptions(subscriptions)
            for name, error in unreadable.items():
                log.warning("a client-metrics subscription is ignored", name=name, reason=str(error))

    def count(self, error: KafkaError | None) -> None:
        """Count a push by its outcome."""
        name = ErrorCode.NONE.name if error is None else error.code.name
        self._results[name] = self._results.get(name, 0) + 1

    def add(self, instance: ClientInstance, points: list[MetricPoint]) -> None:
        """Keep the values of one push. Nothing is kept of a client that has ended."""
        now_ms = self._clock.now_ms()
        if now_ms - self._swept_ms >= _SWEEP_MS:
            self._drop_silent(now_ms)
        if instance.is_terminating:
            self._drop(instance.instance_id)
            return
        client = self._clients.get(instance.instance_id)
        if client is None:
            client = _Client(instance, {}, now_ms)
        client.expires_ms = now_ms + max(_SILENT_MS_MIN, 3 * instance.wanted.interval_ms)
        values, includes = client.values, instance.wanted.includes
        before = len(values)
        room = min(SERIES_OF_CLIENT_MAX - before, self._shares.room(client.instance.attributes))
        for point in points:
            key = (point.name, point.attributes)
            known = values.get(key)
            if known is None and (
                len(values) - before >= room or not includes(point.name) or _length(key) > NAMES_LENGTH_MAX
            ):
                self.left_out += 1
                continue
            values[key] = point.value + ((known or 0.0) if point.is_delta else 0.0)
        self._shares.add(client.instance.attributes, len(values) - before)
        if values:
            self._clients[instance.instance_id] = client

    def _drop_silent(self, now_ms: int) -> None:
        self._swept_ms = now_ms
        for instance_id in [known for known, client in self._clients.items() if client.expires_ms <= now_ms]:
            self._drop(instance_id)

    def _drop(self, instance_id: UUID) -> None:
        client = self._clients.pop(instance_id, None)
        if client is not None:
            self._shares.add(client.instance.attributes, -len(client.values))

    def collect(self, page: Exposition) -> Iterator[None]:
        """Add the samples."""
        self._drop_silent(self._clock.now_ms())
        page.family("barnabas_client_metrics_instances").add(len(self.instances))
        page.family("barnabas_client_metrics_left_out_total").add(self.left_out)
        pushes = page.family("barnabas_client_metrics_pushes_total")
        for result, count in sorted(self._results.items()):
            pushes.add(count, label_text(result=result))
        family = page.family("barnabas_client_metric")
        count = 0
        for client in list(self._clients.values()):
            known = client.instance.attributes
            software = f"{known.client_software_name} {known.client_software_version}".strip()
            for (name, attributes), value in client.values.items():
                count += 1
                text = ",".join(f"{key}={part}" for key, part in attributes)
                labels = label_text(
                    name=name, attributes=text, client_id=known.client_id,
                    client_instance_id=known.client_instance_id, software=software,
                )  # fmt: skip
                family.add(value, labels)
                if count % _AT_ONCE == 0:
                    yield
        yield


def _length(key: _Key) -> int:
    return len(key[0]) + sum(len(name) + len(value) for name, value in key[1])
