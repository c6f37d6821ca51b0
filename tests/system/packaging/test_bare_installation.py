"""README's first block, as it is written there, in a fresh shell: a bare installation, without an extra, into an empty
environment. What it has installed serves, produces and consumes, and says which extra a missing package needs."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from barnabas.core.extras import EXTRAS
from barnabas.testing.ports import is_free
from tests.progress import wait_until

pytestmark = pytest.mark.system

ROOT: Final = Path(__file__).parents[3]
PORT: Final = 9092
ENVIRONMENT_BYTES_MAX: Final = 90_000_000
STEP_S: Final = 300
ENDED: Final = "the block has ended"
SHARED: Final = ("PIP_", "SSL_", "REQUESTS_", "HTTP", "HTTPS", "NO_PROXY", "http", "https", "no_proxy")
"""Prefixes of the variables by which pip finds its registry, in the fresh shell, too."""
PYTHON: Final = """
from barnabas import Consumer, Producer
with Producer(bootstrap_servers="127.0.0.1:9092") as producer:
    print(producer.send("python", b"hello", key=b"k").result().offset)
with Consumer(bootstrap_servers="127.0.0.1:9092", group_id="g", auto_offset_reset="earliest") as consumer:
    consumer.subscribe(["python"])
    print(next(iter(consumer)).value)
"""
IMPORTS: Final = """
import importlib, pkgutil, sys
from barnabas.core.errors import BarnabasError
for package in sys.argv[1:]:
    path = importlib.import_module(package).__path__
    for module in pkgutil.walk_packages(path, package + ".", onerror=lambda name: None):
        try:
            importlib.import_module(module.name)
        except (ImportError, BarnabasError, SystemExit) as error:
            print(module.name, error if "pip install" in str(error) else getattr(error, "name", error))
