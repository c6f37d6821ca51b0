"""Passwords and keys of a query are not in Spark's plans, nor in the errors of a query that cannot log in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.spark.environment import REDACTED_OPTIONS
from barnabas.testing import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system
PLANTED = "pl4nted"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_CONFIG = "spark.sql.redaction.options.regex"


@pytest.fixture
def redacting(spark: SparkSession) -> Iterator[SparkSession]:
    """The session as our own commands make it."""
    before = spark.conf.get(_CONFIG)
    spark.conf.set(_CONFIG, REDACTED_OPTIONS)
    yield spark
    spark.conf.set(_CONFIG, before)


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    config = {
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN} user_alice="right";',
        "inter.broker.listener.name": "PLAINTEXT",
    }
    with EmbeddedBroker(config, listener="SASL_PLAINTEXT://127.0.0.1:0,PLAINTEXT://127.0.0.1:0") as running:
        assert running.node is not None
        yield next(f"127.0.0.1:{e.port}" for e in running.node.endpoints if e.name == "SASL_PLAINTEXT")


def _plan(frame: Any) -> str:
    return str(frame._jdf.queryExecution().toString())


@pytest.mark.parametrize(
    "secret",
    [
        {"kafka.sasl.jaas.config": f'{PLAIN} username="alice" password="{PLANTED}";'},
        {"kafka.sasl.password": PLANTED},
        {"kafka.ssl.keystore.key": f"-----BEGIN PRIVATE KEY-----\n{PLANTED}\n-----END PRIVATE KEY-----"},
        {"kafka.ssl.key.pem": PLANTED},
        {"http.headers.authorization": f"Basic {PLANTED}"},
        {"adls.account-key": PLANTED},
    ],
    ids=lambda secret: next(iter(secret)),
)
def test_a_secret_option_is_not_in_a_plan(redacting: SparkSession, secret: dict[str, str]) -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", **secret}
    plan = _plan(redacting.readStream.format("barnabas").options(**options).load())
    assert f"{next(iter(secret))}=*********(redacted)" in plan
    assert PLANTED not in plan


@pytest.mark.parametrize("mode", ["read", "write"])
def test_a_failed_login_does_not_show_the_password(redacting: SparkSession, broker: str, mode: str) -> None:
    options = {
        "kafka.bootstrap.servers": broker,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{PLAIN} username="alice" password="{PLANTED}";',
    }
    with pytest.raises(Exception, match=r"(?i)authentication failed|Invalid username or password") as raised:
        if mode == "read":
            redacting.read.format("barnabas").options(**options).option("subscribe", "t").load().count()
        else:
            rows = redacting.createDataFrame([(b"v",)], "value binary")
            rows.write.format("barnabas").options(**options).option("topic", "t").mode("append").save()
    assert PLANTED not in str(raised.value) + repr(raised.value)
