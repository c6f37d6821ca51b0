"""Table: broker configs of SASL.

Names, types, defaults, ranges and update modes are those of Apache Kafka 4.3; the descriptions are our own.
"""

from __future__ import annotations

from typing import Final

from barnabas.core.config import ConfigKey, InRange, ListOf, OneOf
from barnabas.server.metadata.configs.rows import (
    BROKER,
    HIGH,
    LOW,
    boolean,
    class_,
    double,
    int_,
    list_,
    long,
    password,
    short,
    string,
)

SASL_KEYS: Final[tuple[ConfigKey, ...]] = (
    class_(
        "sasl.client.callback.handler.class", None, "The class of the callback handler of SASL clients on this node."
    ),
    list_("sasl.enabled.mechanisms", ("GSSAPI",), "The SASL mechanisms clients may use.", ListOf(), update_mode=BROKER),
    password(
        "sasl.jaas.config", "Login settings of a SASL connection, in the format of JAAS files.", update_mode=BROKER
    ),
    string("sasl.kerberos.kinit.cmd", "/usr/bin/kinit", "Path of the kinit command.", update_mode=BROKER),
    long(
        "sasl.kerberos.min.time.before.relogin",
        60_000,
        "The minimum time between two Kerberos logins.",
        update_mode=BROKER,
    ),
    list_(
        "sasl.kerberos.principal.to.local.rules",
        ("DEFAULT",),
        "Rules that map Kerberos principals to short names, the first match wins.",
        ListOf(),
        update_mode=BROKER,
    ),
    string("sasl.kerberos.service.name", None, "The Kerberos principal name of the brokers.", update_mode=BROKER),
    double(
        "sasl.kerberos.ticket.renew.jitter",
        0.05,
        "The random variation of the time of a Kerberos ticket renewal.",
        update_mode=BROKER,
    ),
    double(
        "sasl.kerberos.ticket.renew.window.factor",
        0.8,
        "The fraction of a Kerberos ticket's lifetime after which the ticket is renewed.",
        update_mode=BROKER,
    ),
    class_("sasl.login.callback.handler.class", None, "The class of the callback handler of SASL logins."),
    class_("sasl.login.class", None, "The class that performs SASL logins."),
    int_(
        "sasl.login.connect.timeout.ms",
        None,
        "How long connecting to an outside authentication service may take.",
        importance=LOW,
    ),
    int_(
        "sasl.login.read.timeout.ms",
        None,
        "How long an outside authentication service may take to answer.",
        importance=LOW,
    ),
    short(
        "sasl.login.refresh.buffer.seconds",
        300,
        "The minimum time before its expiry at which a credential is refreshed.",
        update_mode=BROKER,
    ),
    short(
        "sasl.login.refresh.min.period.seconds",
        60,
        "The minimum time between two refreshes of a credential.",
        update_mode=BROKER,
    ),
    double(
        "sasl.login.refresh.window.factor",
        0.8,
        "The fraction of a credential's lifetime after which the credential is refreshed.",
        update_mode=BROKER,
    ),
    double(
        "sasl.login.refresh.window.jitter",
        0.05,
        "The random variation of the time of a credential's refresh.",
        update_mode=BROKER,
    ),
    long(
        "sasl.login.retry.backoff.max.ms",
        10_000,
        "The maximum pause before a failed login is retried.",
        importance=LOW,
    ),
    long("sasl.login.retry.backoff.ms", 100, "The first pause before a failed login is retried.", importance=LOW),
    string(
        "sasl.mechanism.controller.protocol",
        "GSSAPI",
        "The SASL mechanism for connections to controllers.",
        importance=HIGH,
    ),
    string(
        "sasl.mechanism.inter.broker.protocol", "GSSAPI", "The SASL mechanism used between brokers.", update_mode=BROKER
    ),
    string(
        "sasl.oauthbearer.assertion.algorithm",
        "RS256",
        "The algorithm that signs an OAuth assertion.",
        OneOf(("ES256", "RS256"), ignore_case=True),
    ),
    string("sasl.oauthbearer.assertion.claim.aud", None, "The audience claim of an OAuth assertion."),
    int_(
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        300,
        "For how many seconds an OAuth assertion is valid.",
        InRange(0, 86_400),
        importance=LOW,
    ),
    string("sasl.oauthbearer.assertion.claim.iss", None, "The issuer claim of an OAuth assertion."),
    boolean(
        "sasl.oauthbearer.assertion.claim.jti.include",
        False,
        "Whether an OAuth assertion has a unique id (the jti claim).",
    ),
    int_(
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        60,
        "The number of seconds before its creation from which an OAuth assertion is valid.",
        InRange(0, 3600),
        importance=LOW,
    ),
    string("sasl.oauthbearer.assertion.claim.sub", None, "The subject claim of an OAuth assertion."),
    string("sasl.oauthbearer.assertion.file", None, "A file with a prepared OAuth assertion."),
    string("sasl.oauthbearer.assertion.private.key.file", None, "The file with the key that signs an OAuth assertion."),
    password(
        "sasl.oauthbearer.assertion.private.key.passphrase", "The passphrase of the key that signs an OAuth assertion."
    ),
    string(
        "sasl.oauthbearer.assertion.template.file",
        None,
        "A file with headers and claims to put into an OAuth assertion.",
    ),
    string(
        "sasl.oauthbearer.client.credentials.client.id", None, "The client id of the OAuth client-credentials grant."
    ),
    password(
        "sasl.oauthbearer.client.credentials.client.secret", "The client secret of the OAuth client-credentials grant."
    ),
    int_(
        "sasl.oauthbearer.clock.skew.seconds",
        30,
        "By how many seconds the clocks of the OAuth provider and the broker may differ.",
        importance=LOW,
    ),
    list_(
        "sasl.oauthbearer.expected.audience",
        (),
        "The accepted audiences of a token; if empty, a token that names an audience is refused.",
        ListOf(),
        importance=HIGH,
    ),
    string(
        "sasl.oauthbearer.expected.issuer",
        None,
        "The required issuer of a token; if unset, any issuer is accepted.",
        importance=HIGH,
    ),
    long(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        3_600_000,
        "How often the OAuth provider's keys are fetched.",
        importance=LOW,
    ),
    long(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        10_000,
        "The maximum pause before a failed fetch of the provider's keys is retried.",
        importance=LOW,
    ),
    long(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        100,
        "The first pause before a failed fetch of the provider's keys is retried.",
        importance=LOW,
    ),
    string(
        "sasl.oauthbearer.jwks.endpoint.url",
        None,
        "The URL or file of the OAuth provider's keys; it must be in the list of allowed URLs.",
    ),
    class_(
        "sasl.oauthbearer.jwt.retriever.class",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        "The class that retrieves OAuth tokens.",
    ),
    class_(
        "sasl.oauthbearer.jwt.validator.class",
        "org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        "The class that validates OAuth tokens.",
    ),
    string("sasl.oauthbearer.scope", None, "The scope that is requested for an OAuth token."),
    string("sasl.oauthbearer.scope.claim.name", "scope", "The name of the claim that holds the scope.", importance=LOW),
    string("sasl.oauthbearer.sub.claim.name", "sub", "The name of the claim that holds the subject.", importance=LOW),
    string(
        "sasl.oauthbearer.token.endpoint.url",
        None,
        "The location from which OAuth tokens are retrieved: a URL or a file.",
    ),
    class_(
        "sasl.server.callback.handler.class",
        None,
        "The class of the callback handler of SASL servers; set for each listener and mechanism.",
    ),
    int_(
        "sasl.server.max.receive.size", 524_288, "The maximum size of a message before SASL authentication is complete."
    ),
)
