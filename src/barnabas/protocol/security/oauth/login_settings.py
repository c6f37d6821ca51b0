"""Machine: reads the settings of OAUTHBEARER of a client, or of a node as a client of other nodes.

    setting                                                          the token comes from
    oauth_cb                                                         a function of the user
    sasl.oauthbearer.token.endpoint.url=file:...                     a file
    sasl.oauthbearer.token.endpoint.url, .client.credentials.*       the provider, by id and secret
    sasl.oauthbearer.token.endpoint.url, .assertion.*                the provider, by an assertion, which replaces the
                                                                     secret (KIP-1258), or is the grant (KIP-1139)
    sasl.jaas.config with unsecuredLoginStringClaim_sub              the client itself: a token without a signature
    enable.sasl.oauthbearer.unsecure.jwt, sasl.oauthbearer.config    the same, with librdkafka's names

The first line that applies is used. Where Kafka uses an unsecured token because nothing else is set, this is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from barnabas.core.config import ConfigError
from barnabas.core.reprs import repr_without
from barnabas.protocol.security.config import TlsConfig
from barnabas.protocol.security.oauth.allowed import AllowedSources
from barnabas.protocol.security.oauth.logins import (
    AssertionLogin,
    ClaimsOfAssertion,
    ClientCredentials,
    OAuthLogin,
    TokenCallback,
    TokenEndpoint,
    TokenFile,
    TokenMethod,
)
from barnabas.protocol.security.oauth.messages import OAuthMessageError, check_extensions
from barnabas.protocol.security.oauth.refreshing import TokenRefresh
from barnabas.protocol.security.oauth.unsecured import LOGIN, has_options, librdkafka_login, unsecured_login

URL: Final = "sasl.oauthbearer.token.endpoint.url"
_ID: Final = "sasl.oauthbearer.client.credentials.client.id"
_SECRET: Final = "sasl.oauthbearer.client.credentials.client.secret"
_ASSERTION: Final = "sasl.oauthbearer.assertion"
_RETRIEVER: Final = "sasl.oauthbearer.jwt.retriever.class"
_HANDLER: Final = "sasl.login.callback.handler.class"
_EXTENSION: Final = "extension_"
_TIMEOUT_MS: Final = 10_000
_RETRIEVERS: Final = {
    "DefaultJwtRetriever": "",
    "ClientCredentialsJwtRetriever": "client_credentials",
    "JwtBearerJwtRetriever": "jwt-bearer",
    "FileJwtRetriever": "file",
}
_HANDLERS: Final = ("OAuthBearerLoginCallbackHandler", "OAuthBearerUnsecuredLoginCallbackHandler")


class OAuthSettings(NamedTuple):
    """Where the settings are looked up."""

    get: Callable[[str], Any]
    """The typed value of a config; None if it is not set, or this kind of client does not have it."""
    options: Mapping[str, str]
    """The options of the login module in sasl.jaas.config."""
    full_name: Callable[[str], str]
    """The name under which the user sets a config: on a node with the prefixes of the listener and the mechanism."""
    allowed: AllowedSources

    def __repr__(self) -> str:
        return repr_without("options")(self)


def read_login(settings: OAuthSettings) -> OAuthLogin:
    """Raises ConfigError, which names the setting that is wrong or missing."""
    method, extensions = _method(settings)
    pairs = dict(extensions)
    pairs |= {
        name.removeprefix(_EXTENSION): value
        for name, value in settings.options.items()
        if name.startswith(_EXTENSION) and name != _EXTENSION
    }
    pairs |= _librdkafka_extensions(settings.get("sasl.oauthbearer.extensions"))
    try:
        check_extensions(pairs)
    except OAuthMessageError as error:
        raise ConfigError(f"{settings.full_name('sasl.jaas.config')}: {error}.") from error
    return OAuthLogin(
        method,
        tuple(sorted(pairs.items())),
        _refresh(settings),
        settings.get("sasl.oauthbearer.sub.claim.name") or "sub",
    )


def check_url(setting: str, url: str, allowed: AllowedSources) -> str | None:
    """Returns the path, if `url` is a file. Raises ConfigError if the URL is malformed, or is not allowed."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"{setting}={url} is not a URL: {error}.") from error
    if parts.scheme not in ("http", "https", "file"):
        raise ConfigError(f"{setting}={url} must begin with https://, http:// or file:.")
    if parts.username is not None:
        raise ConfigError(f"{setting} must not contain a user name or a password. Remove what is before the @.")
    if parts.scheme != "file" and not host:
        raise ConfigError(f"{setting}={url} has no host. The form is https://HOST/PATH.")
    if parts.scheme == "file" and (parts.netloc not in ("", "localhost") or not parts.path.startswith("/")):
        raise ConfigError(f"{setting}={url} must have an absolute path, as in file:///etc/barnabas/token.")
    allowed.check_url(setting, url)
    return unquote(parts.path) if parts.scheme == "file" else None


