"""Machine: how long a mirror partition has been behind its source.

A fetch tells the source's high watermark. As soon as the local high watermark has reached it, the mirror has had all
records that the source had at the time of that answer. The lag is the time since the newest such answer, as the lag of
a follower is in Kafka: under a steady load it is a little more than the time of a fetch, and while the source writes
nothing at most `mirror.fetch.wait.max.ms`.
"""

from __future__ import annotations

from barnabas.server.links.fetching.values import NO_OFFSET


class MirrorTimeLag:
    """The lag of one mirror partition in time. Times are in milliseconds of one clock."""

    def __init__(self) -> None:
        self._watermark = NO_OFFSET
        """The source's high watermark in its last answer."""
        self._answered_ms = 0
        self._level_ms = 0
        """The time of the source's newest answer whose records are all here; at first that of its first answer."""

    def on_answer(self, source_watermark: int, local_watermark: int, now_ms: int) -> None:
        """The source has answered a fetch with its high watermark."""
        if self._watermark == NO_OFFSET:
            self._level_ms = now_ms
        elif local_watermark >= self._watermark:
            self._level_ms = self._answered_ms
        self._watermark, self._answered_ms = source_watermark, now_ms

    def milliseconds(self, local_watermark: int, answered_ms: int, now_ms: int) -> int:
        """The lag; -1 before the first answer. `answered_ms` is when the source answered last, also if the answer had
        nothing new of this partition."""
        if self._watermark == NO_OFFSET:
            return NO_OFFSET
        level_ms = max(self._answered_ms, answered_ms) if local_watermark >= self._watermark else self._level_ms
        return max(now_ms - level_ms, 0)
