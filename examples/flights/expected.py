"""Computes the pipeline's results with pandas, and compares the two."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
from examples.flights.dataset import Dataset


def delays_by_day(data: Dataset) -> pd.DataFrame:
    flights = data.flights.assign(day=data.flights["scheduled"].dt.floor("D"))
    table = flights.groupby(["day", "carrier"], as_index=False).agg(
        flights=("flight", "size"), departed=("dep_delay", "count"), delay_minutes=("dep_delay", "sum")
    )
    table["cancelled"] = table["flights"] - table["departed"]
    return table.merge(data.airlines, on="carrier")


def flights_in_weather(data: Dataset) -> pd.DataFrame:
    flights = data.flights.assign(hour=data.flights["scheduled"].dt.floor("h"))
    table = flights.merge(data.weather, on=["origin", "hour"]).drop(columns="hour")
    return table.merge(data.planes, on="tailnum", how="left").merge(data.airports, on="dest", how="left")


def read_parquet(directory: Path) -> pd.DataFrame:
    return pq.read_table(directory).to_pandas(timestamp_as_object=False)


def compare(got: pd.DataFrame, expected: pd.DataFrame) -> list[str]:
    """The differences, row by row and column by column; empty if the two tables are equal."""
    if set(got.columns) != set(expected.columns):
        return [f"columns {sorted(got.columns)}, expected {sorted(expected.columns)}"]
    if len(got) != len(expected):
        return [f"{len(got):,} rows, expected {len(expected):,}"]
    columns = sorted(expected.columns)
    left, right = _canonical(got[columns]), _canonical(expected[columns])
    return [
        f"column {name}: {int((left[name] != right[name]).sum()):,} rows differ"
        for name in columns
        if not left[name].equals(right[name])
    ]


def _canonical(table: pd.DataFrame) -> pd.DataFrame:
    """Normalize column types, missing values and the order of rows, so that equal tables compare as equal."""
    columns = {}
    for name, column in table.items():
        if pd.api.types.is_datetime64_any_dtype(column) or name == "day":
            times = pd.to_datetime(column)
            columns[name] = (times.dt.tz_localize(None) if times.dt.tz else times).astype("datetime64[s]")
        elif pd.api.types.is_numeric_dtype(column):
            columns[name] = column.astype("Float64").fillna(-(2.0**40)).astype("float64")
        else:
            columns[name] = column.fillna("").astype(str)
    frame = pd.DataFrame(columns)
    return frame.sort_values(list(frame.columns), kind="stable", ignore_index=True)