"""
"""Prints the modules that cannot be imported, and why."""
PARTS: Final = {
    "barnabas.cli.cluster.certificates": "1",  # has printed `pip install 'barnabas[tls]'`
    "barnabas.protocol.security.oauth.signatures": "cryptography",
    "barnabas.protocol.security.oauth.signed": "cryptography",
    "barnabas.protocol.transport.http.server": "h11",
    "barnabas.protocol.transport.oauth.provider_keys": "cryptography",
    "barnabas.testing.async_fixtures": "pytest",
    "barnabas.testing.pytest_plugin": "pytest",
}
"""Modules behind others that say which extra is missing, and what they need. All other modules of the broker, the
clients and the command line can be imported, or say themselves which extra they need."""
NEED_EXTRA: Final = {
    "barnabas registry -b 127.0.0.1:1": "registry",
    "barnabas console -b 127.0.0.1:1": "console",
    "barnabas schemas list --registry http://127.0.0.1:1": "registry",
    "barnabas mirror run mm2.properties": "spark",
    "barnabas connect serve mm2.properties": "connectors",
    "connect-mirror-maker mm2.properties": "spark",
    "connect-standalone mm2.properties mm2.properties": "connectors",
}
CALLS_NEED_EXTRA: Final = {
    "from barnabas.registry import RegistryClient": "registry",
    "from barnabas.registry import AvroSerializer": "registry",
    "from barnabas import Consumer\n"
    "with Consumer(bootstrap_servers='127.0.0.1:9092') as one: one.poll_arrow(1)": "columnar",
}
MIRRORING: Final = "clusters=A,B\nA.bootstrap.servers=127.0.0.1:1\nB.bootstrap.servers=127.0.0.1:1\nA->B.enabled=true\n"


@dataclass(frozen=True)
class FreshShell:
    folder: Path
    environment: dict[str, str]
    printed: str
    """What the block has printed."""

    def run(self, *words: str, code: int = 0) -> str:
        """What a command of the environment prints, its errors included."""
        done = subprocess.run(
            [str(self.folder / "venv" / "bin" / words[0]), *words[1:]],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=STEP_S, check=False,
        )  # fmt: skip
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr


def first_block() -> str:
    return (ROOT / "README.md").read_text().split("```\n", 2)[1]


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FreshShell]:
    """The block has run, and its broker still runs."""
    assert is_free(PORT), f"another process listens on port {PORT}, which README's first block uses"
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {name: value for name, value in os.environ.items() if name.startswith(SHARED)}
    environment.setdefault("PIP_CACHE_DIR", str(Path.home() / ".cache" / "pip"))
    environment |= {"PATH": f"{sys.base_prefix}/bin:/usr/bin:/bin", "HOME": str(folder)}
    output = folder / "printed.txt"
    with output.open("w") as printed:
        running = subprocess.Popen(
            ["bash", "-e", "-c", f"{first_block()}echo {ENDED}\nwait"], cwd=folder, env=environment,
            stdin=subprocess.DEVNULL, stdout=printed, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def has_ended() -> bool:
        assert running.poll() is None, output.read_text()
        return ENDED in output.read_text()

    try:
        wait_until(has_ended, "the first block of README.md has run", progress=lambda: output.stat().st_size)
        yield FreshShell(folder, environment, output.read_text())
    finally:
        os.killpg(running.pid, signal.SIGTERM)
        running.wait(60)


def test_first_block_of_the_readme_works_in_a_fresh_shell(shell: FreshShell) -> None:
    assert '{"carrier": "UA"}\n' in shell.printed


def test_environment_of_the_broker_alone_is_small(shell: FreshShell) -> None:
    command = ["du", "-s", "--apparent-size", "--block-size=1", str(shell.folder / "venv")]
    used = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(used.stdout.split()[0]) < ENVIRONMENT_BYTES_MAX


def test_python_clients_work_without_an_extra(shell: FreshShell) -> None:
    assert shell.run("python", "-c", PYTHON) == "0\nb'hello'\n"


def test_every_entry_point_is_installed_and_loads(shell: FreshShell) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert set(scripts) <= {path.name for path in (shell.folder / "venv" / "bin").iterdir()}
    load = (
        "import sys, importlib\nfor one in sys.argv[1:]:\n    module, name = one.split(':')\n"
        "    assert callable(getattr(importlib.import_module(module), name)), one"
    )
    shell.run("python", "-c", load, *scripts.values())
    assert "serve" in shell.run("barnabas", "--help")
    assert "flights" in shell.run("kafka-topics", "--bootstrap-server", "localhost:9092", "--list")


def test_modules_import_without_an_extra_or_say_which_they_need(shell: FreshShell) -> None:
    packages = ("core", "protocol", "server", "client", "cli", "testing")
    printed = shell.run("python", "-c", IMPORTS, *(f"barnabas.{name}" for name in packages))
    failed = dict(line.split(" ", 1) for line in printed.splitlines() if line.startswith("barnabas."))
    assert {name: reason for name, reason in failed.items() if "pip install 'barnabas[" not in reason} == PARTS


def test_commands_and_calls_say_which_extra_they_need(shell: FreshShell) -> None:
    (shell.folder / "mm2.properties").write_text(MIRRORING)
    for line, extra in NEED_EXTRA.items():
        printed = shell.run(*line.split(), code=2)
        assert f"pip install 'barnabas[{extra}]'" in printed
        assert "Traceback" not in printed
    for code, extra in CALLS_NEED_EXTRA.items():
        assert f"pip install 'barnabas[{extra}]'" in shell.run("python", "-c", code, code=1)


def test_every_extra_that_is_named_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = set(EXTRAS.values())
    for path in (ROOT / "src").rglob("*.py"):
        named |= {one for part in re.findall(r"barnabas\[([a-z,]+)\]", path.read_text()) for one in part.split(",")}
    assert named <= set(extras)


def test_the_extra_of_mysql_has_what_its_default_authentication_needs() -> None:
    """PyMySQL encrypts a password for `caching_sha2_password`, MySQL's default, with a package of its extra `rsa`."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert any(one.startswith("pymysql[rsa]") for one in extras["mysql"])
