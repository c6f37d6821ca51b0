"""One partition's log on one disk, in Kafka's own file formats. Start reading at `log.py`; see README.md."""
