"""Shell: the writers that Spark calls."""

from __future__ import annotations
