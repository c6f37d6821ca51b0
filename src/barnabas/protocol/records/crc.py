"""Codec: CRC-32C, computed by the compiled module of the `crc32c` package.

`import crc32c` also reads the package's version with importlib.metadata, which takes 20 ms, a tenth of a broker's
start. So this module loads the compiled module directly. If the compiled module is not found, the package is imported
as usual.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import Final


def _find_crc32c() -> Callable[..., int]:
    package = None if "crc32c" in sys.modules else PathFinder.find_spec("crc32c")
    if package is not None and package.submodule_search_locations:
        compiled = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
        if compiled is not None and compiled.loader is not None:
            module = module_from_spec(compiled)
            compiled.loader.exec_module(module)
            found: Callable[..., int] = module.crc32c
            return found
    import crc32c as whole_package

    imported: Callable[..., int] = whole_package.crc32c
    return imported


crc32c: Final = _find_crc32c()
"""`crc32c(data, crc=0)`: the checksum of a buffer, continued from `crc`."""
