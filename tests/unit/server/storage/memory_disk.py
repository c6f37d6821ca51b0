"""The simulator's disk, under the name that the storage tests use."""

from barnabas.testing.sim.disk import MemoryDisk, MemoryFile
from barnabas.testing.sim.platter import Inode

__all__ = ["Inode", "MemoryDisk", "MemoryFile"]
