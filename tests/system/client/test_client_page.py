"""The blocks of docs/CLIENTS.md about settings run."""

from __future__ import annotations

import pytest

from barnabas.testing.embedded import EmbeddedBroker
from tests.system.pages import DOCS, run_page

pytestmark = pytest.mark.system


def test_block_about_typed_settings_runs() -> None:
    with EmbeddedBroker() as broker:
        run_page(DOCS / "CLIENTS.md", {"localhost:9092": broker.bootstrap_servers}, section="## Names of configs")
