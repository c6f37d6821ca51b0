"""`python -m examples.streams word_count --servers 127.0.0.1:9092` runs one example until Ctrl-C.

`--once` processes what the topics have now, and ends. Missing topics are created; topics of tables are compacted.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

from examples.streams.topics import create_topics, start_session

NAMES = (
    *("word_count", "windowed_counts", "table_joins", "ktable_join", "stream_joins", "sessions", "deduplicate"),
    "timers",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.streams", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--servers", default="127.0.0.1:9092")
    parser.add_argument("--checkpoint", type=Path, help="the query's folder (out/streams/NAME)")
    parser.add_argument("--once", action="store_true", help="end when everything that is there has been processed")
    chosen = parser.parse_args()
    example = importlib.import_module(f"examples.streams.{chosen.name}")
    create_topics(chosen.servers, [*example.INPUTS, example.OUTPUT])
    spark = start_session()
    writer = example.build(spark, chosen.servers, chosen.checkpoint or Path("out/streams") / chosen.name)
    query = (writer.trigger(availableNow=True) if chosen.once else writer).queryName(chosen.name).start()
    print(f"{', '.join(example.INPUTS)} -> {example.OUTPUT}; Ctrl-C ends the query, and the same command continues it")
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
