"""Table: SASL conversations, and what the broker does in each. `kafka` is what Apache Kafka 4.3.1 does, where it
differs; an empty tuple stands for a conversation that is not played to Kafka.

The rows follow Kafka's SaslAuthenticatorTest and SaslServerAuthenticatorTest, SaslApiVersionsRequestTest,
ScramSaslServerTest and PlainSaslServerTest.
"""

from __future__ import annotations

from typing import Final, NamedTuple

ALL: Final = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
SESSION_MS: Final = 3_000
RECEIVE_SIZE: Final = 524_288
_JAAS: Final = (
    'org.apache.kafka.common.security.plain.PlainLoginModule required username="node" password="node-secret"'
    ' user_node="node-secret" user_alice="alice-secret" user_bob="bob-secret";'
)
LISTENERS: Final = ("SASL", "REAUTH", "PLAINONLY")
"""The listeners of the conversations, besides PLAINTEXT."""
SETTINGS: Final = {
    "listener.security.protocol.map": ",".join(
        ["PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT", *(f"{name}:SASL_PLAINTEXT" for name in LISTENERS)]
    ),
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": ALL,
    "listener.name.plainonly.sasl.enabled.mechanisms": "PLAIN",
    **{f"listener.name.{name.lower()}.plain.sasl.jaas.config": _JAAS for name in LISTENERS},
    **{
        f"listener.name.{name.lower()}.scram-sha-{bits}.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        )
        for name in ("SASL", "REAUTH")
        for bits in (256, 512)
    },
    **{
        f"listener.name.reauth.{mechanism.lower()}.connections.max.reauth.ms": str(SESSION_MS)
        for mechanism in ALL.split(",")
    },
    "connection.failed.authentication.delay.ms": "50",
    "max.connections": "1000",
}
USERS: Final = (
    ("alice", "SCRAM-SHA-256"),
    ("alice", "SCRAM-SHA-512"),
    ("bob", "SCRAM-SHA-256"),
    ("a,b=c", "SCRAM-SHA-256"),
)
"""The users of SCRAM. Each has the password NAME-secret."""


class Row(NamedTuple):
    name: str
    steps: tuple[str, ...]
    seen: tuple[str, ...]
    listener: str = "SASL"
    kafka: tuple[str, ...] | None = None
    reason: str = ""
    """Why Kafka differs."""


_HELLO: Final = f"handshake 0 {ALL}"
_PLAIN: Final = ("handshake PLAIN 1", "token 2 |alice|alice-secret")
_IN: Final = (_HELLO, "ok")
_SCRAM: Final = ("handshake SCRAM-SHA-256 1", "first 2", "final 2")
_SCRAM_IN: Final = (_HELLO, "challenge", "ok")
_SESSION: Final = f"ok, session of {SESSION_MS} ms"
_INVALID: Final = "58 Authentication failed: Invalid username or password"
_LENGTH: Final = "Kafka fails at a proof of another length, and closes without an answer."
_UNKNOWN_SEEN: Final = "Kafka refuses an unknown user one message earlier, which tells the names of the users."


def _refused(mechanism: str = "SCRAM-SHA-256", again: str = "authentication") -> str:
    return f"58 Authentication failed during {again} due to invalid credentials with SASL mechanism {mechanism}"


def _plain(name: str, token: str, seen: str) -> Row:
    return Row(f"plain: {name}", ("handshake PLAIN 1", f"token 2 {token}", "metadata"), (_HELLO, seen, "closed"))


def _first(name: str, message: str, *, hex_message: bool = False) -> Row:
    verb = "token-hex" if hex_message else "token"
    steps = ("handshake SCRAM-SHA-256 1", f"{verb} 2 {message}", "metadata")
    return Row(f"scram: {name}", steps, (_HELLO, _refused(), "closed"))


def _final(name: str, change: str, *, kafka: tuple[str, ...] | None = None, reason: str = "") -> Row:
    steps = ("handshake SCRAM-SHA-256 1", "first 2", f"final 2 {change}", "metadata")
    seen = (_HELLO, "challenge", _refused(), "closed")
    return Row(f"scram: {name}", steps, seen, kafka=None if kafka is None else (_HELLO, "challenge", *kafka),
               reason=reason)  # fmt: skip


