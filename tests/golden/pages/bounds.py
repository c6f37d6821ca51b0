"""The table "Bounds and totals" of docs/SECURITY.md, and the limits of the code that are not in the table, with the
reason."""

from __future__ import annotations

import ast
import inspect
from importlib import import_module
from pathlib import Path
from typing import Final

SRC: Final = Path(__file__).parents[3] / "src"
_MIB: Final = 1024 * 1024
PACKAGES: Final = (
    "protocol/transport",
    "server/broker",
    "server/coordination",
    "server/metadata/controller/delegation_tokens.py",
    "console/server.py",
    "console/web/responses.py",
    "console/access",
    "core/inflation_total.py",
)
"""Where everything that strangers can make a node keep is bounded. A limit here is in the table or in OTHERS."""

_T: Final = "protocol.transport"
_H: Final = f"{_T}.http"
_B: Final = "server.broker"
_D: Final = "server.metadata.controller.delegation_tokens"
_U: Final = f"{_B}.client_usage"
_C: Final = "console"
ROWS: Final[tuple[tuple[str, str, str, str], ...]] = (
    ("connections of Kafka's listeners", "`max.connections.per.ip`", "`max.connections`", "both, unlimited by default"),
    ("connections that wait to be admitted", "", f"{{{_T}.admission.WAITING_MAX}} of a listener", ""),
    ("connections that have not authenticated", f"{{{_T}.secure_connection.AUTHENTICATION_S}} s",
     f"{{{_T}.unauthenticated.CONNECTIONS_MAX}} of a listener, and a quarter of the descriptors; "
     f"{{{_T}.unauthenticated.HELD_BYTES_MAX}} of messages", "`sasl.server.max.receive.size`"),
    ("requests that wait", f"{{{_T}.limits.TransportConfig.pipelined_requests_max}} of a connection", "500",
     "`queued.max.requests`"),
    ("bytes of requests", "100 MiB", "off", "`socket.request.max.bytes`, `queued.max.request.bytes`"),
    ("bytes of a request of names and numbers", f"{{{_B}.dispatch.PLAIN_REQUEST_BYTES_MAX}}", "", ""),
    ("responses that clients do not receive",
     f"{{{_T}.limits.TransportConfig.write_buffer_bytes}} before the next request starts",
     f"{{{_T}.limits.TransportConfig.unsent_bytes_max}}: then those that receive nothing are disconnected; from "
     f"{{{_B}.handlers.data.fetch.UNSENT_BYTES_MAX}} on, Fetch responses shrink", ""),
    ("long requests of a client that are in work", "one slice of each, but one of them",
     f"{{{_T}.limits.TransportConfig.pipelined_requests_max}} of a connection", ""),
    ("clients whose use of the event loop is remembered", "", f"{{{_T}.turns.IDLE_CLIENTS_MAX}} of a listener", ""),
    ("descriptions of partitions for Metadata", "", f"{{{_B}.metadata_cache.DESCRIBED_MAX}}", ""),
    ("bytes of a batch without compression",
     "64 MiB (MESSAGE_TOO_LARGE); "f"{{{_B}.checking.checker.REQUEST_INFLATED_BYTES_MAX}} of a request",
     "{core.inflation_total.INFLATING_BYTES_MAX} that the threads of a process inflate at the same time", ""),
    ("bytes of a compressed record", "2 GiB (INVALID_RECORD), so that the bound of its batch comes first",
     "as for its batch", "`max.decompressed.message.bytes`"),
    ("inflated batches that are compacted, mirrored, or read by Spark", "8 MiB and one batch",
     "of each cleaner process and task", ""),
    ("recompressed batches that wait for their append", "64 MiB inflated each",
     f"{{{_B}.checking.checker.KEPT_BYTES_MAX}}; others are checked again", ""),
    ("metrics that clients push", "1 MiB, ten times as much inflated", "one push in each interval of an instance",
     "`telemetry.max.bytes`"),
    ("instances of clients that push metrics",
     f"{{{_B}.client_metrics.instances.INSTANCES.of_principal}} of a principal, "
     f"{{{_B}.client_metrics.instances.INSTANCES.of_address}} of an address",
     f"{{{_B}.client_metrics.instances.INSTANCES.total}}", ""),
    ("values of pushed metrics",
     f"{{{_B}.client_metrics.store.SERIES_OF_CLIENT_MAX}} of an instance, "
     f"{{{_B}.client_metrics.store.SERIES.of_address}} of an address, "
     f"{{{_B}.client_metrics.store.SERIES.of_principal}} of a principal; "
     f"{{{_B}.client_metrics.store.NAMES_LENGTH_MAX}} characters of names each",
     f"{{{_B}.client_metrics.store.SERIES.total}}", ""),
    ("what clients use, by name",
     f"names of {{{_U}.tables.NAME_LENGTH_MAX}} characters; what is least active makes room",
     f"{{{_U}.tables.NAMES_MAX}} client ids, addresses, principals and partitions each, "
     f"{{{_U}.tables.PARTITION_CLIENTS_MAX}} clients of partitions; {{{_U}.series.SERIES_MAX}} series of each kind, "
     f"and {{{_U}.series.NEW_NAMES_PER_HOUR}} new ones an hour", ""),
    ("what is known about rights of a principal", "", f"{{{_B}.authorization.grants.GRANTS_MAX}} decisions", ""),
    ("addresses with a count of connections", "", f"{{{_T}.connection_quotas.ADDRESSES_MAX}}", ""),
    ("partitions whose transactions are being verified", "", f"{{{_B}.verification.GUARDS_MAX}}", ""),
    ("expressions of subscriptions, with their topics", "",
     "{server.coordination.topic_regexes._EXPRESSIONS_MAX}", ""),
    ("delegation tokens",
     f"{{{_D}.RENEWERS_MAX}} renewers and {{{_D}.NAMES_LENGTH_MAX}} of names; {{{_D}.TOKENS_OF_REQUESTER_MAX}} tokens "
     f"and {{{_D}.NAMES_OF_REQUESTER_MAX}} of a requester",
     f"{{{_D}.TOKENS_MAX}} tokens, {{{_D}.NAMES_MAX}} of names", ""),
    ("HTTP connections (registry, Connect)",
     f"{{{_H}.server.HttpLimits.of_address}} of an address; {{{_H}.connection.HEAD_S}} s for TLS and a head, "
     f"{{{_H}.server.HttpLimits.body_s}} s for a body, {{{_H}.server.HttpLimits.receipt_s}} s for the "
     "receipt", f"{{{_H}.server.HttpLimits.total}}", ""),
    ("HTTP bodies and responses above 64 KiB (registry, Connect)",
     f"{{{_H}.gate.BodyLimits.of_request}} a body; {{{_H}.gate.BodyLimits.of_address}} of an address",
     f"{{{_H}.gate.BodyLimits.total}}", ""),
    ("connections of the console", "125 of an address; the same times", "500", ""),
    ("bodies and responses of the console above 64 KiB",
     f"{{{_C}.web.responses.BODY_BYTES_MAX}} a body; {{{_C}.web.responses.LOGIN_BYTES_MAX}} before the login",
     "64 MiB", ""),
    ("logins that are being checked, of each HTTP server",
     f"{{{_H}.logins.CHECKS_OF_ADDRESS_MAX}} of an address",
     f"{{{_H}.logins.CHECKS_MAX}}, hashed passwords one at a time", ""),
    ("sessions of the console", f"{{{_C}.access.gate.SESSIONS_OF_USER_MAX}} of a user", "", ""),
    ("connections of the node's pages whose head is not complete, and probes",
     f"{{{_H}.pages.CONNECTIONS_OF_ADDRESS_MAX}} of an address, {{{_H}.connection.HEAD_S}} s for TLS and a head",
     f"{{{_H}.pages.CONNECTIONS_MAX}}", ""),
    ("other pages of a node, from the head to the receipt",
     f"{{{_H}.pages.PAGES_OF_ADDRESS_MAX}} of an address, {{{_H}.pages._RECEIPT_S}} s for the receipt; a page is built "
     "once for all that wait for it", f"{{{_H}.pages.PAGES_MAX}}", ""),
)  # fmt: skip
"""What is kept, the bound of one, the total, and the config. `{module.NAME}` is the value of a constant."""

