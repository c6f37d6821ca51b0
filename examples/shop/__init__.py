"""A shop whose orders are in PostgreSQL and whose customers are in MariaDB. README.md says what it shows."""
