"""Value: the settings of a console, and the limits of what it reads and keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.console.access.masking import MaskRule
from barnabas.console.ports import MirrorReader, PipelineReader
from barnabas.core.reprs import repr_without


@dataclass(frozen=True, slots=True)
class BrowseLimits:
    """The most that one page, download or live view of records may cost."""

    records: int = 500
    """Records that one page shows."""
    download_records: int = 10_000
    scanned_records: int = 200_000
    """Records that one search reads."""
    scanned_bytes: int = 128 * 1024 * 1024
    seconds: float = 15.0
    value_bytes: int = 20_480
    """Bytes of a key or value that a page shows; a download has all of them."""
    live_views: int = 8
    """Live views at the same time, of all users."""
    live_seconds: float = 900.0
    live_records_per_second: int = 50


@dataclass(frozen=True, slots=True)
class SamplingLimits:
    """How often the cluster is measured, and how many series are kept."""

    interval_s: float = 10.0
    samples: int = 360
    """The samples of each series: an hour at ten seconds."""
    series: int = 5_000
    partitions_per_second: int = 1_000
    """The interval becomes longer in a cluster with so many partitions that more would be measured in a second."""


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """All settings. `client` has the settings of the Kafka clients, `bootstrap.servers` among them."""

    client: Mapping[str, object]
    listener: str = "http://127.0.0.1:8090"
    registry_url: str | None = None
    connect_url: str | None = None
    pipelines: PipelineReader | None = None
    mirror: MirrorReader | None = None
    users_file: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    is_read_only: bool = False
    masks: tuple[MaskRule, ...] = ()
    audit_file: Path | None = None
    browse: BrowseLimits = field(default_factory=BrowseLimits)
    sampling: SamplingLimits = field(default_factory=SamplingLimits)

    __repr__ = repr_without("client")
