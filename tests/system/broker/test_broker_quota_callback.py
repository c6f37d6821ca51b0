"""A broker and its controller ask the class of a user for the quotas of clients (client.quota.callback.class)."""

from __future__ import annotations

import pytest

from barnabas.server.metadata.quota_callback import SETTING
from barnabas.testing import EmbeddedBroker
from tests.system.broker.test_broker_data import batch, create, produce, produce_request
from tests.system.broker.wire_client import WireClient
from tests.unit.server.metadata.test_metadata_quota_callback import KIND, ByTeam


def test_a_broker_asks_the_class_of_a_user() -> None:
    with EmbeddedBroker({SETTING: f"{ByTeam.__module__}.ByTeam", "quota.window.num": "2"}) as broker:
        on_controller, on_broker = ByTeam.made[-2:]
        assert on_broker.images, "it got the metadata of the cluster"
        with WireClient(broker.bootstrap_servers) as client:
            create(client, "t")
            assert on_broker.images[-1].topics.get("t") is not None
            data = batch(b"x" * 5_000)
            assert produce(client, "t", data).error_code == 0
            on_broker.limits[KIND.value, "ANONYMOUS"] = 100_000.0
            client.call(produce_request("t", data), 9)
            on_broker.limits[KIND.value, "ANONYMOUS"] = 2_000.0  # one batch in two seconds is more
            assert client.call(produce_request("t", data), 9).throttle_time_ms > 0
            on_broker.limits.clear()
            on_controller.limits["controller_mutation_rate", "ANONYMOUS"] = 0.001
            create(client, "u")
            with pytest.raises(AssertionError):
                create(client, "v")
