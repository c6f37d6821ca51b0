"""The active controller: it decides what may change in the cluster's truth."""
