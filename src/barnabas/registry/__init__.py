"""The schema registry: schemas by subject and version, ids on the wire, evolution that is checked.

    from barnabas.registry import RegistryClient, AvroSerializer

Importing this package is cheap; each part is imported when it is first used, and needs `pip install barnabas[registry]`.
"""

from __future__ import annotations
