"""APIs that move records."""
