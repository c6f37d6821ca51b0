"""Table: the configs of the clients as types of keyword arguments, for editors and type checkers.

    producer = Producer(bootstrap_servers="localhost:9092", linger_ms=20)
    settings: ProducerSettings = {"bootstrap_servers": "localhost:9092", "linger_ms": 20}
    producer = Producer(**settings)

`config.py` has the definitions. `pytest tests/golden --rewrite` writes this file from them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypedDict

Texts = str | list[str] | tuple[str, ...]
"""A list, or one text with commas."""


class ClusterSettings(TypedDict, total=False):
    """The configs that all clients share."""

    bootstrap_servers: Texts
    """host:port pairs to learn the cluster from; a few are enough, they need not be all brokers."""

    client_dns_lookup: Literal["use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"]
    """How host names become addresses; every address of a name is tried in turn. Default: use_all_dns_ips."""

    client_id: str
    """A name for this client in the broker's logs, quotas and metrics."""

    connections_max_idle_ms: int
    """Connections unused for this long are closed. Default: 540000."""

    enable_sasl_oauthbearer_unsecure_jwt: bool
    """librdkafka: tokens without a signature are made from sasl.oauthbearer.config. For tests only. Default: false."""

    metadata_max_age_ms: int
    """Topics and leaders are asked for anew after this time, even when nothing failed. Default: 300000."""

    metadata_recovery_rebootstrap_trigger_ms: int
    """Start over from bootstrap.servers when no metadata could be fetched for this long. Default: 300000."""

    metadata_recovery_strategy: Literal["rebootstrap", "none"]
    """What to do when no known broker can be reached: start over from bootstrap.servers, or fail (KIP-899). Default:
    rebootstrap."""

    oauth_cb: Callable[..., Any] | None
    """A function that returns a token: (token, expiry in seconds since 1970[, principal[, extensions]]), as in
    confluent-kafka. It may block, or be a coroutine function."""

    receive_buffer_bytes: int
    """SO_RCVBUF of the sockets. -1 leaves it to the system, which makes it larger as a fetch needs it; the Java clients
    set 65536, or 32768 in a producer. Default: -1."""

    reconnect_backoff_max_ms: int
    """The longest such wait. Default: 1000."""

    reconnect_backoff_ms: int
    """The wait before connecting again to a broker that refused; it doubles with each failure. Default: 50."""

    request_timeout_ms: int
    """How long a request may stay unanswered before its connection is given up. Default: 30000."""

    retry_backoff_max_ms: int
    """The longest such wait. Default: 1000."""

    retry_backoff_ms: int
    """The wait before a failed request is tried again; it doubles with each failure. Default: 100."""

    sasl_jaas_config: str | None
    """Java's form of the SASL credentials; username, password and tokenauth are read out of it."""

    sasl_kerberos_keytab: str | None
    """The key table of the client (librdkafka's name; keyTab in sasl.jaas.config works too)."""

    sasl_kerberos_principal: str | None
    """The Kerberos principal of the client (librdkafka's name; principal in sasl.jaas.config works too)."""

    sasl_kerberos_service_name: str | None
    """The first component of the Kerberos principals of the brokers."""

    sasl_login_callback_handler_class: str | None
    """Kafka's OAuthBearerLoginCallbackHandler or OAuthBearerUnsecuredLoginCallbackHandler; not needed here. A function
    of your own is oauth_cb."""

    sasl_login_connect_timeout_ms: int | None
    """How long connecting to the token endpoint may take; 10 s if not set."""

    sasl_login_read_timeout_ms: int | None
    """How long the token endpoint may take to answer; 10 s if not set."""

    sasl_login_refresh_buffer_seconds: int
    """How long before its expiry a token is replaced at the latest. Default: 300."""

    sasl_login_refresh_min_period_seconds: int
    """How long a token is used at least. Default: 60."""

    sasl_login_refresh_window_factor: float
    """The part of its lifetime after which a token is replaced. Default: 0.8."""

    sasl_login_refresh_window_jitter: float
    """The random part that is added to this. Default: 0.05."""

    sasl_login_retry_backoff_max_ms: int
    """How long the token endpoint is asked again after failures. Default: 10000."""

    sasl_login_retry_backoff_ms: int
    """The wait before the first such attempt; it doubles. Default: 100."""

    sasl_mechanism: str
    """PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, or GSSAPI with the extra gssapi. Default: GSSAPI."""

    sasl_oauthbearer_assertion_algorithm: Literal["ES256", "RS256"]
    """The algorithm that signs an assertion (KIP-1139). Default: RS256."""

    sasl_oauthbearer_assertion_claim_aud: str | None
    """The audience claim of an assertion."""

    sasl_oauthbearer_assertion_claim_exp_seconds: int
    """For how many seconds an assertion is valid. Default: 300."""

    sasl_oauthbearer_assertion_claim_iss: str | None
    """The issuer claim of an assertion."""

    sasl_oauthbearer_assertion_claim_jti_include: bool
    """Whether an assertion has a unique id. Default: false."""

    sasl_oauthbearer_assertion_claim_nbf_seconds: int
    """From how many seconds before its creation an assertion is valid. Default: 60."""

    sasl_oauthbearer_assertion_claim_sub: str | None
    """The subject claim of an assertion."""

    sasl_oauthbearer_assertion_file: str | None
    """A file with a prepared assertion."""

    sasl_oauthbearer_assertion_private_key_file: str | None
    """The PEM file with the key that signs assertions."""

    sasl_oauthbearer_assertion_private_key_passphrase: str | None
    """The passphrase of that key."""

    sasl_oauthbearer_assertion_template_file: str | None
    """A JSON file {"header": ..., "payload": ...} with more members of assertions."""

    sasl_oauthbearer_client_credentials_client_id: str | None
    """The client id of the grant client_credentials."""

    sasl_oauthbearer_client_credentials_client_secret: str | None
    """The client secret of the grant client_credentials."""

    sasl_oauthbearer_client_id: str | None
    """The client id (librdkafka's name)."""

    sasl_oauthbearer_client_secret: str | None
    """The client secret (librdkafka's name)."""

    sasl_oauthbearer_config: str | None
    """The argument of oauth_cb; or principal=NAME and more for tokens without a signature (librdkafka's name)."""

    sasl_oauthbearer_extensions: str | None
    """Extensions to send with a token: name=value,name=value (librdkafka's name)."""

    sasl_oauthbearer_header_urlencode: bool
    """Whether the client id and secret are URL-encoded in the Authorization header, as RFC 6749 demands and few
    providers do. Default: false."""

    sasl_oauthbearer_jwt_retriever_class: str
    """DefaultJwtRetriever, ClientCredentialsJwtRetriever, JwtBearerJwtRetriever or FileJwtRetriever. Default:
    org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever."""

    sasl_oauthbearer_method: str | None
    """librdkafka: oidc says that tokens come from sasl.oauthbearer.token.endpoint.url."""

    sasl_oauthbearer_scope: str | None
    """The scope to request for a token."""

    sasl_oauthbearer_sub_claim_name: str
    """The claim of a token that holds the name of the user. Default: sub."""

    sasl_oauthbearer_token_endpoint_url: str | None
    """Where tokens come from: the provider's token endpoint (https), or a file (file:///path). It must be in the
    environment variable BARNABAS_SASL_OAUTHBEARER_ALLOWED_URLS."""

    sasl_password: str | None
    """The SASL password (librdkafka's name; sasl.jaas.config works too)."""

    sasl_username: str | None
    """The SASL user name (librdkafka's name; sasl.jaas.config works too)."""

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    """Whether to encrypt (SSL) and whether to authenticate with SASL. Default: PLAINTEXT."""

    send_buffer_bytes: int
    """SO_SNDBUF of the sockets. -1 leaves it to the system; the Java clients set 131072. Default: -1."""

    socket_connection_setup_timeout_max_ms: int
    """The longest such time. Default: 30000."""

    socket_connection_setup_timeout_ms: int
    """How long a connection may take to be set up; it doubles with each failure. Default: 10000."""

    ssl_ca_location: str | None
    """PEM file of the certificate authorities to trust (librdkafka's name)."""

    ssl_certificate_location: str | None
    """PEM file of the client's own certificate chain (librdkafka's name)."""

    ssl_enabled_protocols: Texts
    """TLSv1.2, TLSv1.3: the versions to speak; empty: those of the Python that runs."""

    ssl_endpoint_identification_algorithm: str
    """https: the broker's certificate must carry its host name; empty: any name will do. Default: https."""

    ssl_key_location: str | None
    """PEM file of the client's private key (librdkafka's name)."""

    ssl_key_password: str | None
    """The password of the private key."""

    ssl_keystore_certificate_chain: str | None
    """The client's certificate chain, as PEM text."""

    ssl_keystore_key: str | None
    """The client's private key, as PEM text."""

    ssl_keystore_location: str | None
    """The file that holds the client's private key and certificate chain."""

    ssl_keystore_password: str | None
    """The password of a PKCS12 or JKS key store."""

    ssl_keystore_type: str
    """PEM, PKCS12 (needs barnabas[tls]) or JKS. Default: PEM."""

    ssl_truststore_certificates: str | None
    """The certificate authorities to trust, as PEM text."""

    ssl_truststore_location: str | None
    """The same, by Java's name."""

    ssl_truststore_password: str | None
    """The password of a PKCS12 or JKS trust store."""

    ssl_truststore_type: str
    """PEM, PKCS12 (needs barnabas[tls]) or JKS. Default: PEM."""


