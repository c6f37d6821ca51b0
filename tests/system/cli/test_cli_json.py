"""docs/JSON.md has the shape of what each command prints with --json (`pytest --rewrite` writes the page)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas import Consumer, Producer
from barnabas.cli.app import main
from barnabas.server.broker.authorization.loading import STANDARD
from barnabas.testing import EmbeddedBroker
from tests.system.cli.json_shapes import render, shape
from tests.system.registry.conftest import RunningRegistry

pytestmark = pytest.mark.system

PAGE = Path(__file__).parents[3] / "docs" / "JSON.md"
BEGIN, END = "<!-- shapes -->\n", "<!-- /shapes -->\n"
COMMANDS: Final = (
    "topics create invoices -p 2 -c retention.ms=1000", "topics list", "topics describe orders",
    "consume orders --until-end", "groups list", "groups describe billing",
    "groups reset-offsets archive --topic orders --to earliest --dry-run",
    "transactions list", "transactions describe receipts-1", "transactions describe-producers orders 0",
    "configs describe --topic orders", "users list", "acls list", "quotas list",
    "logs dirs", "logs offsets orders", "cluster describe", "cluster apis", "cluster quorum",
    "cluster rebalance --sample 0", "cluster heal",
    "top --interval 0.5", "context list", "context show", "schemas register orders-value order.avsc", "schemas list",
    "backup run saved", "backup list saved", "backup describe saved", "backup prune saved --keep 1 --dry-run",
    "verify saved", "verify saved --cluster", "restore saved --topics invoices",
    "schemas show orders-value", "schemas check orders-value order.avsc", "schemas compatibility orders-value",
)  # fmt: skip


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
    with EmbeddedBroker(config=secured) as broker, RunningRegistry(broker.bootstrap_servers) as registry:
        for line in (
            f"context set test -b {broker.bootstrap_servers} --registry {registry.url}",
            "topics create orders -c retention.ms=86400000", "produce orders --headers -k : -f lines",
            "consume orders -g archive -n 1 -B", "users set alice --password-file password",
            "acls add --principal User:alice --consumer --topic orders --group billing",
            "quotas set --user alice producer_byte_rate=1048576",
        ):  # fmt: skip
            run(monkeypatch, line)
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
        run(monkeypatch, f"{line} --json")
        printed = documents(capsys.readouterr().out)
        each = ", in each line" if line.startswith("consume") else ""
        parts.append(f"`barnabas {line} --json`{each}\n\n```json\n{render(shape(printed, line.split()[0]))}\n```\n")
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    expected = before + BEGIN + "\n".join(parts) + END + rest.split(END)[1]
    if request.config.getoption("--rewrite"):
        PAGE.write_text(expected, encoding="utf-8")
    else:
        assert text == expected
