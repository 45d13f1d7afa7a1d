"""Which worktree an agent is bound to: binding, home, a pending switch, an absolute time limit.

The names are those of SW4RM. Everything that decides what an agent may do next is saved, whole,
before a call returns: a restart finds the state, not only the binding. Every look first applies a
time limit that has passed, in whichever process; a timer only makes that prompt.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from outlive.errors import StoreError, UsageError, ValueRefused, WrongVersion
from outlive.inbox.logs import replace_file
from outlive.ports import Ports

logger = logging.getLogger("outlive.worktree")

VERSION = "1.0"
SWITCH_TTL_MS = 300_000
#: Attempts to bind after one that failed.
BIND_RETRIES_MAX = 3
GIT_TIMEOUT_SECONDS = 10

WorktreeStatus: TypeAlias = Literal[
    "UNBOUND", "BOUND_HOME", "SWITCH_PENDING", "BOUND_NON_HOME", "BIND_FAILED"
]
T = TypeVar("T")


@dataclass
class WorktreeBinding:
    """A binding of an agent to a worktree."""

    repo_id: str
    worktree_id: str
    #: Seconds since 1970.
    bound_at: int
    metadata: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Its fields, as SW4RM stores them."""
        return {
            "repo_id": self.repo_id,
            "worktree_id": self.worktree_id,
            "bound_at": self.bound_at,
            "metadata": dict(self.metadata),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> WorktreeBinding:
        """A binding from its fields; raises ``ValueError``."""
        try:
            found = msgspec.convert({"metadata": {}, **data}, _Binding)
        except (msgspec.ValidationError, TypeError) as error:
            raise ValueError(f"this is not a binding: {error}") from None
        return cls(found.repo_id, found.worktree_id, found.bound_at, found.metadata or {})


class _Binding(msgspec.Struct, forbid_unknown_fields=True):
    repo_id: str
    worktree_id: str
    bound_at: int
    metadata: dict[str, Any] | None = None


class WorktreePolicyHook(Protocol):
    """What may forbid a binding, and what hears of it. All methods are optional."""

    def before_bind(
        self, repo_id: str, worktree_id: str, current_binding: WorktreeBinding | None
    ) -> bool:
        """Whether it may be bound."""
        ...

    def after_bind(self, binding: WorktreeBinding) -> None:
        """It was bound, durably."""
        ...

    def before_unbind(self, binding: WorktreeBinding) -> bool:
        """Whether it may be unbound."""
        ...

    def after_unbind(self, former_binding: WorktreeBinding) -> None:
        """It was unbound, durably."""
        ...

    def on_bind_error(self, repo_id: str, worktree_id: str, error: Exception) -> None:
        """It could not be bound."""
        ...


class WorktreeRecord(msgspec.Struct, kw_only=True):
    """Everything that is saved of one agent's worktree."""

    binding: dict[str, Any] | None = None
    state: WorktreeStatus = "UNBOUND"
    home: dict[str, Any] | None = None
    #: The worktree that a switch was asked for: repo_id and worktree_id.
    pending: tuple[str, str] | None = None
    #: ms since 1970: when the agent goes back home; None: never.
    home_at_ms: int | None = None
    ttl_ms: int | None = None
    #: Why the last attempt to bind failed, and how many did in a row.
    reason: str = ""
    failures: int = 0


class WorktreePersistence:
    """A JSON file that SW4RM can read; what it has no place for is in a part of ours."""

    def __init__(self, file_path: str | os.PathLike[str] = "sw4rm_worktree.json") -> None:
        self.file_path = Path(file_path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes out."""
        self.file_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        guard = self.file_path.with_name(self.file_path.name + ".lock")
        fd = os.open(guard, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)

    def save_record(self, record: WorktreeRecord) -> None:
        """Save everything, durably."""
        try:
            own = msgspec.to_builtins(record)
            content = {"binding": own.pop("binding"), "version": VERSION, "outlive": own}
            text = json.dumps(content, indent=2)
        except (TypeError, ValueError) as error:
            raise ValueRefused(f"metadata can't be JSON: {error}") from None
        replace_file(self.file_path, text.encode())

    def load_record(self) -> WorktreeRecord:
        """Everything that was saved.

        Raises:
            WrongVersion: the file has another version.
            StoreError: it is damaged.
        """
        try:
            content = json.loads(self.file_path.read_bytes())
        except FileNotFoundError:
            return WorktreeRecord()
        except ValueError as error:
            raise self._damaged(error) from None
        if not isinstance(content, dict) or "binding" not in content:
            raise self._damaged("it has no binding")
        if content.get("version") != VERSION:
            raise WrongVersion(
                f"{self.file_path} has version {content.get('version')!r:.100}; this release "
                f"reads {VERSION}"
            )
        try:
            return _record_of(content)
        except (msgspec.ValidationError, ValueError, TypeError) as error:
            raise self._damaged(error) from None

    def _damaged(self, why: object) -> StoreError:
        return StoreError(f"{self.file_path} is damaged: {why}; mend it, or put it aside")

    def save_binding(self, binding: WorktreeBinding | None) -> None:
        """Save a binding, as SW4RM's own state calls it: it becomes the home."""
        with self.locked():
            found = None if binding is None else binding.to_dict()
            state: WorktreeStatus = "UNBOUND" if binding is None else "BOUND_HOME"
            self.save_record(WorktreeRecord(binding=found, state=state, home=found))

    def load_binding(self) -> WorktreeBinding | None:
        """The binding."""
        found = self.load_record().binding
        return None if found is None else WorktreeBinding.from_dict(found)

    def clear(self) -> None:
        """Delete the file."""
        self.file_path.unlink(missing_ok=True)


def _record_of(content: Mapping[str, Any]) -> WorktreeRecord:
    binding = content["binding"]
    if binding is not None:
        WorktreeBinding.from_dict(binding)
    own = content.get("outlive")
    if own is None:  # of SW4RM: a binding is all it saves
        state = "UNBOUND" if binding is None else "BOUND_HOME"
        own = {"state": state, "home": binding}
    record = msgspec.convert({**own, "binding": binding}, WorktreeRecord)
    if record.home is not None:
        WorktreeBinding.from_dict(record.home)
    is_bound = record.state in ("BOUND_HOME", "SWITCH_PENDING", "BOUND_NON_HOME")
    if is_bound != (binding is not None) and record.state != "BIND_FAILED":
        raise ValueError(f"its state is {record.state}, which does not fit its binding")
    return record


class PersistentWorktreeState:
    """The worktree of one agent. Any number of processes and threads may share it."""

    def __init__(
        self,
        *,
        persistence: WorktreePersistence | None = None,
        policy: WorktreePolicyHook | None = None,
        git_root: str | os.PathLike[str] | None = None,
    ) -> None:
        self._persistence = persistence or WorktreePersistence()
        self._policy = policy
        self._git_root = None if git_root is None else Path(git_root).resolve()
        self._ports, self._lock = Ports(), threading.RLock()
        self._timer: threading.Timer | None = None
        self._look(lambda record: None)

    # changing

    def bind(
        self, repo_id: str, worktree_id: str, metadata: Mapping[str, Any] | None = None
    ) -> bool:
        """Bind to a worktree, which becomes the home; durable when it returns.

        False: the policy forbids it, or it failed; then ``status()["reason"]`` says why.

        Raises:
            StoreError, OSError: it can't be saved.
        """
        return self._bind(repo_id, worktree_id, metadata, unbinds=False)

    def switch(
        self, repo_id: str, worktree_id: str, metadata: Mapping[str, Any] | None = None
    ) -> bool:
        """Unbind and bind, as one change: if one of them is forbidden, nothing changes."""
        return self._bind(repo_id, worktree_id, metadata, unbinds=True)

    def _bind(
        self,
        repo_id: str,
        worktree_id: str,
        metadata: Mapping[str, Any] | None,
        *,
        unbinds: bool,
    ) -> bool:
        _check_names(repo_id, worktree_id)
        given = dict(metadata or {})
        with self._changing() as record:
            former = _binding_of(record.binding)
            if record.state == "BIND_FAILED" and record.failures > BIND_RETRIES_MAX:
                return False
            try:
                if unbinds and former is not None and not self._allows("before_unbind", former):
                    return False
                if not self._allows("before_bind", repo_id, worktree_id, former):
                    return False
                self._check_git(given)
            except Exception as error:
                self._fail(record, repo_id, worktree_id, error)
                return False
            binding = WorktreeBinding(repo_id, worktree_id, self._now() // 1000, given)
            found = binding.to_dict()
            self._save(WorktreeRecord(binding=found, state="BOUND_HOME", home=found))
        if unbinds and former is not None:
            self._tell("after_unbind", former)
        self._tell("after_bind", binding)
        return True

    def _fail(
        self, record: WorktreeRecord, repo_id: str, worktree_id: str, error: Exception
    ) -> None:
        """A binding that there was stays; without one the failure is the state."""
        record.reason, record.failures = f"{type(error).__name__}: {error}", record.failures + 1
        if record.binding is None:
            record.state = "BIND_FAILED"
        self._save(record)
        self._tell("on_bind_error", repo_id, worktree_id, error)

    def unbind(self) -> bool:
        """Unbind, if the policy allows it."""
        with self._changing() as record:
            former = _binding_of(record.binding)
            if former is None:
                if record.state != "UNBOUND":
                    self._save(WorktreeRecord())
                return True
            if not self._allows("before_unbind", former):
                return False
            self._save(WorktreeRecord())
        self._tell("after_unbind", former)
        return True

    def request_switch(self, target_repo_id: str, target_worktree_id: str) -> bool:
        """Ask for another worktree, from home; somebody must approve it."""
        _check_names(target_repo_id, target_worktree_id)
        with self._changing() as record:
            if record.state != "BOUND_HOME":
                return self._refused(record, f"a switch is asked for at home, not {record.state}")
            record.state, record.pending = "SWITCH_PENDING", (target_repo_id, target_worktree_id)
            record.reason = ""
            self._save(record)
        return True

    def approve_switch(self, ttl_ms: int = SWITCH_TTL_MS) -> bool:
        """Go to the worktree that was asked for, for ``ttl_ms``; 0: until somebody goes back."""
        if type(ttl_ms) is not int or ttl_ms < 0:
            raise UsageError(f"ttl_ms={ttl_ms!r}: it is a number of milliseconds, or 0 for ever")
        with self._changing() as record:
            if record.state != "SWITCH_PENDING" or record.pending is None:
                return self._refused(record, "no switch is pending")
            binding = WorktreeBinding(*record.pending, self._now() // 1000)
            record.binding, record.state, record.pending = binding.to_dict(), "BOUND_NON_HOME", None
            record.ttl_ms, record.reason = ttl_ms, ""
            record.home_at_ms = self._now() + ttl_ms if ttl_ms else None
            self._save(record)
        return True

    def reject_switch(self) -> bool:
        """Stay at home."""
        with self._changing() as record:
            if record.state != "SWITCH_PENDING":
                return self._refused(record, "no switch is pending")
            record.state, record.pending, record.reason = "BOUND_HOME", None, ""
            self._save(record)
        return True

    def revert_to_home(self) -> None:
        """Go back home, if this is another worktree."""
        with self._changing() as record:
            if record.state == "BOUND_NON_HOME":
                self._save(_home(record))

    def clear(self) -> None:
        """Forget everything."""
        with self._lock, self._persistence.locked():
            self._persistence.clear()
            self._set_timer(WorktreeRecord())

    # looking

    @property
    def state(self) -> WorktreeStatus:
        """UNBOUND, BOUND_HOME, SWITCH_PENDING, BOUND_NON_HOME or BIND_FAILED."""
        return self._look(lambda record: record.state)

    def current(self) -> WorktreeBinding | None:
        """The binding."""
        return self._look(lambda record: _binding_of(record.binding))

    def is_bound(self) -> bool:
        """Whether there is a binding."""
        return self._look(lambda record: record.binding is not None)

    def status(self) -> dict[str, Any]:
        """Everything, as a dict."""
        return self._look(_status)

    # how

    @contextmanager
    def _changing(self) -> Iterator[WorktreeRecord]:
        with self._lock, self._persistence.locked():
            yield self._read()

    def _look(self, view: Callable[[WorktreeRecord], T]) -> T:
        with self._changing() as record:
            return view(record)

    def _read(self) -> WorktreeRecord:
        """What is saved; a time limit that has passed is applied."""
        record = self._persistence.load_record()
        if record.home_at_ms is not None and record.home_at_ms <= self._now():
            record = _home(record)
            self._persistence.save_record(record)
        self._set_timer(record)
        return record

    def _save(self, record: WorktreeRecord) -> None:
        self._persistence.save_record(record)
        self._set_timer(record)

    def _set_timer(self, record: WorktreeRecord) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if record.home_at_ms is not None:
            pause = max(0, record.home_at_ms - self._now()) / 1000
            self._timer = threading.Timer(pause, self._expire)
            self._timer.daemon = True
            self._timer.start()

    def _expire(self) -> None:
        try:
            self._look(lambda record: None)
        except (StoreError, OSError) as error:
            logger.warning("the way back home could not be saved: %s; the next look does it", error)

    def _now(self) -> int:
        return self._ports.clock.now_ms()

    def _refused(self, record: WorktreeRecord, why: str) -> bool:
        record.reason = why
        self._save(record)
        return False

    def _allows(self, name: str, *args: Any) -> bool:
        hook = getattr(self._policy, name, None)
        return hook is None or bool(hook(*args))

    def _tell(self, name: str, *args: Any) -> None:
        """Call a hook that only hears: what it raises changes nothing that is saved."""
        hook = getattr(self._policy, name, None)
        if hook is None:
            return
        try:
            hook(*args)
        except Exception:
            logger.exception("%s of the worktree's policy raised; the binding stands", name)

    def _check_git(self, metadata: Mapping[str, Any]) -> None:
        """With ``git_root``: the path in the metadata is a worktree below it."""
        if self._git_root is None:
            return
        given = metadata.get("path")
        if not isinstance(given, str):
            raise UsageError("metadata needs the path of the worktree, because git_root is set")
        path = (self._git_root / given).resolve()
        if not path.is_relative_to(self._git_root):
            raise UsageError(f"{given!r:.200} is outside of {self._git_root}")
        if path not in git_worktrees(path):
            raise UsageError(f"{path} is not a git worktree; `git worktree add` makes one")


def git_worktrees(path: Path) -> set[Path]:
    """The worktrees of the repository that this folder belongs to; none, if it is in none."""
    if not path.is_dir():
        return set()
    call = ["git", "-C", str(path), "worktree", "list", "--porcelain", "-z"]
    done = subprocess.run(call, capture_output=True, check=False, timeout=GIT_TIMEOUT_SECONDS)
    lines = done.stdout.decode(errors="replace").split("\0")
    return {Path(line[9:]).resolve() for line in lines if line.startswith("worktree ")}


def _binding_of(found: dict[str, Any] | None) -> WorktreeBinding | None:
    return None if found is None else WorktreeBinding.from_dict(found)


def _home(record: WorktreeRecord) -> WorktreeRecord:
    home = record.home or record.binding
    return WorktreeRecord(binding=home, state="BOUND_HOME", home=home)


def _check_names(repo_id: object, worktree_id: object) -> None:
    for name, given in (("repo_id", repo_id), ("worktree_id", worktree_id)):
        if not isinstance(given, str) or not given:
            raise UsageError(f"{name} is a text, not {given!r:.100}")


def _status(record: WorktreeRecord) -> dict[str, Any]:
    found: dict[str, Any] = {"bound": record.binding is not None, "state": record.state}
    if record.binding is not None:
        found |= record.binding
    if record.home is not None:
        found["home_repo_id"] = record.home["repo_id"]
        found["home_worktree_id"] = record.home["worktree_id"]
    if record.pending is not None:
        found["pending_repo_id"], found["pending_worktree_id"] = record.pending
    if record.ttl_ms is not None:
        found["switch_ttl_ms"] = record.ttl_ms
    if record.home_at_ms is not None:
        found["home_at_ms"] = record.home_at_ms
    if record.reason:
        found["reason"] = record.reason
    return found
