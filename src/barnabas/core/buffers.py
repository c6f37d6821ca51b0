"""Value: any contiguous run of bytes. Big ones are passed on as they are, never joined or copied."""

from __future__ import annotations

Buffer = bytes | bytearray | memoryview
