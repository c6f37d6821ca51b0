"""Machine: which settings have secret values, by their names in Kafka, Kafka Connect, librdkafka and schema registries.

Connectors and brokers of other makers have configs that no table lists, so the name decides. A name that says where a
secret is (a file, a URL) is not secret itself.
"""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "[hidden]"
"""In place of a secret value, on pages and in logs."""
_SECRET: Final = re.compile(r"password|passwd|secret|credential|jaas|private|token|user\.info|key\.pem|\.key$")
_PLACES: Final = ("location", "file", "source", "url")


def is_secret_name(name: str) -> bool:
    """Whether the value of the setting `name` must not be shown or logged."""
    lower = name.lower()
    return _SECRET.search(lower) is not None and not lower.endswith(_PLACES)
