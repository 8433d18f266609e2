"""Caches and state of gradtool in folders of its user: never beside a model.

Cached plans lie in the cache folder, the last run and a secret in the state folder; their places
are told by the system, or by XDG_CACHE_HOME and XDG_STATE_HOME.  Both are for nobody else.

An entry carries a MAC by the secret of its name and content, and its name is one of its subject:
whoever cannot read the secret can neither make an entry nor take one for another.  A home that
cannot be written to has no memory, and in CI (the variable is set) nothing is remembered.
"""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gradtool.io import contained

MOST_BYTES = 1 << 26  # of all entries of a shelf
_SECRET, _BYTES = "secret", 32
_MAC = 64  # digits
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True)
class Shelf:
    """Entries of one kind, the newest `most` of them; `kind` is that of the folder it is in."""

    kind: str
    name: str
    most: int = 512

    def key(self, content: bytes) -> str | None:
        """The name of the entry about something; None where nothing is remembered."""
        secret = None if os.environ.get("CI") else _secret()
        return None if secret is None else _mac(secret, b"name", self.name.encode(), content)

    def get(self, key: str) -> bytes | None:
        """The entry under a key, unless somebody else made it."""
        secret, folder = _secret(), _folder(self.kind, self.name)
        if secret is None or folder is None:
            return None
        try:
            with contained.opened(folder / key) as file:
                found = file.read(MOST_BYTES + 1)
        except OSError:
            return None
        mac, data = found[:_MAC], found[_MAC:]
        return data if hmac.compare_digest(mac, self._mac(secret, key, data)) else None

    def put(self, key: str, data: bytes) -> None:
        """Remember data, and forget the oldest of too many."""
        secret, folder = _secret(), _folder(self.kind, self.name)
        if secret is None or folder is None or len(data) > MOST_BYTES // 2:
            return
        with suppress(OSError):
            _write(folder / key, self._mac(secret, key, data) + data)
            self._forget(folder)

    def _mac(self, secret: bytes, key: str, data: bytes) -> bytes:
        return _mac(secret, b"entry", self.name.encode(), key.encode(), data).encode()

    def _forget(self, folder: Path) -> None:
        with os.scandir(folder) as entries:
            there = [(e.stat(follow_symlinks=False), e.path) for e in entries if not e.is_dir()]
        there.sort(key=lambda each: (-each[0].st_mtime_ns, each[1]))
        size = 0
        for number, (status, path) in enumerate(there):
            size += status.st_size
            if number >= self.most or size > MOST_BYTES:
                Path(path).unlink(missing_ok=True)


PLANS = Shelf("cache", "plans")
LAST = Shelf("state", "last")


def _mac(secret: bytes, *parts: bytes) -> str:
    """A MAC of parts, each with its length, so that no two lists of parts are alike."""
    found = hmac.new(secret, digestmod="sha256")
    for part in parts:
        found.update(len(part).to_bytes(8, "big") + part)
    return found.hexdigest()


def _folder(kind: str, *names: str) -> Path | None:
    """A private folder of the user, made if there is none."""
    import platformdirs

    find = {"cache": platformdirs.user_cache_path, "state": platformdirs.user_state_path}[kind]
    try:
        base = find("gradtool", appauthor=False)
        if not base.is_absolute():  # which XDG says to ignore; from here it would lie anywhere
            return None
        _made_private(base.parent)
        for path in (base, *(base.joinpath(*names[: n + 1]) for n in range(len(names)))):
            status = contained.made(path, 0o700).lstat()
            if not _is_ours(status):
                return None
            if status.st_mode & _OTHERS:
                path.chmod(0o700)
    except (OSError, RuntimeError, ValueError):
        return None
    return base.joinpath(*names)


def _made_private(folder: Path) -> None:
    if not folder.exists():
        _made_private(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def _is_ours(status: os.stat_result) -> bool:
    """Whether something is the user's: another one's may be changed by him, or be for him."""
    return not hasattr(os, "geteuid") or status.st_uid == os.geteuid()


def _secret() -> bytes | None:
    """The user's secret, made, and readable to the user alone, if there is none."""
    folder = _folder("state")
    if folder is None:
        return None
    path = folder / _SECRET
    with suppress(OSError), contained.opened(path) as file:
        status, found = os.fstat(file.fileno()), file.read(_BYTES + 1)
        private = os.name != "posix" or not status.st_mode & _OTHERS
        if len(found) == _BYTES and private and _is_ours(status) and status.st_nlink == 1:
            return found
    made = secrets.token_bytes(_BYTES)
    try:
        _write(path, made)
    except OSError:
        return None
    return made


def _write(path: Path, data: bytes) -> None:
    """Replace anything at a path by a file readable to the user alone."""
    beside = path.with_name(f".{secrets.token_hex(6)}")
    try:
        with open(beside, "xb", opener=_private) as file:
            file.write(data)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
