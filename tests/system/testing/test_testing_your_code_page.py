"""Every block of docs/TESTING_YOUR_CODE.md is a file of tests that pass, in a pytest of a user."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.system.pages import DOCS

pytestmark = pytest.mark.system

ROOT: Final = Path(__file__).parents[3]
BLOCKS: Final = re.findall(r"```python\n(.*?)```", (DOCS / "TESTING_YOUR_CODE.md").read_text(), re.DOTALL)
WITHOUT_PLUGIN: Final = """
def test_sync(barnabas_async_clients):
    pass
"""
ON_TRIO: Final = """
import pytest

@pytest.fixture
def anyio_backend():
    return "trio"

@pytest.mark.anyio
def test_sync(anyio_backend, barnabas_async_clients):
    pass
"""
LOOP_SCOPES: Final = """
import pytest

pytestmark = pytest.mark.asyncio(loop_scope="module")
clients = []

async def test_one(barnabas_topic, barnabas_async_clients):
    await barnabas_async_clients.producer().send_and_wait(barnabas_topic, b"1")
    assert await barnabas_async_clients.admin().list_topics()

async def test_two(barnabas_topic, barnabas_async_clients):
    await barnabas_async_clients.producer().send_and_wait(barnabas_topic, b"2")
"""
AUTO: Final = """
async def test_one(barnabas_topic, barnabas_async_clients):
    await barnabas_async_clients.producer().send_and_wait(barnabas_topic, b"1")
"""
OWN_CLUSTER: Final = """
import pytest

@pytest.fixture(scope="session")
def barnabas_bootstrap_servers():
    from barnabas.testing import EmbeddedBroker
    with EmbeddedBroker({"num.partitions": "7"}) as broker:
        yield broker.bootstrap_servers

def test_a_name_of_a_test_is_no_topic_name_öß(barnabas_topic_factory, barnabas_clients):
    barnabas_clients.producer().send("of-its-own", b"1").result()
    described = barnabas_clients.admin().describe_topics(["of-its-own", barnabas_topic_factory(partitions=2)])
    assert [len(one.partitions) for one in described.values()] == [7, 2]
"""


def run(folder: Path, files: dict[str, str], *options: str) -> tuple[int, str]:
    """pytest's exit code and output."""
    for name, text in files.items():
        (folder / name).write_text(text)
    if "no:asyncio" not in options:
        (folder / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTHONPATH"] = str(ROOT / "src")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "error", *options],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_blocks_of_the_page_are_tests_that_pass(tmp_path: Path) -> None:
    assert len(BLOCKS) >= 6
    code, printed = run(tmp_path, {f"test_block_{number}.py": block for number, block in enumerate(BLOCKS)})
    assert code == 0, printed
    tests = sum(len(re.findall(r"^(?:async )?def test_", block, re.MULTILINE)) for block in BLOCKS)
    assert f"{tests} passed" in printed


def test_asyncio_clients_follow_the_mode_and_the_loop_scope_of_pytest_asyncio(tmp_path: Path) -> None:
    code, printed = run(tmp_path, {"test_scopes.py": LOOP_SCOPES, "test_auto.py": AUTO}, "--asyncio-mode=auto")
    assert code == 0, printed
    assert "3 passed" in printed


def test_asyncio_clients_work_with_anyio_alone(tmp_path: Path) -> None:
    block = next(block for block in BLOCKS if "anyio_backend" in block)
    code, printed = run(tmp_path, {"test_anyio.py": block}, "-p", "no:asyncio")
    assert code == 0, printed


def test_asyncio_clients_work_with_pytest_asyncio_alone(tmp_path: Path) -> None:
    block = next(block for block in BLOCKS if "mark.asyncio" in block)
    code, printed = run(tmp_path, {"test_asyncio.py": block}, "-p", "no:anyio")
    assert code == 0, printed


def test_wrong_uses_are_explained(tmp_path: Path) -> None:
    code, printed = run(tmp_path, {"test_plain.py": WITHOUT_PLUGIN, "test_trio.py": ON_TRIO})
    assert code == 1
    assert "barnabas_async_clients needs a test that is a coroutine, and pytest-asyncio or anyio" in printed
    assert "Barnabas' clients run on asyncio, not on trio" in printed


def test_fixtures_use_the_cluster_of_the_user(tmp_path: Path) -> None:
    code, printed = run(tmp_path, {"test_own.py": OWN_CLUSTER})
    assert code == 0, printed