_WORK: Final = "work of one request or turn, nothing that is kept"
_OUTGOING: Final = "what this side requests from servers that it trusts"
_FORMAT: Final = "the format's own limit"
OTHERS: Final[dict[str, str]] = {
    "protocol.transport.oauth.fetching.RESPONSE_BYTES_MAX": _OUTGOING,
    "protocol.transport.oauth.login_tokens._SHARED_MAX": _OUTGOING,
    "protocol.transport.node_client.IN_FLIGHT_MAX": _OUTGOING,
    "protocol.transport.node_client._REUSED_BYTES_MAX": _OUTGOING,
    "protocol.transport.http.pages.HEAD_BYTES_MAX": "of the connections in the table",
    "protocol.transport.http.gate.DROPPED_BYTES_MAX": "bytes that are read and dropped",
    "protocol.transport.http.logins._CREDENTIALS_MAX": "of the connections in the table",
    "protocol.transport.tls_agreement._TURNS_MAX": _WORK,
    "protocol.transport.listener._REUSED_BYTES_MAX": "memory of requests that is kept for the next ones",
    "server.broker.fetching.session._EPOCH_MAX": _FORMAT,
    "server.broker.checking.checker.TURN_COST_MAX": _WORK,
    "server.broker.checking.checker.REQUEST_RECORDS_MAX": _WORK,
    "server.broker.handlers.quorum.forwards.FETCH_BYTES_MAX": _WORK,
    "server.broker.handlers.admin.describe_configs.EXTRA_ROWS_MAX": _WORK,
    "server.broker.handlers.cluster.alter_replica_log_dirs._LOGGED_MAX": _WORK,
    "server.broker.shares.MEMBER_ID_CHARS_MAX": _FORMAT,
    "server.broker.request_metrics._VERSIONS_MAX": "versions of an API",
    "server.broker.request_metrics._SCANNED_MAX": _WORK,
    "server.broker.verification.REQUESTS_MAX": _OUTGOING,
    "server.broker.client_usage.tables.PENDING_MAX": _WORK,
    "server.broker.share_sessions.EPOCH_MAX": _FORMAT,
    "server.broker.client_metrics.otlp.POINTS_MAX": _WORK,
    "server.broker.client_metrics.otlp.FIELDS_MAX": _WORK,
    "server.coordination.share.persister.ATTEMPTS_MAX": _OUTGOING,
    "server.coordination.runtime.RECORD_BYTES_MAX": _WORK,
    "server.coordination.transaction.service._COST_ON_LOOP_MAX": _WORK,
    "server.coordination.transaction.service.END_WAITERS_MAX": _WORK,
    "server.coordination.transaction.state.EPOCH_MAX": _FORMAT,
    "server.coordination.context.APPEND_BYTES_MAX": _WORK,
    "console.web.responses._FIELDS_MAX": _WORK,
    "protocol.transport.http.logins._REMEMBERED_MAX": "passwords that were right",
    "console.access.sessions._COOKIE_CHARACTERS_MAX": _WORK,
}


