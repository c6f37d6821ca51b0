"""Three nodes with delegation tokens: brokers forward the requests, every node knows the tokens, and tokens survive the
death of the controller (Kafka's DelegationTokenEndToEndAuthorizationTest)."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas import Admin, ErrorCode
from barnabas.client.admin.tokens import DelegationToken
from barnabas.protocol.security.principals import KafkaPrincipal
from barnabas.server.broker.authorization.loading import STANDARD
from barnabas.testing.process_cluster import ClusterProcess
from tests.progress import wait_until
from tests.system.security.test_authorization_of_a_cluster import SETTINGS, refusal, settings_of

TOKEN_SETTINGS = (
    *SETTINGS,
    "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512",
    f"authorizer.class.name={STANDARD}",
    "delegation.token.secret.key=the key of all nodes",
    "delegation.token.expiry.check.interval.ms=500",
)
ALICE, BOB = KafkaPrincipal("User", "alice"), KafkaPrincipal("User", "bob")


def with_token(token: DelegationToken, bootstrap_servers: str) -> dict[str, object]:
    return {
        "bootstrap.servers": bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": token.jaas_config,
    }


@pytest.mark.system
def test_tokens_of_three_nodes(tmp_path: Path) -> None:
    with ClusterProcess(tmp_path, settings=TOKEN_SETTINGS) as cluster:
        servers = cluster.bootstrap_servers
        addresses = servers.split(",")
        made: list[DelegationToken] = []
        for address in addresses:  # at least two of the brokers forward the request
            with Admin(settings_of("alice", address)) as alice:
                made.append(alice.create_delegation_token(renewers=[BOB]))
                refused = refusal(lambda a=alice: a.create_delegation_token(owner=BOB))  # type: ignore[misc]
                assert refused is ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        assert {token.owner for token in made} == {ALICE}
        for address in addresses:
            with Admin(settings_of("alice", address)) as alice:
                wait_until(
                    lambda a=alice: {t.hmac for t in a.describe_delegation_tokens()} == {t.hmac for t in made},  # type: ignore[misc]
                    f"{address} knows the tokens",
                )
            for token in made:
                with Admin(with_token(token, address)) as job:
                    assert refusal(lambda j=job: j.describe_cluster()) is ErrorCode.NONE  # type: ignore[misc]
                    # The envelope says that the client has logged in with a token.
                    refused = refusal(lambda j=job: j.create_delegation_token())  # type: ignore[misc]
                    assert refused is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED

        cluster.node(1).kill()
        left = ",".join(addresses[1:])
        with Admin(settings_of("bob", left)) as bob, Admin(settings_of("carol", left)) as carol:
            refused = refusal(lambda: carol.renew_delegation_token(made[0].hmac))
            assert refused is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
            for token in made:
                assert bob.renew_delegation_token(token.hmac) >= token.expiry_timestamp
            bob.expire_delegation_token(made[0].hmac)
            bob.expire_delegation_token(made[1].hmac, period_ms=100)
            wait_until(
                lambda: [t.token_id for t in bob.describe_delegation_tokens()] == [made[2].token_id],
                "one token is removed, and one has expired",
            )
        with Admin(with_token(made[2], left)) as job:
            assert refusal(lambda: job.describe_cluster()) is ErrorCode.NONE
        for address in addresses[1:]:
            with Admin(with_token(made[0], address)) as job:
                wait_until(
                    lambda j=job: refusal(lambda: j.describe_cluster()) is ErrorCode.SASL_AUTHENTICATION_FAILED,  # type: ignore[misc]
                    f"{address} knows that the token is removed",
                )
