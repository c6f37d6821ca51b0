"""What every ring of tests shares: the `--rewrite` flag of the golden tests."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="golden tests: write what happens now as what is expected")
