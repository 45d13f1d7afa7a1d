"""Worktree bindings: what survives, what is one change, what a policy may do."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from sw4rm import worktree_state as theirs

from outlive.errors import StoreError, UsageError, ValueRefused, WrongVersion
from outlive.worktree import PersistentWorktreeState, WorktreeBinding, WorktreePersistence
from tests.harness.processes import until


def opened(path: Path, **options: Any) -> PersistentWorktreeState:
    persistence = WorktreePersistence(file_path=path / "worktree.json")
    return PersistentWorktreeState(persistence=persistence, **options)


class Policy:
    """Allows what its flags say, and notes what it hears."""

    def __init__(self, *, bind: bool = True, unbind: bool = True, raises: str = "") -> None:
        self.bind, self.unbind, self.raises = bind, unbind, raises
        self.heard: list[str] = []

    def _note(self, name: str) -> None:
        self.heard.append(name)
        if name == self.raises:
            raise RuntimeError(name)

    def before_bind(self, repo_id: str, worktree_id: str, current: Any) -> bool:
        self._note("before_bind")
        return self.bind

    def after_bind(self, binding: Any) -> None:
        self._note("after_bind")

    def before_unbind(self, binding: Any) -> bool:
        self._note("before_unbind")
        return self.unbind

    def after_unbind(self, binding: Any) -> None:
        self._note("after_unbind")

    def on_bind_error(self, repo_id: str, worktree_id: str, error: Exception) -> None:
        self._note("on_bind_error")


def test_the_sample_of_the_document(tmp_path: Path) -> None:
    """Items 49, 50, 51, 53, 54, 55: bind, look, switch, unbind, as it is written there."""
    worktree = opened(tmp_path, policy=None)
    assert worktree.bind("org/repo", "main", metadata={"path": "/workspace/repo"})
    binding = worktree.current()
    assert binding is not None
    assert ("org/repo", "main", {"path": "/workspace/repo"}) == (
        binding.repo_id, binding.worktree_id, binding.metadata,
    )  # fmt: skip
    assert binding.bound_at > 0
    status = worktree.status()
    assert (True, "BOUND_HOME", "org/repo", "main") == (
        status["bound"], status["state"], status["repo_id"], status["home_worktree_id"],
    )  # fmt: skip
    assert worktree.switch(repo_id="org/repo", worktree_id="feature-branch")
    assert "feature-branch" == worktree.status()["worktree_id"]
    assert worktree.unbind()
    assert not worktree.is_bound()
    assert {"bound": False, "state": "UNBOUND"} == worktree.status()


def test_a_kill_loses_nothing_at_any_point(tmp_path: Path) -> None:
    """Items 51, 52, 57; weakness 18: state, home, pending switch and time limit survive."""
    steps = [
        lambda w: w.bind("org/repo", "main", {"a": 1}),
        lambda w: w.request_switch("org/repo", "feature"),
        lambda w: w.approve_switch(600_000),
        lambda w: w.revert_to_home(),
    ]
    states = ["UNBOUND", "BOUND_HOME", "SWITCH_PENDING", "BOUND_NON_HOME", "BOUND_HOME"]
    for last, state in enumerate(states):
        folder = tmp_path / str(last)
        child = os.fork()
        if child == 0:
            worktree = opened(folder)
            for step in steps[:last]:
                step(worktree)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        found = opened(folder).status()
        assert state == found["state"]
        assert (last > 0) is found["bound"]
        if state == "SWITCH_PENDING":
            assert "feature" == found["pending_worktree_id"]
        if state == "BOUND_NON_HOME":
            assert ("feature", "main") == (found["worktree_id"], found["home_worktree_id"])
            assert 600_000 == found["switch_ttl_ms"]
            opened(folder).revert_to_home()
            assert "main" == opened(folder).status()["worktree_id"]


def test_a_time_limit_is_absolute(tmp_path: Path) -> None:
    """Items 52, 59: one that passed while nobody lived is applied by the first look."""
    worktree = opened(tmp_path)
    worktree.bind("org/repo", "main")
    worktree.request_switch("org/repo", "feature")
    assert worktree.approve_switch(600_000)
    path = tmp_path / "worktree.json"
    content = json.loads(path.read_text())
    content["outlive"]["home_at_ms"] = 1
    path.write_text(json.dumps(content))
    again = opened(tmp_path)
    assert "BOUND_HOME" == json.loads(path.read_text())["outlive"]["state"]
    assert "main" == again.status()["worktree_id"]
    worktree.unbind()


def test_a_timer_goes_home_in_whichever_process_lives(tmp_path: Path) -> None:
    """Item 59: nobody has to look for it."""
    worktree = opened(tmp_path)
    worktree.bind("org/repo", "main")
    worktree.request_switch("org/repo", "feature")
    worktree.approve_switch(30)
    path = tmp_path / "worktree.json"
    until(lambda: json.loads(path.read_text())["outlive"]["state"] == "BOUND_HOME", "home")


def test_switches_are_asked_for_and_decided(tmp_path: Path) -> None:
    """Items 56, 57: request, reject, approve, in their order; otherwise False with the reason."""
    worktree = opened(tmp_path)
    assert not worktree.request_switch("org/repo", "feature")
    assert "at home, not UNBOUND" in worktree.status()["reason"]
    worktree.bind("org/repo", "main")
    assert not worktree.approve_switch()
    assert not worktree.reject_switch()
    assert worktree.request_switch("org/repo", "feature")
    assert "SWITCH_PENDING" == worktree.state
    assert worktree.reject_switch()
    assert ("BOUND_HOME", "main") == (worktree.state, worktree.status()["worktree_id"])
    worktree.request_switch("org/repo", "feature")
    assert worktree.approve_switch(ttl_ms=0)
    assert "BOUND_NON_HOME" == worktree.state
    worktree.clear()
    assert "UNBOUND" == worktree.state


@pytest.mark.parametrize("policy", [Policy(bind=False), Policy(unbind=False)])
def test_a_denied_switch_stays_bound(tmp_path: Path, policy: Policy) -> None:
    """Items 54, 58; weakness 18: unbind and bind are one change."""
    opened(tmp_path).bind("org/repo", "main")
    worktree = opened(tmp_path, policy=policy)
    assert not worktree.switch("org/repo", "feature")
    assert ("BOUND_HOME", "main") == (worktree.state, worktree.status()["worktree_id"])
    assert "after_unbind" not in policy.heard


def test_hooks_are_called_in_order(tmp_path: Path) -> None:
    """Item 58: before, then durable, then after."""
    policy = Policy()
    worktree = opened(tmp_path, policy=policy)
    worktree.bind("org/repo", "main")
    worktree.switch("org/repo", "feature")
    worktree.unbind()
    assert [
        "before_bind", "after_bind", "before_unbind", "before_bind", "after_unbind", "after_bind",
        "before_unbind", "after_unbind",
    ] == policy.heard  # fmt: skip


def test_a_hook_that_raises_afterwards_leaves_no_half_state(tmp_path: Path) -> None:
    """Item 58; weakness 18: bound, and said to be bound."""
    worktree = opened(tmp_path, policy=Policy(raises="after_bind"))
    assert worktree.bind("org/repo", "main")
    assert ("BOUND_HOME", True) == (worktree.state, worktree.is_bound())


def test_a_failed_bind_has_its_reason_and_few_retries(tmp_path: Path) -> None:
    """Item 57: BIND_FAILED with the reason; after three more attempts no other is made."""
    policy = Policy(raises="before_bind")
    worktree = opened(tmp_path, policy=policy)
    for _ in range(6):
        assert not worktree.bind("org/repo", "main")
    assert ("BIND_FAILED", "RuntimeError: before_bind") == (
        worktree.state, worktree.status()["reason"],
    )  # fmt: skip
    assert 4 == policy.heard.count("before_bind")
    assert worktree.unbind()
    policy.raises = ""
    assert worktree.bind("org/repo", "main")


def test_a_bind_that_is_not_saved_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Item 60; weakness 18: never True."""
    worktree = opened(tmp_path)

    def full(*args: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("outlive.worktree.bindings.replace_file", full)
    with pytest.raises(OSError, match="no space left"):
        worktree.bind("org/repo", "main")
    monkeypatch.undo()
    assert not worktree.is_bound()
    with pytest.raises(ValueRefused, match="metadata"):
        worktree.bind("org/repo", "main", {"a": object()})


def test_files_are_shared_with_the_real_package(tmp_path: Path) -> None:
    """Items 49, 75: theirs opens with home and state; ours opens there."""
    path = tmp_path / "worktree.json"
    their_file = theirs.WorktreePersistence(str(path))
    theirs.PersistentWorktreeState(persistence=their_file).bind("org/repo", "main", {"a": 1})
    worktree = opened(tmp_path)
    assert ("BOUND_HOME", "main") == (worktree.state, worktree.status()["home_worktree_id"])
    worktree.switch("org/repo", "feature")
    found = their_file.load_binding()
    assert "feature" == found.worktree_id
    state = theirs.PersistentWorktreeState(persistence=WorktreePersistence(path))
    state.bind("org/other", "main")
    assert "org/other" == opened(tmp_path).status()["repo_id"]


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("{", StoreError),
        ('{"binding": null, "version": "2.0"}', WrongVersion),
        ('{"binding": {"repo_id": 7}, "version": "1.0"}', StoreError),
        ('{"binding": null, "version": "1.0", "outlive": {"state": "BOUND_HOME"}}', StoreError),
        ('{"binding": null, "version": "1.0", "outlive": {"state": "ROOT"}}', StoreError),
        ("[]", StoreError),
    ],
)
def test_damaged_and_forged_files_are_refused(
    tmp_path: Path, content: str, error: type[Exception]
) -> None:
    """Items 11, 49: by the name of the file, and it is not overwritten."""
    path = tmp_path / "worktree.json"
    path.write_text(content)
    with pytest.raises(error, match=r"worktree\.json"):
        opened(tmp_path)
    assert content == path.read_text()