# ---- inside


def _method(settings: OAuthSettings) -> tuple[TokenMethod, tuple[tuple[str, str], ...]]:
    get, options = settings.get, settings.options
    handler = str(get(_HANDLER) or "").rpartition(".")[2]
    if handler and handler not in _HANDLERS:
        raise ConfigError(
            f"{settings.full_name(_HANDLER)}={get(_HANDLER)} is not supported. Clients get the tokens of a function by"
            f" the setting oauth_cb; the classes of Kafka that are known are {' and '.join(_HANDLERS)}."
        )
    function = get("oauth_cb")
    if function is not None:
        if not callable(function):
            raise ConfigError("oauth_cb must be a function that returns a token and the time of its expiry.")
        return TokenCallback(function, get("sasl.oauthbearer.config") or ""), ()
    if get(URL) and handler != "OAuthBearerUnsecuredLoginCallbackHandler":
        return _from_url(settings, get(URL)), ()
    if handler == "OAuthBearerLoginCallbackHandler" or str(get("sasl.oauthbearer.method") or "").lower() == "oidc":
        raise ConfigError(f"{settings.full_name(URL)} is missing. Set it to the URL of the provider's token endpoint.")
    if has_options(options, LOGIN):
        return unsecured_login(options, settings.full_name("sasl.jaas.config"))
    if get("enable.sasl.oauthbearer.unsecure.jwt"):
        return librdkafka_login(get("sasl.oauthbearer.config") or "")
    raise ConfigError(
        f"OAUTHBEARER needs a token. Set {settings.full_name(URL)}, with {_ID} and {_SECRET} for a provider; or, for"
        f' tests only, {settings.full_name("sasl.jaas.config")} with {LOGIN}StringClaim_sub="NAME".'
    )


def _from_url(settings: OAuthSettings, url: str) -> TokenMethod:
    get, options, name = settings.get, settings.options, settings.full_name
    path = check_url(name(URL), url, settings.allowed)
    retriever = _retriever(settings)
    if path is not None:
        if retriever not in ("", "file"):
            raise ConfigError(f"{name(URL)} is a file, and {name(_RETRIEVER)} needs a URL. Change one of them.")
        return TokenFile(path)
    if retriever == "file":
        raise ConfigError(f"{name(URL)} must be a file (file:///...), as {name(_RETRIEVER)} says.")
    endpoint = TokenEndpoint(
        url,
        jaas_tls(options),
        get("sasl.login.connect.timeout.ms") or _TIMEOUT_MS,
        get("sasl.login.read.timeout.ms") or _TIMEOUT_MS,
        get("sasl.login.retry.backoff.ms") or 0,
        get("sasl.login.retry.backoff.max.ms") or 0,
    )
    scope = get("sasl.oauthbearer.scope") or options.get("scope")
    client_id = get(_ID) or get("sasl.oauthbearer.client.id") or options.get("clientId")
    has_assertion = any(get(f"{_ASSERTION}.{part}") for part in ("file", "private.key.file", "claim.iss"))
    if retriever == "jwt-bearer" or has_assertion:
        return _assertion(settings, endpoint, scope, None if retriever == "jwt-bearer" else client_id)
    secret = get(_SECRET) or get("sasl.oauthbearer.client.secret") or options.get("clientSecret")
    if not client_id or not secret:
        raise ConfigError(
            f"{name(_SECRET if client_id else _ID)} is missing. {name(URL)} needs the id and the secret of a client, or"
            f" an assertion ({_ASSERTION}.file, or {_ASSERTION}.private.key.file)."
        )
    return ClientCredentials(endpoint, client_id, secret, scope, bool(get("sasl.oauthbearer.header.urlencode")))


