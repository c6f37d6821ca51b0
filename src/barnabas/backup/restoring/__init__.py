"""Restoring a run into a cluster: by a cluster link to the run, or by Produce."""
