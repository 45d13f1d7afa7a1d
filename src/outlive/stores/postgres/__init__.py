"""Journals in a PostgreSQL database."""