def _garbage(name: str, data: str) -> Row:
    return Row(f"garbage: {name}", (f"bytes {data}",), ("closed",))


VERSIONS: Final = (
    *(Row(f"versions: v{v}, then a login", (f"versions {v}", *_PLAIN, "metadata"), ("versions 0", *_IN, "served"))
      for v in (0, 1, 2, 3, 4)),
    Row("versions: none, then a login", (*_PLAIN, "metadata"), (*_IN, "served")),
    Row("versions: an unsupported version, then a supported one",
        ("versions-99", "versions-99", "versions 3", *_PLAIN), ("versions 35", "versions 35", "versions 0", *_IN)),
    Row("versions: invalid, then valid", ("versions-invalid", "versions 3", *_PLAIN),
        ("versions 42", "versions 0", *_IN)),
    Row("versions: twice", ("versions 3", "versions 3"), ("versions 0", "closed")),
    Row("versions: after the handshake", ("handshake PLAIN 1", "versions 0", "metadata"),
        (_HELLO, "versions 34", "closed")),
    Row("versions: after the login", (*_PLAIN, "versions 3", "versions 3"), (*_IN, "versions 0", "versions 0")),
)  # fmt: skip

HANDSHAKES: Final = (
    *(Row(f"handshake: {m} v{v}", (f"handshake {m} {v}",), (_HELLO,)) for m in ALL.split(",") for v in (0, 1)),
    *(Row(f"handshake: {m or 'no mechanism'}", (f"handshake {m} 1", "metadata"), (f"handshake 33 {ALL}", "closed"))
      for m in ("GSSAPI", "OAUTHBEARER", "plain", "SCRAM-SHA-1", "", "X" * 32_000)),
    Row("handshake: unknown mechanism in v0", ("handshake CRAM-MD5 0", "metadata"), (f"handshake 33 {ALL}", "closed")),
    Row("handshake: a mechanism of another listener", ("handshake SCRAM-SHA-256 1", "metadata"),
        ("handshake 33 PLAIN", "closed"), "PLAINONLY"),
    Row("handshake: the mechanism of this listener", _PLAIN, ("handshake 0 PLAIN", "ok"), "PLAINONLY"),
    Row("handshake: v2", ("bytes 0000000a 0011 0002 00000001 ffff",), ("closed",)),
    Row("handshake: v-1", ("bytes 0000000a 0011 ffff 00000001 ffff",), ("closed",)),
    Row("handshake: without a body", ("bytes 0000000a 0011 0001 00000001 ffff",), ("closed",)),
    Row("handshake: cut off", ("bytes 0000000e 0011 0001 00000001 ffff 0005 504c",), ("closed",)),
    Row("handshake: twice", ("handshake PLAIN 1", "handshake PLAIN 1", "metadata"),
        (_HELLO, "handshake 34", "closed")),
    Row("handshake: after the login", (*_PLAIN, "handshake PLAIN 1", "metadata"), (*_IN, "handshake 34", "served")),
)  # fmt: skip

_APIS: Final = (
    (0, 9),
    (1, 12),
    (2, 6),
    (3, 9),
    (10, 3),
    (11, 6),
    (19, 5),
    (22, 4),
    (32, 2),
    (36, 2),
    (60, 1),
    (999, 0),
)
EARLY: Final = (
    *(Row(f"before the handshake: request {k} v{v}", (f"request {k} {v}",), ("closed",)) for k, v in _APIS),
    *(Row(f"after ApiVersions: request {k} v{v}", ("versions 3", f"request {k} {v}"), ("versions 0", "closed"))
      for k, v in ((0, 9), (3, 9), (36, 2))),
    Row("during authentication: an unknown API", ("handshake PLAIN 1", "request 999 0"), (_HELLO, "closed")),
    Row("during authentication: metadata", ("handshake PLAIN 1", "metadata", "metadata"),
        (_HELLO, "not served", "closed")),
    Row("between the messages of SCRAM: metadata", ("handshake SCRAM-SHA-256 1", "first 2", "metadata", "final 2"),
        (_HELLO, "challenge", "not served", "closed")),
    Row("between the messages of SCRAM: a handshake",
        ("handshake SCRAM-SHA-256 1", "first 2", "handshake PLAIN 1", "final 2"),
        (_HELLO, "challenge", "handshake 34", "closed")),
    Row("ahead: a wrong password and a request",
        ("ahead handshake PLAIN 1; token 2 |alice|wrong; metadata",), (f"{_HELLO}; {_INVALID}; closed",)),
    Row("ahead: the right password and a request",
        ("ahead handshake PLAIN 1; token 2 |alice|alice-secret; metadata",), (f"{_HELLO}; ok; served",)),
    Row("ahead: two handshakes", ("ahead handshake PLAIN 1; handshake PLAIN 1; metadata",),
        (f"{_HELLO}; handshake 34; closed",)),
)  # fmt: skip