class ProducerSettings(ClusterSettings, total=False):
    """The configs of producers."""

    acks: Literal["all", "-1", "0", "1", -1, 0, 1]
    """How many replicas must have a batch before it is acknowledged: all in sync (all, -1), the leader (1), none (0).
    Default: all."""

    batch_size: int
    """A batch for one partition is sent when it has this many bytes, if not sooner. Default: 16384."""

    buffer_memory: int
    """Bytes of unacknowledged records the producer may hold; send waits when they are used up. Default: 33554432."""

    compression_gzip_level: int
    """Level of gzip; -1 is its default. Default: -1."""

    compression_lz4_level: int
    """Level of lz4. Default: 9."""

    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    """How batches are compressed. Default: none."""

    compression_zstd_level: int
    """Level of zstd. Default: 3."""

    delivery_timeout_ms: int
    """The time from send to a final answer, retries and waiting included; at least linger.ms + request.timeout.ms.
    Default: 120000."""

    enable_idempotence: bool
    """Sequence numbers let the broker drop duplicates and refuse gaps, so retries neither double nor reorder. Default:
    true."""

    linger_ms: int
    """How long a batch that is not full waits for more records. Default: 5."""

    max_block_ms: int
    """How long send may wait for metadata and for buffer.memory. Default: 60000."""

    max_in_flight_requests_per_connection: int
    """Unanswered produce requests per broker; at most 5 with idempotence. Default: 5."""

    max_request_size: int
    """The largest record (uncompressed), and the largest produce request. Default: 1048576."""

    metadata_max_idle_ms: int
    """A topic not written to for this long is forgotten; the next send asks for it anew. Default: 300000."""

    partitioner_adaptive_partitioning_enable: bool
    """Send more keyless records to partitions whose brokers answer faster (KIP-794). Default: true."""

    partitioner_availability_timeout_ms: int
    """A partition whose broker takes nothing for this long gets no keyless records; 0 turns this off. Default: 0."""

    partitioner_ignore_keys: bool
    """Place records as if they had no key. Default: false."""

    retries: int
    """How often a batch may be sent again; delivery.timeout.ms is the better limit. Default: 2147483647."""

    transaction_timeout_ms: int
    """The coordinator aborts a transaction that is open longer than this. Default: 60000."""

    transaction_two_phase_commit_enable: bool
    """Transactions take part in a two-phase commit and never time out (KIP-939). Default: false."""

    transactional_id: str | None
    """The identity under which transactions survive a restart, and by which older instances are fenced."""


