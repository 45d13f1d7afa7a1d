"""Checkpoints of several agents: messages between them, and consistent cuts."""
