"""The active controller, which decides on changes of the cluster's metadata."""
