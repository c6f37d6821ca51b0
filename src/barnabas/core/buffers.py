"""Value: the type of a contiguous run of bytes. Large buffers are passed on without being joined or copied."""

from __future__ import annotations

Buffer = bytes | bytearray | memoryview
