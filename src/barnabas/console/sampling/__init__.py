"""Shell: measures the cluster at intervals, and keeps the last hour in memory."""
