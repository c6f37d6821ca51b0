"""Kafka's own tools by their own names: `kafka-topics`, `kafka-console-consumer`, ... with Kafka's flags and output.

For scripts and test suites that exist. People are better served by `barnabas`. One file a tool; each calls the same
clients as the nouns beside it.
"""
