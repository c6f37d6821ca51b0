"""Histories of concurrent clients on a broker that suffers, checked for anomalies; and bugs planted to be found."""
