"""What people type: one module per group of commands, none with logic of its own."""

from outlive.cli.entry import main

__all__ = ["main"]
