"""Machine: reads how a listener checks the tokens of OAUTHBEARER.

    sasl.server.callback.handler.class             sasl.oauthbearer.jwks.endpoint.url      tokens
    OAuthBearerValidatorCallbackHandler, or none   set                                     signed
    ...UnsecuredValidatorCallbackHandler           not set                                 without a signature
    none                                           not set, but options unsecured... of    without a signature
                                                   the login module are
    a Python class                                 not set                                 checked by the class

In all other cases the node does not start. Kafka accepts tokens without a signature if nothing is set.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.core.config import ConfigError
from barnabas.protocol.security.config import TlsConfig
from barnabas.protocol.security.oauth.login_settings import OAuthSettings, check_url, jaas_tls
from barnabas.protocol.security.oauth.unsecured import (
    LOGIN,
    VALIDATOR,
    UnsecuredValidator,
    has_options,
    unsecured_validator,
)

_HANDLER: Final = "sasl.server.callback.handler.class"
_URL: Final = "sasl.oauthbearer.jwks.endpoint.url"
_SIGNED: Final = "OAuthBearerValidatorCallbackHandler"
_UNSECURED: Final = "OAuthBearerUnsecuredValidatorCallbackHandler"


class KeySource(NamedTuple):
    """Where the keys of a provider are."""

    url: str
    path: str | None
    """The path of a file; None if the keys are fetched from `url`."""
    refresh_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    tls: TlsConfig


class SignedTokens(NamedTuple):
    """The settings for signed tokens."""

    source: KeySource
    expected_audience: tuple[str, ...]
    expected_issuer: str | None
    scope_claim: str
    subject_claim: str
    clock_skew_ms: int


class ClassOfUser(NamedTuple):
    """The class of a user that checks tokens, and the config that names it."""

    setting: str
    name: str


def read_validator(settings: OAuthSettings) -> UnsecuredValidator | SignedTokens | ClassOfUser:
    """Raises ConfigError, which names the setting that is wrong or missing."""
    get, name = settings.get, settings.full_name
    given = str(get(_HANDLER) or "").strip()
    handler = given.rpartition(".")[2]
    url = get(_URL)
    if url and handler not in ("", _SIGNED):
        raise ConfigError(f"{name(_URL)} has no effect with {name(_HANDLER)}={handler}. Remove one of them.")
    if handler not in ("", _SIGNED, _UNSECURED):
        return ClassOfUser(name(_HANDLER), given)
    if url:
        return _signed(settings, url)
    is_unsecured = has_options(settings.options, VALIDATOR) or has_options(settings.options, LOGIN)
    if handler == _UNSECURED or (not handler and is_unsecured):
        return unsecured_validator(settings.options, name("sasl.jaas.config"))
    raise ConfigError(
        f"OAUTHBEARER needs the keys of the tokens' provider. Set {name(_URL)} to their URL or file. For tests only,"
        f" {name(_HANDLER)}=org.apache.kafka.common.security.oauthbearer.internals.unsecured.{_UNSECURED} accepts"
        " tokens without a signature, which anyone can make."
    )


def _signed(settings: OAuthSettings, url: str) -> SignedTokens:
    get, name = settings.get, settings.full_name
    path = check_url(name(_URL), url, settings.allowed)
    refresh = "sasl.oauthbearer.jwks.endpoint.refresh.ms"
    if get(refresh) <= 0:
        raise ConfigError(f"{name(refresh)}={get(refresh)} must be greater than 0.")
    source = KeySource(
        url,
        path,
        get(refresh),
        get("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
        get("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
        jaas_tls(settings.options),
    )
    skew = "sasl.oauthbearer.clock.skew.seconds"
    if get(skew) < 0:
        raise ConfigError(f"{name(skew)}={get(skew)} must be 0 or more.")
    claims = {}
    for claim in ("scope", "sub"):
        claims[claim] = str(get(f"sasl.oauthbearer.{claim}.claim.name") or "").strip()
        if not claims[claim]:
            raise ConfigError(f"{name(f'sasl.oauthbearer.{claim}.claim.name')} must not be empty.")
    return SignedTokens(
        source,
        tuple(get("sasl.oauthbearer.expected.audience") or ()),
        get("sasl.oauthbearer.expected.issuer") or None,
        claims["scope"],
        claims["sub"],
        1000 * get(skew),
    )
