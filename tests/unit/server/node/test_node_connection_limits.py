"""The limits of a node's connections follow the dynamic configs and the quotas of addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from barnabas.protocol.security.quotas.limits import QuotaEntity
from barnabas.protocol.transport.connection_quotas import ConnectionQuotas
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.metadata.image.persistent import PersistentMap
from barnabas.server.metadata.image.small import ConfigsImage, QuotasImage, broker_resource
from barnabas.server.node.config import build_config
from barnabas.server.node.connection_limits import ConnectionLimitsUpdater, build_connection_quotas
from tests.progress import until

STATIC = {"log.dirs": "/d", "max.connections": "5", "listener.name.plaintext.max.connections": "4"}
BROKER, DEFAULTS = broker_resource(1), broker_resource(None)


def image(
    configs: Mapping[object, Mapping[str, str]], quotas: Mapping[QuotaEntity, Mapping[str, float]]
) -> ClusterImage:
    return ClusterImage(
        configs=ConfigsImage(PersistentMap.of(dict(configs))),  # type: ignore[arg-type]
        quotas=QuotasImage(PersistentMap.of(quotas)),
    )


def updated(updater: ConnectionLimitsUpdater, before: ClusterImage, after: ClusterImage) -> ClusterImage:
    updater.on_image(ClusterDelta.between(before, after), after)
    return after


def admitted(quotas: ConnectionQuotas, host: str, most: int = 9) -> int:
    """How many connections of an address are admitted; they are released again."""
    count = 0
    while count < most and quotas.has_slot("PLAINTEXT") and quotas.try_admit("PLAINTEXT", host, 0) is None:
        count += 1
    for _ in range(count):
        quotas.release("PLAINTEXT", host)
    return count


def test_limits_follow_the_metadata() -> None:
    async def main() -> None:
        quotas = build_connection_quotas(build_config(STATIC), ["PLAINTEXT"])
        assert admitted(quotas, "10.0.0.1") == 4
        with ThreadPoolExecutor(1) as pool:
            updater = ConnectionLimitsUpdater(quotas, ["PLAINTEXT"], 1, STATIC, pool)
            own = {"listener.name.plaintext.max.connections": "7", "max.connections": "6"}
            now = updated(updater, ClusterImage(), image({BROKER: own}, {}))
            assert admitted(quotas, "10.0.0.1") == 6
            overrides = {"max.connections.per.ip.overrides": "localhost:2,::ffff:10.0.0.1:3"}
            now = updated(updater, now, image({DEFAULTS: overrides}, {}))
            assert admitted(quotas, "10.0.0.1") == 3
            await until(lambda: admitted(quotas, "127.0.0.1") == 2, "a thread has resolved the name")
            rates: dict[QuotaEntity, dict[str, float]] = {
                (("ip", "10.0.0.9"),): {"connection_creation_rate": 0.1},
                (("user", "a"),): {"producer_byte_rate": 1.0},
            }
            now = updated(updater, now, image({DEFAULTS: overrides}, rates))
            assert [admitted(quotas, host) for host in ("10.0.0.9", "10.0.0.8")] == [1, 4]
            updated(updater, now, image({DEFAULTS: overrides}, {}))
            assert admitted(quotas, "10.0.0.9") == 4

    asyncio.run(main())
