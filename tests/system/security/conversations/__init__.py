"""Raw SASL conversations: a table of them, and a player. They are played to our broker and to Apache Kafka."""