def test_threads_do_not_mix(tmp_path: Path) -> None:
    """Two who bind at the same time: one binding is there in the end, whole."""
    states = [opened(tmp_path) for _ in range(4)]
    threads = [
        threading.Thread(target=state.bind, args=(f"repo-{n}", f"tree-{n}"))
        for n, state in enumerate(states)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = opened(tmp_path).status()
    assert found["repo_id"][-1] == found["worktree_id"][-1] == found["home_worktree_id"][-1]


def test_files_are_private(tmp_path: Path) -> None:
    """Item 72: 0600."""
    opened(tmp_path / "new").bind("org/repo", "main")
    for path in (tmp_path / "new").iterdir():
        assert 0o600 == stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("names", [("", "main"), ("org/repo", ""), (7, "main")])
def test_names_are_texts(tmp_path: Path, names: tuple[Any, Any]) -> None:
    """Anything else is refused."""
    with pytest.raises(UsageError, match="is a text"):
        opened(tmp_path).bind(*names)


def test_a_git_worktree_is_checked(tmp_path: Path) -> None:
    """With ``git_root`` the path must be a real worktree below it; paths do not lead out."""
    root = tmp_path / "root"
    repo = root / "repo"
    repo.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (root / "plain").mkdir()
    git = ["git", "-C", str(repo), "-c", "user.name=a", "-c", "user.email=a@b"]
    for call in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "one"],
                 ["worktree", "add", "-q", "../feature"]):  # fmt: skip
        subprocess.run([*git, *call], check=True, capture_output=True)
    (root / "link").symlink_to(tmp_path / "elsewhere")
    worktree = opened(tmp_path, git_root=root)

    assert worktree.bind("org/repo", "main", {"path": "repo"})
    assert worktree.switch("org/repo", "feature", {"path": str(root / "feature")})
    for path in ("plain", "missing", "../elsewhere", "link", "/etc", "repo/.git", None):
        assert not worktree.switch("org/repo", "x", {"path": path})
        assert "UsageError" in worktree.status()["reason"]
    assert "feature" == worktree.status()["worktree_id"]


def test_a_binding_is_a_dict_and_back() -> None:
    """Item 53: its fields, and nothing else."""
    binding = WorktreeBinding("org/repo", "main", 7, {"a": 1})
    assert binding == WorktreeBinding.from_dict(binding.to_dict())
    with pytest.raises(ValueError, match="not a binding"):
        WorktreeBinding.from_dict({**binding.to_dict(), "more": 1})
