"""Which settings are secret, by their names."""

from __future__ import annotations

import pytest

from barnabas.core.secret_names import is_secret_name


@pytest.mark.parametrize(
    "name",
    [
        "sasl.jaas.config",
        "listener.name.internal.ssl.keystore.password",
        "ssl.keystore.key",
        "ssl.key.pem",
        "basic.auth.user.info",
        "storage.aws.secret.access.key",
        "s3.credentials",
        "AUTH_TOKEN",
    ],
)
def test_a_setting_with_a_secret_value_is_known(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "ssl.keystore.location",
        "ssl.key.location",
        "key.converter",
        "basic.auth.credentials.source",
        "sasl.oauthbearer.token.endpoint.url",
        "retention.ms",
    ],
)
def test_a_setting_that_says_where_a_secret_is_or_has_none_is_shown(name: str) -> None:
    assert not is_secret_name(name)
