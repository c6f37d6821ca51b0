"""Runs `async def` tests, each on an event loop of its own."""

from tests.unit.client.conftest import pytest_pyfunc_call as pytest_pyfunc_call
