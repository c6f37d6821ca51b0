"""What all sources of row changes share: options, Spark's offsets, staged snapshots, and the readers that Spark calls.

`ports.py` is what a database supplies, `planning.py` decides what a micro-batch reads, `reader.py` has the readers.
"""
