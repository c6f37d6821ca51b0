"""Every Python block of docs/REGISTRY.md runs, and prints what stands under it."""

from __future__ import annotations

from pathlib import Path

from barnabas.testing.embedded import EmbeddedBroker
from tests.system.client.tls_proxy import Authority
from tests.system.pages import DOCS, run_page
from tests.system.registry.conftest import RunningRegistry


def test_code_blocks_of_the_page_run_and_print_the_shown_output(
    broker: EmbeddedBroker, registry: RunningRegistry, tmp_path: Path
) -> None:
    trusted = tmp_path / "ca.pem"
    trusted.write_text(Authority("Barnabas tests").pem)
    places = {
        "localhost:9092": broker.bootstrap_servers,
        "http://localhost:8081": registry.url,
        "/etc/registry/ca.pem": str(trusted),
    }
    run_page(DOCS / "REGISTRY.md", places)
