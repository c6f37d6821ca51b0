"""Records to a web service: `format("barnabas.http")`, at least once, with an idempotency key for each request."""
