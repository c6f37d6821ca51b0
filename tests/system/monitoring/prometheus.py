"""Runs a real Prometheus, with the alert rules of deploy/monitoring in shorter times."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote
from urllib.request import urlopen

from barnabas.core.child_processes import start_child
from barnabas.testing.ports import free_ports
from tests.progress import wait_until

MONITORING: Final = Path(__file__).parents[3] / "deploy" / "monitoring"
_CONFIG: Final = """\
global: {{scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms}}
rule_files: [{rules}]
scrape_configs:
  - job_name: barnabas
    static_configs: [{{targets: {targets}}}]
"""


def promtool(*arguments: str) -> str:
    """Run promtool, and return what it prints. Raises CalledProcessError."""
    command = [_found("promtool"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=MONITORING)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _found(name: str) -> str:
    path = shutil.which(name)
    assert path is not None, f"{name} is missing: run tests/system/monitoring/install.sh"
    return path


class Prometheus:
    """A running Prometheus."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The labels and values of an instant query."""
        answer = self._get(f"/api/v1/query?query={quote(expression)}")
        return [(each["metric"], float(each["value"][1])) for each in answer["result"]]

    def value(self, expression: str) -> float | None:
        """The value of a query with one result, or None if it has none."""
        found = self.query(expression)
        return found[0][1] if found else None

    def firing(self) -> set[str]:
        """The names of the alerts that are firing."""
        return {labels["alertname"] for labels, _ in self.query('ALERTS{alertstate="firing"}')}

    def _get(self, path: str) -> Any:
        with urlopen(self.url + path, timeout=30) as response:
            answer = json.load(response)
        assert answer["status"] == "success", answer
        return answer["data"]


@contextmanager
def prometheus(folder: Path, targets: Sequence[str]) -> Iterator[Prometheus]:
    """Run Prometheus until the end of the block. Alerts that wait for two minutes at most wait for two seconds."""
    rules = folder / "alerts.yml"
    text = re.sub(r"for: (10s|30s|1m|2m)\b", "for: 2s", (MONITORING / "alerts.yml").read_text())
    text = text.replace("[10m]", "[20s]")  # what is counted over ten minutes clears after them
    rules.write_text(text.replace("seconds) > 30", "seconds) > 3"))
    config = folder / "prometheus.yml"
    config.write_text(_CONFIG.format(rules=json.dumps(str(rules)), targets=json.dumps(list(targets))))
    (port,) = free_ports(1)
    with (folder / "prometheus.log").open("w") as log:
        process = start_child(
            [
                _found("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={folder / 'tsdb'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )  # fmt: skip
    try:
        found = Prometheus(f"http://127.0.0.1:{port}")
        wait_until(lambda: _is_ready(found, process), "Prometheus is ready")
        yield found
    finally:
        process.terminate()
        process.wait(30)


def _is_ready(found: Prometheus, process: subprocess.Popen[Any]) -> bool:
    assert process.poll() is None, "Prometheus has ended; see prometheus.log"
    try:
        return found.query("vector(1)") != []
    except OSError:
        return False