def limits() -> set[str]:
    """The names of all constants of PACKAGES that end with _MAX, without `barnabas.`."""
    found: set[str] = set()
    for package in PACKAGES:
        place = SRC / "barnabas" / package
        for path in [place] if place.is_file() else place.rglob("*.py"):
            module = ".".join(path.relative_to(SRC / "barnabas").with_suffix("").parts)
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
                found |= {f"{module}.{t.id}" for t in targets if isinstance(t, ast.Name) and t.id.endswith("_MAX")}
    return found


def listed() -> set[str]:
    """The names of the constants in the table."""
    return {part.partition("}")[0] for row in ROWS for cell in row for part in cell.split("{")[1:]}


def _value(name: str) -> object:
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            found: object = import_module(".".join(["barnabas", *parts[:length]]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            if isinstance(found, type):  # the default of a field
                found = inspect.signature(found).parameters[part].default
            else:
                found = getattr(found, part)
        return found
    raise LookupError(name)


def _text(name: str) -> str:
    value = _value(name)
    assert isinstance(value, int | float)
    size = int(value)
    is_bytes = "BYTES" in name or "_bytes" in name or "BodyLimits" in name
    is_bytes = is_bytes or name.endswith(("NAMES_LENGTH_MAX", "delegation_tokens.NAMES_MAX"))
    if name.endswith("NAMES_OF_REQUESTER_MAX") or (is_bytes and "client_metrics" not in name):
        for unit, word in ((1024 * _MIB, "GiB"), (_MIB, "MiB"), (1024, "KiB")):
            if size % unit == 0:
                return f"{size // unit} {word}"
    return f"{size:,}"


def render_bounds() -> str:
    lines = ["| What is kept | Bound of one | Total | Config |", "|---|---|---|---|"]
    for row in ROWS:
        cells = [
            cell.split("{")[0] + "".join(_text(p.partition("}")[0]) + p.partition("}")[2] for p in cell.split("{")[1:])
            for cell in row
        ]
        lines.append("|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|")
    return "\n".join(lines) + "\n"
