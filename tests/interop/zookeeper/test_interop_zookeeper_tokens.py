"""Delegation tokens of a cluster whose metadata log is in ZooKeeper: they are records of the log, as everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas import Admin, ErrorCode
from barnabas.testing.ports import free_ports
from barnabas.testing.process import BrokerProcess
from tests.interop.zookeeper.ensemble import Ensemble, why_not
from tests.progress import wait_until
from tests.system.security.test_authorization_of_a_cluster import refusal, settings_of
from tests.system.security.test_delegation_tokens_of_a_cluster import with_token

pytestmark = pytest.mark.skipif(why_not() is not None, reason=f"needs ZooKeeper: {why_not()}")
_USERS = "org.apache.kafka.common.security.plain.PlainLoginModule required"


def test_tokens_in_zookeeper_survive_the_death_of_the_controller(tmp_path: Path) -> None:
    ensemble = Ensemble(tmp_path / "zookeeper")
    ensemble.start()
    client, controller = free_ports(2)
    settings = [
        "node.id=1",
        f"zookeeper.connect={ensemble.connect}/barnabas",
        f"listeners=PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
        "listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol=PLAIN",
        f'listener.name.plaintext.plain.sasl.jaas.config={_USERS} username="alice" password="alice-secret"'
        ' user_alice="alice-secret";',
        "delegation.token.secret.key=key",
        "delegation.token.expiry.check.interval.ms=200",
    ]
    try:
        with BrokerProcess(tmp_path / "node", settings=settings) as node:
            servers = f"127.0.0.1:{client}"
            with Admin(settings_of("alice", servers)) as alice:
                kept, gone = alice.create_delegation_token(), alice.create_delegation_token()
                alice.expire_delegation_token(gone.hmac, period_ms=0)
                wait_until(lambda: alice.describe_delegation_tokens() == [kept], "the expired token is removed")
            node.kill()
            node.start()
            with Admin(settings_of("alice", servers)) as alice:
                assert alice.renew_delegation_token(kept.hmac) >= kept.expiry_timestamp
            with Admin(with_token(kept, servers)) as job:
                assert refusal(lambda: job.describe_cluster()) is ErrorCode.NONE
            with Admin(with_token(gone, servers)) as job:
                assert refusal(lambda: job.describe_cluster()) is ErrorCode.SASL_AUTHENTICATION_FAILED
    finally:
        ensemble.stop()
