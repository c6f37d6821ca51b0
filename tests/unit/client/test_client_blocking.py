"""The blocking clients have what the async ones have."""

from __future__ import annotations

import pytest

from barnabas.client.admin import AsyncAdmin
from barnabas.client.blocking import Admin, Consumer, ShareConsumer
from barnabas.client.blocking_producer import Producer
from barnabas.client.consumer.consumer import AsyncConsumer
from barnabas.client.producer.producer import AsyncProducer
from barnabas.client.share.consumer import AsyncShareConsumer

ITERATED = {"records"}
"""What `for record in consumer` is for."""
OF_THE_LOOP = {
    *("check_usable", "learn", "leave_transaction", "place", "raise_failures", "shut", "try_place", "try_send"),
    "unacknowledged",
}
"""What the hand-over to the loop is made of."""


@pytest.mark.parametrize(
    ("asynchronous", "blocking"),
    [
        (AsyncAdmin, Admin),
        (AsyncConsumer, Consumer),
        (AsyncShareConsumer, ShareConsumer),
        (AsyncProducer, Producer),
    ],
)
def test_nothing_is_missing(asynchronous: type, blocking: type) -> None:
    public = {name for name in dir(asynchronous) if not name.startswith("_")}
    assert {name for name in public if not hasattr(blocking, name)} <= ITERATED | OF_THE_LOOP
