"""Value: the topics of a metadata image, as the coordinators see them (fills `TopicCatalog`)."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.coordination.ports import TopicView
from barnabas.core.ids import TopicId
from barnabas.metadata.image import ClusterImage, TopicImage


class ImageCatalog:
    """One immutable image; the node hands over a new catalog with every new image."""

    __slots__ = ("_image", "_views")

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._views: dict[TopicId, TopicView] = {}

    @property
    def version(self) -> int:
        """The offset of the last metadata record in the image."""
        return self._image.provenance.offset

    def by_name(self, name: str) -> TopicView | None:
        topic = self._image.topics.get(name)
        return None if topic is None else self._view(topic)

    def by_id(self, topic_id: TopicId) -> TopicView | None:
        topic = self._image.topics.get_by_id(topic_id)
        return None if topic is None else self._view(topic)

    def names(self) -> Sequence[str]:
        return self._image.topics.names()

    def _view(self, topic: TopicImage) -> TopicView:
        view = self._views.get(topic.topic_id)
        if view is None:
            view = TopicView(topic.name, topic.topic_id, len(topic.partitions), self._racks(topic))
            self._views[topic.topic_id] = view
        return view

    def _racks(self, topic: TopicImage) -> tuple[frozenset[str], ...]:
        """The racks of each partition's replicas; nothing at all where no broker says its rack."""
        brokers = self._image.brokers
        racks = []
        for partition in topic.partitions:
            here = (brokers.get(replica) for replica in partition.replicas)
            racks.append(frozenset(broker.rack for broker in here if broker is not None and broker.rack is not None))
        return tuple(racks) if any(racks) else ()
