"""Shell: `barnabas connect`: connectors as configuration, as with Kafka Connect."""

from __future__ import annotations

from barnabas.cli.connect_serve import connect_serve
from barnabas.cli.connect_standalone import connect_standalone
from barnabas.cli.options import noun

app = noun("Connectors: Kafka Connect's configurations and REST API, on Spark.")

app.command("serve")(connect_serve)
app.command("standalone")(connect_standalone)
