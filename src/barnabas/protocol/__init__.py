"""What both ends of a connection share: messages, record batches, assignors, security, transport."""
