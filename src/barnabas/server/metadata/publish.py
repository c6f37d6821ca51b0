"""Machine: hands each new image to whoever subscribed, in the order of subscription."""

from __future__ import annotations

from barnabas.server.metadata.image.cluster import ClusterImage
from barnabas.server.metadata.image.delta import ClusterDelta
from barnabas.server.metadata.ports import ImageSubscriber


class Publisher:
    """Keeps the newest image, and tells subscribers of each one.

    The order matters and is the composition root's choice: replication first (it creates the logs), then coordination
    (it loads from them), then caches that make the change visible to clients.
    """

    def __init__(self, image: ClusterImage | None = None) -> None:
        self._image = image or ClusterImage()
        self._subscribers: list[ImageSubscriber] = []

    @property
    def image(self) -> ClusterImage:
        """The newest committed image."""
        return self._image

    def subscribe(self, subscriber: ImageSubscriber, *, at_once: bool = True) -> None:
        """From now on tell `subscriber` of every image; it is told `at_once` of the present one as if all were new."""
        self._subscribers.append(subscriber)
        if at_once and self._image.offset >= 0:
            delta = ClusterDelta.everything(self._image)
            subscriber.on_image(delta, self._image)

    def unsubscribe(self, subscriber: ImageSubscriber) -> None:
        self._subscribers.remove(subscriber)

    def publish(self, delta: ClusterDelta, image: ClusterImage) -> None:
        """Make `image` the newest one. Subscribers hear of it unless nothing changed (the controller's idle beat)."""
        self._image = image
        if delta.is_empty:
            return
        for subscriber in tuple(self._subscribers):
            subscriber.on_image(delta, image)
