"""What a log keeps is redacted and sealed like all values."""

from __future__ import annotations

from pathlib import Path

import outlive
from outlive import LogWrite, Redaction
from tests.logs.conftest import KEY

SECRETS = [f"sk-{'abcdefgh' * 3}{number:02}" for number in range(20)]


async def fill(app: outlive.App) -> None:
    """Each secret in a value, in a long one, and in a tag."""
    log = app.log("l")
    for number, secret in enumerate(SECRETS):
        values = [secret, {"deep": [f"{secret} " * 60]}]
        write = LogWrite(values=values, tags={"token": secret})
        await log.append(f"k{number}", lambda view, write=write: write)
    await log.append_all(["k0", "k1"], lambda views: {key: [SECRETS[0]] for key in views})


def bytes_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob("o.db*") if path.is_file())


async def test_a_sealed_file_has_no_secret(tmp_path: Path) -> None:
    """Neither in values nor in tags; tags are found all the same."""
    async with outlive.open(f"sqlite:///{tmp_path}/o.db", key=KEY, drive=False) as app:
        await fill(app)
        stored = bytes_in(tmp_path)
        (found,) = (await app.log("l").find(tag=("token", SECRETS[7]))).items

    assert "k7" == found.key
    assert {"token": SECRETS[7]} == found.tags
    assert not [secret for secret in SECRETS if secret.encode() in stored]


async def test_rules_of_redaction_hold_for_logs(tmp_path: Path) -> None:
    """A pattern keeps secrets out of values and tags."""
    rules = Redaction(patterns=(r"sk-[a-z]{24}\d\d",))
    url = f"sqlite:///{tmp_path}/o.db"
    async with outlive.open(url, redaction=rules, drive=False) as app:
        await fill(app)
        stored = bytes_in(tmp_path)
        entries = await app.log("l").read("k3")

    assert "[redacted]" == entries[0].value
    assert not [secret for secret in SECRETS if secret.encode() in stored]
