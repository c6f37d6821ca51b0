"""Every Python block of docs/REGISTRY.md runs, and prints what stands under it."""

from __future__ import annotations

from barnabas.testing.embedded import EmbeddedBroker
from tests.system.pages import DOCS, run_page
from tests.system.registry.conftest import RunningRegistry


def test_code_blocks_of_the_page_run_and_print_the_shown_output(
    broker: EmbeddedBroker, registry: RunningRegistry
) -> None:
    run_page(DOCS / "REGISTRY.md", {"localhost:9092": broker.bootstrap_servers, "http://localhost:8081": registry.url})
