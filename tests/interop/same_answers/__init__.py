"""The same requests to our broker and to Apache Kafka, and their answers side by side."""
