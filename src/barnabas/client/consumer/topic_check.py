"""Shell: checks whether the topics of a consumer exist and may be read, because a group assigns nothing of a missing
topic without saying so."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from barnabas.client.cluster.cluster import Cluster, topic_error
from barnabas.core.errors import ErrorCode

FIRST_PAUSE_S: Final = 0.3
PAUSE_MAX_S: Final = 30.0


class TopicCheck:
    """Fetches the metadata of the topics that `wanted` returns. Missing topics are noted in the cluster's `problems`,
    which are logged seldom."""

    def __init__(self, cluster: Cluster, wanted: Callable[[], Collection[str]], *, auto_create: bool) -> None:
        self._cluster = cluster
        self._wanted = wanted
        self._auto_create = auto_create
        self._checked: frozenset[str] = frozenset()
        self._pause_s = FIRST_PAUSE_S
        self.next_at = 0.0
        """The loop time of the next check."""

    def is_due(self) -> bool:
        wanted = self._wanted()
        if not wanted:
            return False
        return self._cluster.now() >= self.next_at or not self._checked.issuperset(wanted)

    async def check(self) -> None:
        """Check all topics. Raises KafkaError for a topic that this client is not authorized to read, or whose name is
        not valid."""
        names = frozenset(self._wanted())
        if names != self._checked:
            for gone in self._checked - names:
                self._cluster.problems.forget(f"topic {gone!r}")
            self._pause_s = FIRST_PAUSE_S
        self._checked = names
        self.next_at = self._cluster.now() + self._pause_s
        views = await self._cluster.topics(names, allow_auto_create=self._auto_create)
        now, missing = self._cluster.now(), False
        for name, view in views.items():
            subject = f"topic {name!r}"
            if view.error is ErrorCode.NONE:
                self._cluster.problems.solved(subject)
            elif view.error.retriable:
                missing = True
                self._cluster.problems.note(subject, topic_error(view), now)
            else:
                raise topic_error(view)
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S) if missing else PAUSE_MAX_S
        self.next_at = now + self._pause_s
