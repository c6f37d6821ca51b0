"""librdkafka, kafka-python and aiokafka log in with OAUTHBEARER; Java, franz-go and kafkajs do in tests/interop."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from uuid import uuid4

from barnabas.protocol.security.oauth.unsecured import UnsecuredLogin
from tests.system.security.test_oauth_log_in import UNSECURED, broker
from tests.system.security.test_secure_listeners import round_trip


async def test_librdkafka_with_a_callback_and_with_tokens_of_its_own() -> None:
    from confluent_kafka import Producer

    async with broker(UNSECURED) as (address, _):
        shared = {"bootstrap.servers": address, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
        own = {"enable.sasl.oauthbearer.unsecure.jwt": True, "sasl.oauthbearer.config": "principal=alice"}

        def token(_config: str) -> tuple[str, float]:
            made = UnsecuredLogin((("sub", "bob"),)).token(int(time.time() * 1000))
            return made.text, made.expires_at_ms / 1000

        def write(config: dict[str, Any]) -> int:
            failed: list[Any] = []
            producer = Producer(config)
            producer.produce("t", b"v", on_delivery=lambda error, _: failed.append(error))
            producer.flush(60)
            assert failed == [None], failed
            return len(failed)

        for config in ({**shared, **own}, {**shared, "oauth_cb": token}):
            assert await asyncio.to_thread(write, config) == 1
            await round_trip({**config, "request.timeout.ms": 20_000}, f"t-{uuid4().hex[:8]}")


async def test_kafka_python_and_aiokafka() -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider as TheirProvider
    from kafka import KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider

    def made() -> str:
        return UnsecuredLogin((("sub", "carol"),)).token(int(time.time() * 1000)).text

    class Sync(AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return made()

        def extensions(self) -> dict[str, str]:
            return {"traceId": "9"}

    class Async(TheirProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return made()

    async with broker(UNSECURED) as (address, _):
        shared = {
            "bootstrap_servers": address,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER",
        }

        def write() -> int:
            producer = KafkaProducer(**shared, sasl_oauth_token_provider=Sync())
            try:
                return int(producer.send("k", b"v").get(30).offset)
            finally:
                producer.close(10)

        assert await asyncio.to_thread(write) == 0
        async with AIOKafkaProducer(**shared, sasl_oauth_token_provider=Async()) as producer:
            assert (await producer.send_and_wait("a", b"v")).offset == 0
