"""The demo: publishes a year of flights to a topic, runs a Spark streaming job over it, and checks the result. Run it
with `make demo`.
"""
