"""What every ring of tests shares: the `--rewrite` flag of the golden tests, and Hypothesis's settings."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# A loaded machine is slow, not wrong. CI looks at the same examples each time; at home and in `make soak` they are new.
settings.register_profile(
    "barnabas", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("barnabas")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="golden tests: write what happens now as what is expected")
