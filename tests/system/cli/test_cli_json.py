"""docs/JSON.md has the shape of what each command prints with --json (`pytest --rewrite` writes the page)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas import Admin, Consumer, Producer, ShareConsumer
from barnabas.cli.app import main
from barnabas.server.broker.authorization.loading import STANDARD
from barnabas.spark.delivery.checkpoints import CheckpointHistory
from barnabas.spark.delivery.identity import LedgerEntry, digest_of, standing_of
from barnabas.spark.errors import BatchConflictError
from barnabas.spark.pipelines.state import find_project
from barnabas.testing import EmbeddedBroker
from tests.progress import wait_until
from tests.system.cli.json_shapes import EMPTY, render, shape
from tests.system.registry.conftest import RunningRegistry
from tests.unit.cli.test_cli_pipelines import ran

pytestmark = pytest.mark.system

PAGE = Path(__file__).parents[3] / "docs" / "JSON.md"
BEGIN, END = "<!-- shapes -->\n", "<!-- /shapes -->\n"
COMMANDS: Final = (
    "topics create invoices -p 2 -c retention.ms=1000", "topics list", "topics describe orders",
    "consume orders --until-end", "groups list", "groups describe billing",
    "groups reset-offsets archive --topic orders --to earliest --dry-run",
    "share-groups list", "share-groups describe printers",
    "share-groups reset-offsets printers --topic orders --to earliest --dry-run",
    "transactions list", "transactions describe receipts-1", "transactions describe-producers orders 0",
    "configs describe --topic orders", "users list", "tokens create", "tokens list", "acls list", "quotas list",
    "logs dirs", "logs offsets orders", "cluster describe", "cluster apis", "cluster quorum",
    "cluster reassign --topic orders --to 1 --dry-run", "cluster moves", "cluster elect",
    "links list", "links describe paris", "links verify paris", "links drill paris", "links pause paris payments",
    "links failover paris --dry-run", "pipelines list", "pipelines describe shop",
    "pipelines repair --checkpoint checkpoint",
    "cluster rebalance --sample 0", "cluster heal",
    "top --interval 0.5", "clients", "clients --by producer",
    "context list", "context show", "schemas register orders-value order.avsc", "schemas list",
    "backup run saved", "backup list saved", "backup describe saved", "backup prune saved --keep 1 --dry-run",
    "verify saved", "verify saved --cluster", "restore saved --topics invoices",
    "schemas show orders-value", "schemas check orders-value order.avsc", "schemas compatibility orders-value",
)  # fmt: skip


CONTEXTS: Final = {"tokens": "sasl"}
"""The contexts of nouns that the broker of the other commands does not serve."""
SASL: Final = {
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="secret" '
        'user_alice="secret";'
    ),
    "delegation.token.secret.key": "secret",
}


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A broker with a bit of everything, and a registry, in a context."""
    secured = {
        "authorizer.class.name": STANDARD,
        "super.users": "User:ANONYMOUS",
    }
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BARNABAS_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.delenv("BARNABAS_BOOTSTRAP", raising=False)
    (tmp_path / "order.avsc").write_text('{"type": "record", "name": "Order", "fields": []}')
    (tmp_path / "lines").write_text("h:x\tk:v\nh:x\tk:v\n")
    (tmp_path / "password").write_text("secret\n")
    (tmp_path / "sasl.properties").write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=alice\nsasl.password=secret\n"
    )
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with (
        EmbeddedBroker(config=secured) as broker,
        EmbeddedBroker() as source,
        EmbeddedBroker(config=SASL, listener="SASL_PLAINTEXT://127.0.0.1:0") as sasl,
        RunningRegistry(broker.bootstrap_servers) as registry,
    ):
        sasl_context = f"context set sasl -b {sasl.bootstrap_servers} --command-config sasl.properties"
        for line in (
            f"topics create payments -b {source.bootstrap_servers}",
            f"produce payments -f lines -b {source.bootstrap_servers}",
            f"context set test -b {broker.bootstrap_servers} --registry {registry.url}",
            "topics create orders -c retention.ms=86400000", "produce orders --headers -k : -f lines",
            "consume orders -g archive -n 1 -B", "users set alice --password-file password",
            "acls add --principal User:alice --consumer --topic orders --group billing",
            "quotas set --user alice producer_byte_rate=1048576", sasl_context,
            f"links create paris --source {source.bootstrap_servers} --topics payments "
            "--config mirror.metadata.refresh.interval.ms=200",
            "pipelines init shop",
        ):  # fmt: skip
            run(monkeypatch, line)
        ran(find_project("shop"))
        refused_by_a_ledger(tmp_path / "checkpoint")
        with ShareConsumer(bootstrap_servers=broker.bootstrap_servers, group_id="printers") as printers:
            printers.subscribe(["orders"])
            wait_until(lambda: bool(printers.poll(100) or printers.assignment()), "the share consumer has partitions")
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            wait_until(
                lambda: [one.lag for one in admin.describe_mirrors(["paris"])] == [0], "the mirror has all records"
            )
        with (
            Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="receipts-1") as producer,
            Consumer(
                bootstrap_servers=broker.bootstrap_servers, group_id="billing", auto_offset_reset="earliest"
            ) as consumer,
        ):
            consumer.subscribe(["orders"])
            next(iter(consumer))
            consumer.commit()
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("orders", b"v").result()
            yield
            producer.abort_transaction()


def refused_by_a_ledger(checkpoint: Path) -> None:
    """A checkpoint whose newest micro-batch is another one than that of the ledger of a table."""
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets" / "1").write_text('v1\n{}\n{"orders": {"0": 3}}')
    (checkpoint / "metadata").write_text('{"id": "7a0e4bd1-0000-4000-8000-000000000001"}')
    entry = 'v1\n{}\n{"orders": {"0": 2}}'
    stored = LedgerEntry(1, digest_of(entry), offsets=entry)
    history = CheckpointHistory(str(checkpoint))
    with pytest.raises(BatchConflictError):
        history.explain(lambda: standing_of(lambda _: stored, "the query", 1, history, "the table orders"))


def run(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr(sys, "argv", ["barnabas", *line.split()])
    try:
        main()
    except SystemExit as left:
        assert not left.code, line


def documents(text: str) -> list[Any]:
    """One document, or one in each line."""
    try:
        return [json.loads(text)]
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]


@pytest.mark.usefixtures("servers")
def test_the_page_says_what_the_commands_print(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    parts = []
    for line in COMMANDS:
        if line.startswith("restore"):
            run(monkeypatch, "topics delete invoices --yes")
        capsys.readouterr()
        monkeypatch.setenv("BARNABAS_CONTEXT", CONTEXTS.get(line.split()[0], "test"))
        run(monkeypatch, f"{line} --json")
        name = command if (command := " ".join(line.split()[:2])) in EMPTY else line.split()[0]
        printed = documents(capsys.readouterr().out)
        each = ", in each line" if line.startswith("consume") else ""
        parts.append(f"`barnabas {line} --json`{each}\n\n```json\n{render(shape(printed, name))}\n```\n")
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    expected = before + BEGIN + "\n".join(parts) + END + rest.split(END)[1]
    if request.config.getoption("--rewrite"):
        PAGE.write_text(expected, encoding="utf-8")
    else:
        assert text == expected
