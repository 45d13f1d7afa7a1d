"""Which worktree of a repository an agent works in, kept over restarts."""

from outlive.worktree.bindings import (
    PersistentWorktreeState,
    WorktreeBinding,
    WorktreePersistence,
    WorktreePolicyHook,
)

__all__ = [
    "PersistentWorktreeState",
    "WorktreeBinding",
    "WorktreePersistence",
    "WorktreePolicyHook",
]
