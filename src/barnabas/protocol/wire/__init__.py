"""The Kafka protocol, sans-IO: messages, codecs, frames, connections. Bytes in, values out; no sockets, no clocks."""
