"""A node whose listeners are all PLAINTEXT imports nothing of TLS and SASL."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import sys
from barnabas.testing.embedded import EmbeddedBroker
with EmbeddedBroker():
    loaded = set(sys.modules)
names = ("secure_connection", "tls_server", "tls_transport", "tls_stores", "jks", "sasl_server", "sasl_conversation",
         "scram", "scram_arguments", "security_configs", "principal_mapping", "distinguished_names", "jaas", "users")
print(sorted(name for name in loaded if name.startswith("barnabas.") and name.rpartition(".")[2] in names))
print("cryptography" in loaded)
"""


def test_a_plaintext_node_imports_no_code_of_tls_and_sasl() -> None:
    ran = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, timeout=120)
    modules, uses_cryptography = ran.stdout.splitlines()
    # The controller's decision on users is part of its table; it imports the codec of SCRAM when it is used.
    assert modules == "['barnabas.server.metadata.controller.users']"
    assert uses_cryptography == "False"
