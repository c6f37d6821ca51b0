"""Kafka's own tools by their own names: `kafka-topics`, `kafka-console-consumer`, ... with Kafka's flags and output.

These tools exist so that scripts and test suites written for Kafka work unchanged. For interactive use, the nouns of
`barnabas` are more convenient. Each tool is one file and uses the same clients as the nouns.
"""
