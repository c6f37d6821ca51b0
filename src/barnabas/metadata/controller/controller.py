"""Machine: the table of requests the controller decides on, and the state they are decided on.

Decisions live in the modules beside this one, one per subject, as plain functions
`decide_x(image, request, ctx) -> Decision`. This class only finds the right one and applies what was decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from barnabas.core.decision import Decision
from barnabas.core.errors import ErrorCode, KafkaError
from barnabas.metadata.controller.settings import ControllerSettings, DecideContext
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.records import MetadataRecord
from barnabas.wire.schema import Message

Decide = Callable[[ClusterImage, Any, DecideContext], Decision[MetadataRecord, Any]]


class Controller:
    """`decide` reads; `apply` is the only thing that changes `image`."""

    HANDLED: Mapping[type[Message], Decide] = {}

    def __init__(self, settings: ControllerSettings, image: ClusterImage | None = None) -> None:
        self.settings = settings
        self.image = image or ClusterImage()

    def decide(self, image: ClusterImage, request: Message, ctx: DecideContext) -> Decision[MetadataRecord, Message]:
        """What to write and what to answer. Raises KafkaError for a request that is not the controller's."""
        decide = self.HANDLED.get(type(request))
        if decide is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"The controller does not serve {type(request).__name__}.")
        return decide(image, request, ctx)

    def apply(self, image: ClusterImage, records: Sequence[MetadataRecord]) -> None:
        """Make `image` with `records` replayed onto it the state of the next decision."""
        delta = ClusterDelta(image)
        for record in records:
            delta.apply(record)
        self.image = delta.finish(image.provenance)
