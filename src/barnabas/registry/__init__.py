"""The schema registry: schemas by subject and version, ids on the wire, evolution that is checked.

    from barnabas.registry import RegistryClient, AvroSerializer

Importing this package is cheap: each part is imported on first use. `pip install barnabas[registry]` brings what they
need.
"""

from __future__ import annotations
