"""Shell: a broker applies a large image in slices, between which the event loop serves others.

    publisher ─► on_image ─► Partitions.applying, IMAGE_SLICE partitions at once ─► the other subscribers, in order

Creating or deleting a partition's log takes some 0.2 ms, and one image may create 10,000 of them. The other
subscribers, above all the cache from which clients get metadata, receive an image when all its partitions are applied,
so that no reader sees a part of an image. Images are applied in order; the next one waits. An image with few changes is
applied at once, before `on_image` returns.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from barnabas.core import work
from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.metadata.ports import ImageSubscriber

IMAGE_SLICE: Final = 16
"""The number of partitions that are created, deleted or changed in one step."""

_UNITS: Final = 50
"""The units of work (`core/work`) of one partition."""


class SlicedSubscriber(Protocol):
    """Applies an image in steps: each `next` of the iterator is one."""

    def applying(self, delta: ClusterDelta, image: ClusterImage) -> Iterator[None]: ...


class ImageSlices:
    """An `ImageSubscriber`. `newest` returns the newest image of the publisher."""

    def __init__(
        self, first: SlicedSubscriber, others: Sequence[ImageSubscriber], newest: Callable[[], ClusterImage]
    ) -> None:
        self._first = first
        self._others = tuple(others)
        self._newest = newest
        self._pending: deque[tuple[ClusterDelta, ClusterImage]] = deque()
        self._steps: Iterator[None] | None = None
        """The steps of the image that is being applied."""
        self._applied_offset = -1
        self._work_left = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()

    @property
    def applied_offset(self) -> int:
        """The offset of the newest image that all subscribers have. Images without changes are not published."""
        return self._applied_offset if self._pending else self._newest().offset

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        self._pending.append((delta, image))
        if len(self._pending) == 1:
            self._apply_slice()
        if self._pending:
            self._settled.clear()
            self._work_left.set()

    async def run(self) -> None:
        """Apply what `on_image` has left, until cancelled."""
        while True:
            await self._work_left.wait()
            self._work_left.clear()
            while self._pending:
                await asyncio.sleep(0)
                self._apply_slice()
            self._settled.set()

    async def settled(self) -> None:
        """Return when all images are applied."""
        await self._settled.wait()

    def _apply_slice(self) -> None:
        left = IMAGE_SLICE
        while self._pending and left:
            delta, image = self._pending[0]
            if self._steps is None:
                self._steps = self._first.applying(delta, image)
            for _ in self._steps:
                work.count(_UNITS)
                left -= 1
                if not left:
                    return
            self._steps = None
            for subscriber in self._others:
                subscriber.on_image(delta, image)
            self._pending.popleft()
            self._applied_offset = image.offset
