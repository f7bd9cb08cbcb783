"""Where a key comes from (the memory service's, a judge model's). It is in no setting, dump, log, message or repr.

Owns: the reference (`env:NAME`, `file:/path`, `fd:3`, `keyring:service/user`), reading what it names, noticing that it
changed. Does not own: what the key is used for (`client`).

Source: DeepSeek Honcho specification, sections 16, 17.2; design page "Honcho, the outbox, capture and recall", Client.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from rlm_memory_host.errors import CredentialError, SettingsError

MAX_KEY_BYTES: Final = 8_192
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY = re.compile(r"[\x21-\x7e]+")


class Secret:
    """A text that shows itself to nobody: not in repr, str, format, pickle or a comparison's message."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The text, for the one place that sends it."""
        return self._text

    @property
    def mark(self) -> str:
        """A digest that tells one key from another; it is kept in memory only."""
        return hashlib.sha256(self._text.encode()).hexdigest()

    def __repr__(self) -> str:
        return "Secret(...)"

    __str__ = __repr__

    def __reduce__(self) -> Any:
        raise TypeError("a secret is not pickled")


class KeySource:
    """A reference to a key. Reading it again may give another key; `read` is cheap and blocking.

    Raises SettingsError where the reference itself is wrong. The reference is not repeated in messages: somebody may
    have put the key there.
    """

    def __init__(self, reference: str, environ: Mapping[str, str] = os.environ, *, setting: str = "honcho.key") -> None:
        """`setting` names the key's setting in messages."""
        self._setting = setting
        kind, _, rest = reference.partition(":")
        self._environ = environ
        readers: dict[str, Callable[[str], Callable[[], str]]] = {
            "env": self._variable,
            "file": self._file,
            "fd": self._descriptor,
            "keyring": self._keyring,
        }
        if kind not in readers or not rest:
            raise SettingsError(
                f"{setting}: name where the key is, not the key itself: env:NAME, file:/absolute/path, fd:NUMBER or "
                "keyring:SERVICE/USER"
            )
        self.kind = kind
        self._read = readers[kind](rest)

    def __repr__(self) -> str:
        return f"KeySource({self.kind}:...)"

    @classmethod
    def fixed(cls, key: str) -> Self:
        """A source that always gives `key`: for tests and for callers that hold one already."""
        return cls("env:KEY", {"KEY": key})

    def read(self) -> Secret:
        """The key now. Raises CredentialError where there is none, or one that no header can carry."""
        text = self._read().strip()
        if not text:
            raise CredentialError(f"the key is empty or missing ({self._setting}, {self.kind}:...)")
        if len(text) > MAX_KEY_BYTES or not _KEY.fullmatch(text):
            raise CredentialError(f"the key is not one line of printable ASCII ({self._setting}, {self.kind}:...)")
        return Secret(text)

    def _variable(self, name: str) -> Callable[[], str]:
        if not _VARIABLE.fullmatch(name):
            raise SettingsError(f"{self._setting}: env: takes the name of an environment variable")
        return lambda: self._environ.get(name, "")

    def _file(self, name: str) -> Callable[[], str]:
        path = Path(name)
        if not path.is_absolute() or "\0" in name:
            raise SettingsError(f"{self._setting}: file: takes an absolute path")
        return lambda: _read_private(path)

    def _descriptor(self, number: str) -> Callable[[], str]:
        if not re.fullmatch(r"[0-9]{1,6}", number):
            raise SettingsError(f"{self._setting}: fd: takes a number")
        kept: list[str] = []

        def read() -> str:
            # A pipe gives its text once.
            if not kept:
                kept.append(_read_descriptor(int(number)))
            return kept[0]

        return read

    def _keyring(self, name: str) -> Callable[[], str]:
        service, _, user = name.partition("/")
        if not service or not user:
            raise SettingsError(f"{self._setting}: keyring: takes SERVICE/USER")
        return lambda: _ask_keyring(service, user)


def _read_private(path: Path) -> str:
    try:
        # Without waiting: a named pipe would hold the start up for as long as nobody writes.
        with io.FileIO(path, opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise CredentialError("the key's file is not a regular file")
            if found.st_uid not in {os.geteuid(), 0} or stat.S_IMODE(found.st_mode) & 0o077:
                raise CredentialError("the key's file must be yours and closed to others (chmod 600)")
            data = file.read(MAX_KEY_BYTES + 1)
    except OSError as error:
        raise CredentialError(f"the key's file cannot be read ({type(error).__name__})") from None
    return data.decode("ascii", "replace")


def _read_descriptor(number: int) -> str:
    try:
        with os.fdopen(number, "rb") as file:
            return file.read(MAX_KEY_BYTES + 1).decode("ascii", "replace")
    except OSError as error:
        raise CredentialError(f"the key's descriptor cannot be read ({type(error).__name__})") from None


def _ask_keyring(service: str, user: str) -> str:
    try:
        keyring: Any = importlib.import_module("keyring")
    except ModuleNotFoundError:
        raise CredentialError(
            "a key's setting names a keyring and the package keyring is not installed; install rlm-memory-host[keyring]"
        ) from None
    try:
        return keyring.get_password(service, user) or ""
    except Exception as error:
        # Every back end has errors of its own; their texts are not ours to pass on.
        raise CredentialError(f"the keyring gave no key ({type(error).__name__})") from None
