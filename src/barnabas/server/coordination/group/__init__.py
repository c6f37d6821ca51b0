"""Groups: the classic and the consumer protocol, and the offsets they commit."""
