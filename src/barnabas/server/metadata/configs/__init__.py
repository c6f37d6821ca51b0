"""The tables of configs. Start reading at `tables.py`."""