PLAIN: Final = (
    *(Row(f"plain: right, SaslAuthenticate v{v}",
          ("handshake PLAIN 1", f"token {v} |alice|alice-secret", "metadata"), (*_IN, "served")) for v in (0, 1, 2)),
    *(Row(f"plain: wrong, SaslAuthenticate v{v}", ("handshake PLAIN 1", f"token {v} |alice|x", "metadata"),
          (_HELLO, _INVALID, "closed")) for v in (0, 1, 2)),
    Row("plain: SaslAuthenticate v3", ("handshake PLAIN 1", "bytes 0000000a 0024 0003 00000001 ffff"),
        (_HELLO, "closed")),
    Row("plain: SaslAuthenticate without a body", ("handshake PLAIN 1", "bytes 0000000a 0024 0001 00000001 ffff"),
        (_HELLO, "closed")),
    Row("plain: the user as authorization id", ("handshake PLAIN 1", "token 2 alice|alice|alice-secret", "metadata"),
        (*_IN, "served")),
    Row("plain: SaslAuthenticate after the login", (*_PLAIN, "token 2 |alice|alice-secret", "metadata"),
        (*_IN, "34", "served")),
    Row("plain: a large request after the login", (*_PLAIN, "large"), (*_IN, "served")),
    _plain("unknown user", "|mallory|alice-secret", _INVALID),
    _plain("the password of another user", "|alice|bob-secret", _INVALID),
    _plain("another case", "|Alice|alice-secret", _INVALID),
    _plain("a longer password", "|alice|alice-secret1", _INVALID),
    _plain("a shorter password", "|alice|alice-secre", _INVALID),
    _plain("no user", "||alice-secret", "58 Authentication failed: username not specified"),
    _plain("no password", "|alice|", "58 Authentication failed: password not specified"),
    _plain("nothing but NULs", "||", "58 Authentication failed: username not specified"),
    _plain("another authorization id (CVE-2017-12610)", "bob|alice|alice-secret",
           "58 Authentication failed: Client requested an authorization id that is different from username"),
    _plain("one token", "alice", "58 Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
    _plain("two tokens", "alice|alice-secret", "58 Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
    _plain("four tokens", "|alice|alice-secret|x", "58 Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
    _plain("NUL at the end", "|alice|alice-secret|", "58 Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
    _plain("nothing", "", "58 Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
    _plain("a name of 400 KB", f"|{'a' * 400_000}|x", _INVALID),
    _plain("a password of 400 KB", f"|alice|{'a' * 400_000}", _INVALID),
    Row("plain: not UTF-8", ("handshake PLAIN 1", "token-hex 2 00616c69636500fffe", "metadata"),
        (_HELLO, _INVALID, "closed")),
)  # fmt: skip

_OTHER_USER: Final = "user mallory mallory-secret SCRAM-SHA-256"
SCRAM: Final = (
    *(Row(f"scram: {m}, SaslAuthenticate v{v}",
          (f"user alice alice-secret {m}", f"handshake {m} 1", f"first {v}", f"final {v}", "metadata"),
          (*_SCRAM_IN, "served")) for m in ("SCRAM-SHA-256", "SCRAM-SHA-512") for v in (0, 1, 2)),
    *(Row(f"scram: wrong password, {m}",
          (f"user alice wrong {m}", f"handshake {m} 1", "first 2", "final 2", "metadata"),
          (_HELLO, "challenge", _refused(m), "closed")) for m in ("SCRAM-SHA-256", "SCRAM-SHA-512")),
    Row("scram: unknown user", (_OTHER_USER, *_SCRAM, "metadata"), (_HELLO, "challenge", _refused(), "closed"),
        kafka=(_HELLO, _refused(), "closed", "closed"), reason=_UNKNOWN_SEEN),
    Row("scram: a user of the other mechanism",
        ("user bob bob-secret SCRAM-SHA-512", "handshake SCRAM-SHA-512 1", "first 2", "final 2"),
        (_HELLO, "challenge", _refused("SCRAM-SHA-512")), kafka=(_HELLO, _refused("SCRAM-SHA-512"), "closed"),
        reason=_UNKNOWN_SEEN),
    Row("scram: the messages of SHA-512 for SHA-256",
        ("user alice alice-secret SCRAM-SHA-512", *_SCRAM), (_HELLO, "challenge", _refused()),
        kafka=(_HELLO, "challenge", "closed"), reason=_LENGTH),
    Row("scram: a name with a comma and an equals sign", ("user a,b=c a,b=c-secret SCRAM-SHA-256", *_SCRAM, "metadata"),
        (*_SCRAM_IN, "served")),
    Row("scram: the message of PLAIN", ("handshake SCRAM-SHA-256 1", "token 2 |alice|alice-secret"),
        (_HELLO, _refused())),
    Row("scram: a last message that was recorded before (replay)",
        (*_SCRAM, "again", "handshake SCRAM-SHA-256 1", "first 2", "final 2 replayed", "metadata"),
        (*_SCRAM_IN, _HELLO, "challenge", _refused(), "closed")),
    Row("scram: the same client nonce again", (*_SCRAM, "again", *_SCRAM, "metadata"),
        (*_SCRAM_IN, *_SCRAM_IN, "served")),
    Row("scram: another message after the login", (*_SCRAM, "final 2 replayed", "metadata"),
        (*_SCRAM_IN, "34", "served")),
    Row("scram: other bytes of the channel binding", ("handshake SCRAM-SHA-256 1", "first 2", "final 2 binding"),
        (_HELLO, "challenge", _refused())),
    _first("nothing", ""),
    _first("garbage", "garbage"),
    _first("GS2 flag y", "y,,n=alice,r=abc"),
    _first("GS2 flag p", "p=tls-unique,,n=alice,r=abc"),
    _first("without a name", "n,,r=abc"),
    _first("an empty name", "n,,n=,r=abc"),
    _first("a wrong escape in the name", "n,,n=al=2Dice,r=abc"),
    _first("without a nonce", "n,,n=alice"),
    _first("an empty nonce", "n,,n=alice,r="),
    _first("NUL in the name", "n,,n=al|ice,r=abc"),
    _first("another authorization id (CVE-2017-12610)", "n,a=bob,n=alice,r=abc")._replace(seen=(
        _HELLO, "58 Authentication failed: Client requested an authorization id that is different from username",
        "closed")),
    _first("not UTF-8", "6e2c2c6e3dff2c723d616263", hex_message=True),
    _first("an unknown delegation token", "n,,n=token,r=abc,tokenauth=true")._replace(
        seen=(_HELLO, "challenge", "not served"), kafka=(_HELLO, _refused(), "closed"), reason=_UNKNOWN_SEEN),
    _first("a name of 400 KB", f"n,,n={'a' * 400_000},r=abc")._replace(
        kafka=(), reason="Kafka does not answer, and the connection stays open."),
    Row("scram: an extension in the first message",
        ("handshake SCRAM-SHA-256 1", "token 2 n,,n=alice,r=abc,x=y"), (_HELLO, "challenge")),
    Row("scram: the user as authorization id",
        ("handshake SCRAM-SHA-256 1", "token 2 n,a=alice,n=alice,r=abc"), (_HELLO, "challenge")),
    Row("scram: the attribute m", ("handshake SCRAM-SHA-256 1", "token 2 n,,m=x,n=alice,r=abc"),
        (_HELLO, "challenge")),
    _final("another nonce (CVE-2024-56128)", "other-nonce"),
    _final("a truncated nonce (CVE-2024-56128)", "short-nonce"),
    _final("a part of the nonce (CVE-2024-56128)", "own-nonce"),
    _final("no proof", "no-proof"),
    _final("an empty proof", "empty-proof", kafka=("closed", "closed"), reason=_LENGTH),
    _final("a short proof", "short-proof", kafka=("closed", "closed"), reason=_LENGTH),
    _final("a proof of zeros", "zero-proof"),
    _final("a proof that is not base64", "not-base64"),
    _final("an extension that the proof does not cover", "extension", kafka=("ok", "served"),
           reason="Kafka does not sign the extensions of the last message, against RFC 5802."),
    _final("the first message again", "first"),
)  # fmt: skip

RAW: Final = (
    Row("raw: plain", ("handshake PLAIN 0", "raw |alice|alice-secret", "metadata"), (_HELLO, "raw 0", "served")),
    Row("raw: plain, wrong password", ("handshake PLAIN 0", "raw |alice|wrong"), (_HELLO, "closed")),
    Row("raw: scram", ("handshake SCRAM-SHA-256 0", "raw-first", "raw-final", "metadata"),
        (_HELLO, "raw challenge", "raw 46", "served")),
    Row("raw: scram, wrong password",
        ("user alice wrong SCRAM-SHA-256", "handshake SCRAM-SHA-256 0", "raw-first", "raw-final"),
        (_HELLO, "raw challenge", "closed")),
    Row("raw: a request with a header", ("handshake PLAIN 0", "token 2 |alice|alice-secret"), (_HELLO, "closed")),
    Row("raw: an empty message", ("handshake PLAIN 0", "bytes 00000000"), (_HELLO, "closed")),
    Row("raw: a message that is too large", ("handshake PLAIN 0", f"bytes {RECEIVE_SIZE + 1:08x}"),
        (_HELLO, "closed")),
    Row("raw: other requests after the login", ("handshake PLAIN 0", "raw |alice|alice-secret", "token 2 |alice|x",
        "handshake PLAIN 1", "metadata"), (_HELLO, "raw 0", "34", "handshake 34", "served")),
)  # fmt: skip

GARBAGE: Final = (
    _garbage("an empty frame", "00000000"),
    _garbage("a negative length", "ffffffff"),
    _garbage("the largest length", "7fffffff"),
    _garbage("one byte more than sasl.server.max.receive.size", f"{RECEIVE_SIZE + 1:08x}"),
    _garbage("the beginning of a TLS handshake", "16030102000100 01fc0303"),
    _garbage("an HTTP request", b"GET / HTTP/1.1\r\n\r\n".hex()),
    _garbage("a GSSAPI token of an ancient client", "0000000a 60820100 0102 03040506"),
    _garbage("a header that is cut off", "00000003 001200"),
    Row("garbage: a message of the largest size, of which no byte follows", (f"bytes {RECEIVE_SIZE:08x}",), ("open",)),
)  # fmt: skip

_REAUTH_PLAIN: Final = (_HELLO, _SESSION)
SESSIONS: Final = (
    Row("session: none without connections.max.reauth.ms", (*_PLAIN, "handshake PLAIN 1"), (*_IN, "handshake 34")),
    Row("session: its length is announced", (*_PLAIN, "metadata"), (*_REAUTH_PLAIN, "served"), "REAUTH"),
    Row("session: renewed", (*_PLAIN, *_PLAIN, "metadata"), (*_REAUTH_PLAIN, *_REAUTH_PLAIN, "served"), "REAUTH"),
    Row("session: renewed by SCRAM", (*_SCRAM, *_SCRAM, "metadata"),
        (_HELLO, "challenge", _SESSION, _HELLO, "challenge", _SESSION, "served"), "REAUTH"),
    Row("session: renewed twice within a second", (*_PLAIN, *_PLAIN, "handshake PLAIN 1", "metadata"),
        (*_REAUTH_PLAIN, *_REAUTH_PLAIN, "handshake 34", "served"), "REAUTH"),
    Row("session: renewed again after a second", (*_PLAIN, *_PLAIN, "wait 1.2", *_PLAIN, "metadata"),
        (*_REAUTH_PLAIN * 3, "served"), "REAUTH"),
    Row("session: renewed without headers", (*_PLAIN, "handshake PLAIN 0", "raw |alice|alice-secret", "metadata"),
        (*_REAUTH_PLAIN, _HELLO, "raw 0", "served"), "REAUTH"),
    Row("session: another user", (*_PLAIN, "handshake PLAIN 1", "token 2 |bob|bob-secret", "metadata"),
        (*_REAUTH_PLAIN, _HELLO, "58 Cannot change principals during re-authentication from User.alice: User.bob",
         "closed"), "REAUTH"),
    Row("session: the wrong password", (*_PLAIN, "handshake PLAIN 1", "token 2 |alice|wrong", "metadata"),
        (*_REAUTH_PLAIN, _HELLO, _INVALID, "closed"), "REAUTH"),
    Row("session: the wrong password of SCRAM",
        (*_SCRAM, "user alice wrong SCRAM-SHA-256", *_SCRAM, "metadata"),
        (_HELLO, "challenge", _SESSION, _HELLO, "challenge", _refused(again="re-authentication"), "closed"), "REAUTH"),
    Row("session: another mechanism", (*_PLAIN, "handshake SCRAM-SHA-256 1", "first 2", "metadata"),
        (*_REAUTH_PLAIN, _HELLO, "58 SASL mechanism 'SCRAM-SHA-256' requested by client is not supported for"
         " re-authentication of mechanism 'PLAIN'", "closed"), "REAUTH",
        kafka=(*_REAUTH_PLAIN, _HELLO, "closed", "closed"), reason="Kafka closes without an answer."),
    Row("session: an unknown mechanism", (*_PLAIN, "handshake GSSAPI 1", "metadata"),
        (*_REAUTH_PLAIN, f"handshake 33 {ALL}", "closed"), "REAUTH", kafka=(*_REAUTH_PLAIN, "closed", "closed"),
        reason="Kafka closes without an answer."),
    Row("session: a request while it is renewed", (*_PLAIN, "handshake PLAIN 1", "metadata"),
        (*_REAUTH_PLAIN, _HELLO, "not served"), "REAUTH"),
    Row("session: expired", (*_PLAIN, "wait 3.3", "metadata"), (*_REAUTH_PLAIN, "closed"), "REAUTH"),
    Row("session: expired, of a client that cannot renew it",
        ("handshake PLAIN 1", "token 0 |alice|alice-secret", "wait 3.3", "metadata"), (_HELLO, "ok", "closed"),
        "REAUTH"),
    Row("session: expired, and renewed", (*_PLAIN, "wait 3.3", *_PLAIN, "metadata"),
        (*_REAUTH_PLAIN, *_REAUTH_PLAIN, "served"), "REAUTH"),
    Row("session: of a user that is removed", ("add carol", "user carol carol-secret SCRAM-SHA-256", *_SCRAM,
        "remove carol", "metadata", *_SCRAM, "metadata"),
        (_HELLO, "challenge", _SESSION, "served", _HELLO, "challenge", _refused(again="re-authentication"), "closed"),
        "REAUTH", kafka=(_HELLO, "challenge", _SESSION, "served", _HELLO, _refused(again="re-authentication"),
                         "closed", "closed"), reason=_UNKNOWN_SEEN),
    Row("session: of a user that is removed, and added again",
        ("add dave", "user dave dave-secret SCRAM-SHA-256", *_SCRAM, "remove dave", "add dave", *_SCRAM, "metadata"),
        (_HELLO, "challenge", _SESSION, _HELLO, "challenge", _SESSION, "served"), "REAUTH"),
)  # fmt: skip

ROWS: Final[tuple[Row, ...]] = (
    *VERSIONS, *HANDSHAKES, *EARLY, *PLAIN, *SCRAM, *RAW, *GARBAGE, *SESSIONS
)  # fmt: skip
