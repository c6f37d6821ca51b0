"""Machine: passes each new image to the subscribers, in the order of their subscription."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.metadata.ports import ImageSubscriber


class Publisher:
    """Keeps the newest image and notifies subscribers of each new one.

    The order of subscribers matters, and `server/node` chooses it: first replication, which creates the logs, then
    coordination, which loads from them, then the caches that make the change visible to clients.
    """

    def __init__(self, image: ClusterImage | None = None) -> None:
        self._image = image or ClusterImage()
        self._subscribers: list[ImageSubscriber] = []
        self._leader_subscribers: list[Callable[[int, int], None]] = []

    @property
    def image(self) -> ClusterImage:
        """The newest committed image."""
        return self._image

    def subscribe(self, subscriber: ImageSubscriber, *, at_once: bool = True) -> None:
        """Notify `subscriber` of every new image. With `at_once`, also notify `subscriber` now: the delta contains the
        whole current image."""
        self._subscribers.append(subscriber)
        if at_once and self._image.offset >= 0:
            delta = ClusterDelta.everything(self._image)
            subscriber.on_image(delta, self._image)

    def unsubscribe(self, subscriber: ImageSubscriber) -> None:
        self._subscribers.remove(subscriber)

    def subscribe_leader(self, notify: Callable[[int, int], None]) -> None:
        """Call `notify` with the id and the epoch of each new leader of the metadata log; the id is -1 while there is
        none."""
        self._leader_subscribers.append(notify)

    def publish_leader(self, leader_id: int, epoch: int) -> None:
        for notify in self._leader_subscribers:
            notify(leader_id, epoch)

    def publish(self, delta: ClusterDelta, image: ClusterImage) -> None:
        """Make `image` the newest one, and notify the subscribers, unless `delta` contains no changes (as after a
        NoOpRecord)."""
        self._image = image
        if delta.is_empty:
            return
        for subscriber in tuple(self._subscribers):
            subscriber.on_image(delta, image)
