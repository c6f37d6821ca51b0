"""The two databases of the shop: their tables, the people who use them, and what is in them at the end."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pymysql

from barnabas.testing.databases import MariaDbServer, PostgresServer

COUNTRIES = ("AT", "BE", "DE", "ES", "FR", "IT", "NL", "PL")
ORDERS_AT_ONCE = 5
DOWN = (psycopg.OperationalError, psycopg.InterfaceError, pymysql.OperationalError, pymysql.InterfaceError)
"""Errors of a server that is down."""
STATES = ("new", "paid", "shipped")
FIRST, LAST = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Greta", "Hugo"), ("Aalto", "Berg", "Costa", "Durand", "Ek")


@dataclass
class Shop:
    """A PostgreSQL server with the orders, and a MariaDB server with the customers."""

    postgres: PostgresServer
    mariadb: MariaDbServer
    written: int = 0
    """How many orders were placed."""
    _stopped: threading.Event = field(default_factory=threading.Event)

    def orders(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.postgres.conninfo, autocommit=True)

    def customers(self) -> Any:
        server = self.mariadb
        return pymysql.connect(
            host="127.0.0.1",
            port=server.port,
            user=server.user,
            password=server.password,
            database="shop",
            autocommit=True,
        )

    def create(self, customers: int) -> None:
        """Create the tables, and the first customers."""
        with self.orders() as session:
            session.execute(
                "CREATE TABLE orders (id serial PRIMARY KEY, customer_id int NOT NULL, cents int NOT NULL,"
                " state text NOT NULL)"
            )
            session.execute("ALTER TABLE orders REPLICA IDENTITY FULL")  # a deleted order has its customer
            session.execute("CREATE TABLE customers (id int PRIMARY KEY, name text, country text)")
        rng = random.Random(1)
        with self.customers() as session, session.cursor() as cursor:
            cursor.execute("CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(40), country CHAR(2))")
            cursor.execute(
                "CREATE TABLE order_report (order_id INT PRIMARY KEY, name VARCHAR(40), country CHAR(2), cents INT,"
                " state VARCHAR(10))"
            )
            for key in range(customers):
                name = f"{rng.choice(FIRST)} {rng.choice(LAST)}"
                cursor.execute("INSERT INTO customers VALUES (%s, %s, %s)", (key, name, rng.choice(COUNTRIES)))

    # -- the people

    def place_orders(self, count: int, customers: int, pause_s: float) -> None:
        """Place orders, pay and ship some of them, and cancel a few. Goes on when the server was down."""
        rng = random.Random(2)
        while self.written < count and not self._stopped.is_set():
            with _unless_down(self._stopped), self.orders() as session:
                while self.written < count and not self._stopped.is_set():
                    for _ in range(ORDERS_AT_ONCE):
                        values = (rng.randrange(customers), rng.randrange(500, 20_000))
                        session.execute("INSERT INTO orders (customer_id, cents, state) VALUES (%s, %s, 'new')", values)
                        self.written += 1
                    older = rng.randrange(1, self.written + 1)
                    for before, after in (("paid", "shipped"), ("new", "paid")):
                        session.execute(
                            "UPDATE orders SET state = %s WHERE state = %s AND id %% 3 = %s AND id > %s",
                            (after, before, older % 3, older),
                        )
                    session.execute("DELETE FROM orders WHERE id = %s AND state = 'new'", (older,))
                    self._stopped.wait(pause_s)

    def change_customers(self, customers: int, pause_s: float) -> None:
        """Customers move to other countries, until `stop`. Goes on when the server was down."""
        rng = random.Random(3)
        while not self._stopped.is_set():
            with _unless_down(self._stopped), self.customers() as session, session.cursor() as cursor:
                while not self._stopped.is_set():
                    moved = rng.choice(COUNTRIES), rng.randrange(customers)
                    cursor.execute("UPDATE customers SET country = %s WHERE id = %s", moved)
                    self._stopped.wait(pause_s)

    def stop(self) -> None:
        self._stopped.set()

    # -- what is in the databases

    def expected_report(self) -> dict[int, tuple[Any, ...]]:
        """The join of the two tables, computed here: order id -> name, country, cents, state."""
        customers = self.customer_rows()
        with self.orders() as session:
            orders = session.execute("SELECT id, customer_id, cents, state FROM orders").fetchall()
        return {key: (*customers[owner], cents, state) for key, owner, cents, state in orders}

    def customer_rows(self) -> dict[int, tuple[str, str]]:
        with self.customers() as session, session.cursor() as cursor:
            cursor.execute("SELECT id, name, country FROM customers")
            return {key: (name, country) for key, name, country in cursor.fetchall()}

    def report_rows(self) -> dict[int, tuple[Any, ...]]:
        with self.customers() as session, session.cursor() as cursor:
            cursor.execute("SELECT order_id, name, country, cents, state FROM order_report")
            return {row[0]: tuple(row[1:]) for row in cursor.fetchall()}

    def copied_customers(self) -> dict[int, tuple[str, str]]:
        with self.orders() as session:
            rows = session.execute("SELECT id, name, country FROM customers").fetchall()
        return {key: (name, country) for key, name, country in rows}


class _unless_down:  # noqa: N801 - used like a function
    """Ignores the errors of a server that is down, after a pause."""

    def __init__(self, stopped: threading.Event) -> None:
        self._stopped = stopped

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        if isinstance(error, DOWN):
            self._stopped.wait(0.2)
            return True
        return False


@dataclass
class Sampler:
    """Counts rows twice a second: (seconds, orders in PostgreSQL, rows of the report in MariaDB)."""

    shop: Shop
    samples: list[tuple[float, int, int]] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def run(self, stopped: Callable[[float], bool], show: Callable[[int, int], None]) -> None:
        """Count until `stopped(seconds)`, which waits so long, is true."""
        while not stopped(0.5):
            try:
                with self.shop.orders() as session:
                    found = session.execute("SELECT count(*) FROM orders").fetchone()
                with self.shop.customers() as session, session.cursor() as cursor:
                    cursor.execute("SELECT count(*) FROM order_report")
                    reported = cursor.fetchall()[0][0]
            except DOWN:
                continue  # a server is down
            orders = 0 if found is None else found[0]
            self.samples.append((time.monotonic() - self.began, orders, reported))
            show(orders, reported)
