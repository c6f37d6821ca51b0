"""What all tests share: the `--rewrite` flag of the golden tests, Hypothesis's settings, and the handling of SIGINT."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# A loaded machine is slow, not wrong. CI looks at the same examples each time; at home and in `make soak` they are new.
settings.register_profile(
    "barnabas", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("barnabas")

# A shell without job control starts a command that ends in `&` with SIGINT ignored, and every child process inherits
# that. Then `cluster drain` and `serve` do not end on the SIGINT that a test sends (as POSIX wants it). So the tests'
# processes get the default handling of SIGINT back, however pytest was started.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="golden tests: write what happens now as what is expected")
