"""Object stores as brokers use them: the names of objects, repetitions, and the store that the configs name."""
