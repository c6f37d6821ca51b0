"""Value: builds the OAUTHBEARER of a node from its configuration: for its listeners, and for its own connections."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from barnabas.core.config import ConfigError
from barnabas.core.rng import Rng
from barnabas.core.telemetry import get_logger
from barnabas.protocol.security.config import OAUTHBEARER, SaslConfig
from barnabas.protocol.security.jaas import JaasEntry
from barnabas.protocol.security.oauth.allowed import AllowedSources
from barnabas.protocol.security.oauth.login_settings import OAuthSettings, read_login
from barnabas.protocol.security.oauth.token_class import load_token_class
from barnabas.protocol.security.oauth.unsecured import UnsecuredValidator
from barnabas.protocol.security.oauth.validator_settings import (
    ClassOfUser,
    KeySource,
    SignedTokens,
    read_validator,
)
from barnabas.protocol.security.sasl_server import TokenValidator
from barnabas.server.metadata.configs.tables import BROKER_CONFIGS

if TYPE_CHECKING:
    from barnabas.protocol.transport.oauth.provider_keys import ProviderKeys
    from barnabas.server.node.setup.security_configs import ListenerConfigs

log = get_logger("barnabas.server.node")


class OAuthOfNode:
    """Builds the validators of the listeners. Listeners with the same source of keys share them."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._keys: dict[KeySource, ProviderKeys] = {}

    @property
    def provider_keys(self) -> tuple[ProviderKeys, ...]:
        return tuple(self._keys.values())

    def validator(self, configs: ListenerConfigs, entry: JaasEntry | None) -> TokenValidator:
        """How a listener checks tokens. Raises ConfigError."""
        found = read_validator(_settings(configs, entry))
        if isinstance(found, ClassOfUser):
            return load_token_class(found.setting, found.name, configs.given, {} if entry is None else entry.options)
        if isinstance(found, UnsecuredValidator):
            log.warning(
                "the listener accepts tokens without a signature, which anyone can make; use it for tests only",
                listener=configs.listener,
            )
            return found
        return self._signed(found, configs.listener)

    def _signed(self, settings: SignedTokens, listener: str) -> TokenValidator:
        try:
            from barnabas.protocol.security.oauth.signed import SignedValidator
            from barnabas.protocol.transport.oauth.provider_keys import ProviderKeys
        except ImportError as error:
            raise ConfigError(
                "Signed tokens need the package cryptography. Install it: pip install 'barnabas[tls]'"
            ) from error
        if settings.expected_issuer is None:
            log.warning("the issuer of tokens is not checked; set sasl.oauthbearer.expected.issuer", listener=listener)
        keys = self._keys.get(settings.source)
        if keys is None:
            keys = self._keys[settings.source] = ProviderKeys(settings.source, self._rng)
        return SignedValidator(
            keys,
            settings.expected_audience,
            settings.expected_issuer,
            settings.scope_claim,
            settings.subject_claim,
            settings.clock_skew_ms,
        )


def oauth_login_of_node(configs: ListenerConfigs, entry: JaasEntry | None) -> SaslConfig:
    """How this node gets its tokens for other nodes. Raises ConfigError."""
    return SaslConfig(OAUTHBEARER, oauth=read_login(_settings(configs, entry)))


def _settings(configs: ListenerConfigs, entry: JaasEntry | None) -> OAuthSettings:
    def get(name: str) -> Any:
        return configs.of_mechanism(OAUTHBEARER, name) if name in BROKER_CONFIGS else None

    def full_name(name: str) -> str:
        return configs.mechanism_name(OAUTHBEARER, name)

    options: Mapping[str, str] = {} if entry is None else entry.options
    return OAuthSettings(get, options, full_name, AllowedSources.of(os.environ))