def _assertion(
    settings: OAuthSettings, endpoint: TokenEndpoint, scope: str | None, client_id: str | None
) -> AssertionLogin:
    get = settings.get
    files = {}
    for part in ("file", "private.key.file", "template.file"):
        path = files[part] = get(f"{_ASSERTION}.{part}")
        if path:
            settings.allowed.check_file(settings.full_name(f"{_ASSERTION}.{part}"), path)
    if not files["file"] and not files["private.key.file"]:
        raise ConfigError(
            f"An assertion is needed. Set {settings.full_name(f'{_ASSERTION}.file')} to a file that contains it, or"
            f" {settings.full_name(f'{_ASSERTION}.private.key.file')} to the key that signs it."
        )
    claims = ClaimsOfAssertion(
        get(f"{_ASSERTION}.claim.aud"),
        get(f"{_ASSERTION}.claim.iss"),
        get(f"{_ASSERTION}.claim.sub"),
        get(f"{_ASSERTION}.claim.exp.seconds") or 300,
        get(f"{_ASSERTION}.claim.nbf.seconds") or 0,
        bool(get(f"{_ASSERTION}.claim.jti.include")),
    )
    return AssertionLogin(
        endpoint,
        _retriever(settings) == "jwt-bearer",
        client_id,
        files["file"] or None,
        files["private.key.file"] or None,
        get(f"{_ASSERTION}.private.key.passphrase"),
        str(get(f"{_ASSERTION}.algorithm") or "RS256").upper(),
        claims,
        files["template.file"] or None,
        scope,
    )


def _retriever(settings: OAuthSettings) -> str:
    text = settings.get(_RETRIEVER)
    found = _RETRIEVERS.get(str(text or "DefaultJwtRetriever").rpartition(".")[2])
    if found is None:
        raise ConfigError(
            f"{settings.full_name(_RETRIEVER)}={text} is not supported. Use one of {', '.join(_RETRIEVERS)}, or the"
            " setting oauth_cb of a client."
        )
    return found


def jaas_tls(options: Mapping[str, str]) -> TlsConfig:
    """How to connect to a provider with HTTPS: the options ssl.* of the login module, as in Kafka."""
    return TlsConfig(
        ssl_truststore_location=options.get("ssl.truststore.location"),
        ssl_truststore_certificates=options.get("ssl.truststore.certificates"),
        ssl_certificate_location=options.get("ssl.keystore.location"),
        ssl_keystore_certificate_chain=options.get("ssl.keystore.certificate.chain"),
        ssl_keystore_key=options.get("ssl.keystore.key"),
        ssl_key_password=options.get("ssl.key.password"),
        verify_host_name=options.get("ssl.endpoint.identification.algorithm", "https") != "",
        ssl_keystore_type=options.get("ssl.keystore.type", "PEM"),
        ssl_keystore_password=options.get("ssl.keystore.password"),
        ssl_truststore_type=options.get("ssl.truststore.type", "PEM"),
        ssl_truststore_password=options.get("ssl.truststore.password"),
    )


def _librdkafka_extensions(text: str | None) -> dict[str, str]:
    """`supportFeatureX=true,organizationId=sales`, the value of sasl.oauthbearer.extensions."""
    pairs = (part.strip().partition("=") for part in (text or "").split(",") if part.strip())
    return {name: value for name, _, value in pairs}


def _refresh(settings: OAuthSettings) -> TokenRefresh:
    default = TokenRefresh()
    found: dict[str, float] = {}
    bounds = {
        "window.factor": (0.5, 1.0, default.window_factor),
        "window.jitter": (0.0, 0.25, default.window_jitter),
        "min.period.seconds": (0, 900, default.min_period_ms // 1000),
        "buffer.seconds": (0, 3600, default.buffer_ms // 1000),
    }
    for part, (low, high, unset) in bounds.items():
        name = f"sasl.login.refresh.{part}"
        value = settings.get(name)
        found[part] = unset if value is None else value
        if not low <= found[part] <= high:
            raise ConfigError(f"{settings.full_name(name)}={value} must be from {low} to {high}.")
    return TokenRefresh(
        found["window.factor"],
        found["window.jitter"],
        int(found["min.period.seconds"]) * 1000,
        int(found["buffer.seconds"]) * 1000,
    )
