"""Shell: prepares the subscription of a heartbeat, which may be large, before the operation that stores it."""

from __future__ import annotations

from typing import Final

from barnabas.core.work import Pauses

SMALL: Final = 500
"""A subscription of so many topics is sorted by the operation itself."""
_NAMES_PER_UNIT: Final = 40


async def sort_subscription(names: list[str]) -> list[str]:
    """The topics of a subscription. Those of a large one are sorted, followed by a pause."""
    if len(names) <= SMALL:
        return names
    from barnabas.server.coordination.group.consumer.member import topic_names_of  # imported for large ones only

    in_order = list(topic_names_of(names))
    await Pauses(1).after(len(names) // _NAMES_PER_UNIT)
    return in_order
