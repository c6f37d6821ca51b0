"""The simulated disk, under the name that the tests of storage use."""

from barnabas.testing.sim.disk import Inode, MemoryDisk, MemoryFile

__all__ = ["Inode", "MemoryDisk", "MemoryFile"]