class ConsumerSettings(ClusterSettings, total=False):
    """The configs of consumers and share consumers."""

    allow_auto_create_topics: bool
    """Let the broker create a topic that is subscribed to and does not exist. Default: true."""

    auto_commit_interval_ms: int
    """How often positions are committed when enable.auto.commit is on. Default: 5000."""

    auto_offset_reset: str
    """Where to start without a committed offset: earliest, latest, by_duration:PT1H, or none (an error). Default:
    latest."""

    check_crcs: bool
    """Check the CRC of every batch. Default: true."""

    client_rack: str
    """Where this client runs; a broker may then point to a replica nearby (KIP-392)."""

    default_api_timeout_ms: int
    """How long calls without a time-out of their own may take. Default: 60000."""

    enable_auto_commit: bool
    """Commit positions in the background of poll. Default: true."""

    exclude_internal_topics: bool
    """Patterns do not match internal topics. Default: true."""

    fetch_max_bytes: int
    """Bytes of one fetch response, over all partitions; the first batch always fits. Default: 52428800."""

    fetch_max_wait_ms: int
    """How long the broker may wait for fetch.min.bytes. Default: 500."""

    fetch_min_bytes: int
    """The broker answers a fetch when this many bytes are there. Default: 1."""

    group_id: str | None
    """The consumer group; needed to subscribe and to commit."""

    group_instance_id: str | None
    """A lasting name for this member: restarts within session.timeout.ms cause no rebalance (KIP-345)."""

    group_protocol: Literal["classic", "consumer"]
    """classic, or consumer: the server-side protocol of KIP-848. Default: classic."""

    group_remote_assignor: str | None
    """The broker's assignor to use with group.protocol=consumer."""

    heartbeat_interval_ms: int
    """The time between heartbeats of the classic protocol. Default: 3000."""

    isolation_level: Literal["read_committed", "read_uncommitted"]
    """read_committed hides records of open and aborted transactions. Default: read_uncommitted."""

    max_partition_fetch_bytes: int
    """Bytes per partition in one fetch response; the first batch always fits. Default: 1048576."""

    max_poll_interval_ms: int
    """A member that does not poll for this long leaves the group. Default: 300000."""

    max_poll_records: int
    """The most records one poll returns; it does not change what is fetched. Default: 500."""

    partition_assignment_strategy: Texts
    """Assignors of the classic protocol in order of preference: range, roundrobin, sticky, cooperative-sticky. Default:
    ['range', 'cooperative-sticky']."""

    session_timeout_ms: int
    """A member without a heartbeat for this long is taken out of the group. Default: 45000."""

    share_acknowledgement_mode: Literal["implicit", "explicit"]
    """Share groups: records are acknowledged by the next poll, or one by one. Default: implicit."""

    share_acquire_mode: Literal["batch_optimized", "record_limit"]
    """Share groups: whole batches at a time, or at most max.poll.records. Default: batch_optimized."""


class AdminSettings(ClusterSettings, total=False):
    """The configs of administrative clients."""

    bootstrap_controllers: Texts
    """Controllers to talk to instead of brokers (KIP-919); not supported yet."""

    default_api_timeout_ms: int
    """How long a call may take, retries included. Default: 60000."""

    retries: int
    """How often a call may be tried again within its time. Default: 2147483647."""
