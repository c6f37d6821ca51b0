"""Shell: `barnabas mirror`: MirrorMaker 2 on Spark."""

from __future__ import annotations

from barnabas.cli.mirror_run import mirror_run
from barnabas.cli.mirror_show import mirror_status, mirror_translate
from barnabas.cli.options import noun

app = noun("Copy topics between clusters: MirrorMaker's file, topics and records, on Spark.")

app.command("run")(mirror_run)
app.command("status")(mirror_status)
app.command("translate")(mirror_translate)
