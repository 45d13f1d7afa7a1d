"""The auditor: invariants that must hold after any crash."""
