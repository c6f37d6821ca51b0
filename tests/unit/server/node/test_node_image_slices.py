"""Large images are applied in slices; the subscribers that follow see whole images only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from barnabas.core import work
from barnabas.server.metadata.image.cluster import ClusterImage, MetadataProvenance
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.node.image_slices import IMAGE_SLICE, ImageSlices


class Logs:
    """Applies an image in as many steps as its offset says."""

    def __init__(self) -> None:
        self.steps: list[int] = []

    def applying(self, delta: ClusterDelta, image: ClusterImage) -> Iterator[None]:
        for _ in range(image.offset):
            self.steps.append(image.offset)
            yield


class Seen:
    """A subscriber that follows; notes the image and the number of steps before it."""

    def __init__(self, logs: Logs) -> None:
        self._logs = logs
        self.images: list[tuple[int, int]] = []

    def on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        self.images.append((image.offset, len(self._logs.steps)))


def image_of(steps: int) -> tuple[ClusterDelta, ClusterImage]:
    delta = ClusterDelta(ClusterImage())
    return delta, delta.finish(MetadataProvenance(steps, 1, 0))


def test_a_small_image_is_applied_before_on_image_returns() -> None:
    async def run() -> None:
        logs = Logs()
        seen = Seen(logs)
        slices = ImageSlices(logs, [seen], lambda: image_of(3)[1])
        slices.on_image(*image_of(3))
        assert seen.images == [(3, 3)]
        assert slices.applied_offset == 3
        await slices.settled()

    asyncio.run(run())


def test_large_images_are_applied_in_order_and_in_short_steps() -> None:
    first, second = 10 * IMAGE_SLICE, 5

    async def run() -> None:
        logs = Logs()
        seen = Seen(logs)
        slices = ImageSlices(logs, [seen], lambda: image_of(second)[1])
        task = asyncio.ensure_future(slices.run())
        await asyncio.sleep(0)
        slices.on_image(*image_of(first))
        slices.on_image(*image_of(second))
        assert seen.images == []
        assert slices.applied_offset == -1
        settled = asyncio.ensure_future(slices.settled())
        longest = 0
        while not settled.done():
            work.STEP.units = 0
            before = len(logs.steps)
            await asyncio.sleep(0)
            longest = max(longest, len(logs.steps) - before)
        assert longest <= IMAGE_SLICE
        assert seen.images == [(first, first), (second, first + second)]
        assert slices.applied_offset == second
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
