"""Retention: the sweep, the deletion of runs, archives."""
