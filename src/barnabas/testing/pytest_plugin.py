"""Shell: pytest fixtures for users' own test suites."""

from __future__ import annotations
