"""Check exported results of rlm-memory: nothing but Python 3.8 or later is needed, no package and no network.

    python verify.py [FOLDER or ZIP]

Without an argument it checks the folder that it lies in. It reads and never writes. It checks that

- every file that manifest.json lists is there, with the size and SHA-256 listed, and no other file is;
- every card's ids follow from what it says (artifactId from sha256, experimentId from the identity);
- every card's object is there, with the card's size and SHA-256;
- a project's folder of a store (objects/ and cards/ without manifest.json) holds together in the same way.

Exit code: 0 all is well, 1 something is wrong (each fault is named), 2 it is no export or cannot be read.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import re
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NoReturn, cast

FORMAT = "rlm-memory-export"
VERSION = 1
MANIFEST = "manifest.json"
MAX_DOCUMENT_BYTES = 256 << 20
STEP = 1 << 20

_CARD = re.compile(r"cards/(exp_[a-z2-7]{52})\.json")
_OBJECT = re.compile(r"objects/[a-z2-7]{2}/(art_[a-z2-7]{52})")


class Unusable(Exception):
    """What was named is no export, or cannot be read."""


def base32(digest: bytes) -> str:
    """RFC 4648 base32 in lower case without padding."""
    return base64.b32encode(digest).decode("ascii").lower().rstrip("=")


def artifact_id(sha256: str) -> str:
    """The artifact id of a digest (64 hexadecimal digits)."""
    return "art_" + base32(bytes.fromhex(sha256))


def experiment_id(card: dict[str, Any]) -> str:
    """The experiment id that follows from what a card says."""
    identity = {
        "artifactId": card["artifact"]["artifactId"],
        "projectId": card["projectId"],
        "queryFingerprint": card["queryFingerprint"],
        "schemaVersion": 1,
        "sourceVersion": card["sourceVersion"],
    }
    text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return "exp_" + base32(hashlib.sha256(text.encode("utf-8")).digest())


def object_name(artifact: str) -> str:
    """Where an artifact's bytes lie."""
    return f"objects/{artifact[4:6]}/{artifact}"


class Folder:
    """An export as a folder. Links are not followed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self) -> Iterator[str]:
        """Every file, with / between the parts; links and other entries that are no files too."""

        def fail(error: OSError) -> NoReturn:
            raise error

        for text, folders, files in os.walk(str(self.path), onerror=fail):
            folder = Path(text)
            for name in files + [name for name in folders if (folder / name).is_symlink()]:
                yield (folder / name).relative_to(self.path).as_posix()

    def open(self, name: str) -> IO[bytes]:
        """A file for reading; OSError for a link or anything that is no file."""
        path = self.path.joinpath(*name.split("/"))
        if path.is_symlink() or not path.is_file():
            raise OSError("not there, or not a regular file")
        return path.open("rb")


class Zip:
    """An export as a zip file. Nothing is unpacked to the disk."""

    def __init__(self, path: Path) -> None:
        self.archive = zipfile.ZipFile(str(path))

    def names(self) -> Iterator[str]:
        """Every member."""
        for item in self.archive.infolist():
            if not item.is_dir():
                yield item.filename

    def open(self, name: str) -> IO[bytes]:
        """A member for reading."""
        try:
            return self.archive.open(name)
        except KeyError:
            raise OSError("not there") from None


class Check:
    """One run: what was read, and what is wrong with it."""

    def __init__(self, source: Any) -> None:
        self.source = source
        self.faults: list[tuple[str, str]] = []  # type: list[tuple[str, str]]
        self.rows: list[tuple[str, str, int, str]] = []  # type: list[tuple[str, str, int, str]]
        self.digests: dict[str, tuple[str, int] | None] = {}  # type: dict[str, tuple[str, int] | None]

    def fault(self, name: str, reason: str) -> None:
        """Note one fault."""
        self.faults.append((name, reason))

    def digest(self, name: str) -> tuple[str, int] | None:
        """(SHA-256, size) of a file, read once; None where it cannot be read, which is noted."""
        if name not in self.digests:
            try:
                self.digests[name] = self._digest(name)
            except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError) as error:
                self.fault(name, f"missing or unreadable ({str(error) or type(error).__name__})")
                self.digests[name] = None
        return self.digests[name]

    def _digest(self, name: str) -> tuple[str, int]:
        found, size = hashlib.sha256(), 0
        with self.source.open(name) as file:
            while True:
                data = file.read(STEP)
                if not data:
                    return found.hexdigest(), size
                found.update(data)
                size += len(data)

    def document(self, name: str) -> dict[str, Any] | None:
        """A JSON object; None where it is none, which is noted."""
        try:
            with self.source.open(name) as file:
                data = file.read(MAX_DOCUMENT_BYTES + 1)
            found: Any = json.loads(data.decode("utf-8")) if len(data) <= MAX_DOCUMENT_BYTES else None
        except (OSError, ValueError, RecursionError, zipfile.BadZipFile, RuntimeError, EOFError) as error:
            self.fault(name, f"cannot be read ({type(error).__name__})")
            return None
        if not isinstance(found, dict):
            self.fault(name, "is no JSON object")
            return None
        return cast("dict[str, Any]", found)

    def compare(self, name: str, sha256: Any, size: Any) -> None:
        """Hold a file to a digest and size."""
        found = self.digest(name)
        if found is not None and found[1] != size:
            self.fault(name, f"has {found[1]} bytes, listed are {size}")
        elif found is not None and found[0] != sha256:
            self.fault(name, f"the bytes changed: listed {sha256}, found {found[0]}")


def check_manifest(check: Check, names: list[str]) -> list[str]:
    """Hold the files to the manifest; returns the experiments that it lists."""
    manifest = check.document(MANIFEST)
    if manifest is None:
        return []
    if manifest.get("format") != FORMAT or manifest.get("version") != VERSION:
        raise Unusable(f"the manifest is not one of {FORMAT}, version {VERSION}")
    told: Any = manifest.get("files")
    experiments: Any = manifest.get("experiments")
    if not isinstance(told, dict) or not isinstance(experiments, list):
        raise Unusable("the manifest lists no files or no experiments")
    files = cast("dict[str, Any]", told)
    present = set(names)
    for name, entry in sorted(files.items()):
        said = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
        if name in present:
            check.compare(name, said.get("sha256"), said.get("bytes"))
        else:
            check.fault(name, "is listed, and not there")
    for name in names:
        if name != MANIFEST and name not in files:
            check.fault(name, "is not listed in the manifest")
    return [str(item) for item in cast("list[Any]", experiments)]


def check_card(check: Check, name: str, named: str) -> None:
    """Hold a card to itself and to its object."""
    before = len(check.faults)
    card = check.document(name)
    size, title = 0, ""
    if card is not None:
        try:
            artifact = card["artifact"]
            title, size = str(card["title"]), int(artifact["bytes"])
            if card.get("schemaVersion") != 1 or artifact.get("schemaVersion") != 1:
                check.fault(name, "has a schema version that this script does not know")
            elif artifact_id(artifact["sha256"]) != artifact["artifactId"]:
                check.fault(name, "artifactId does not follow from sha256")
            elif experiment_id(card) != card["experimentId"]:
                check.fault(name, "experimentId does not follow from the card")
            elif card["experimentId"] != named:
                check.fault(name, "the file has another experiment's name")
            else:
                check.compare(object_name(artifact["artifactId"]), artifact["sha256"], artifact["bytes"])
        except (KeyError, TypeError, ValueError, AttributeError, UnicodeEncodeError):
            check.fault(name, "is no card")
    check.rows.append((named, title, size, "ok" if len(check.faults) == before else "FAULT"))


def run(source: Any) -> Check:
    """Check an export, or a project's folder of a store. Raises Unusable."""
    check = Check(source)
    names = sorted(source.names())
    for name in sorted(name for name, count in Counter(names).items() if count > 1):
        check.fault(name, "is there more than once")
    has_manifest = MANIFEST in names
    listed = check_manifest(check, names) if has_manifest else []
    cards = {match.group(1): name for name in names for match in [_CARD.fullmatch(name)] if match}
    if not has_manifest and not cards:
        raise Unusable("there is no manifest.json and no card: this is no export of rlm-memory")
    for experiment in sorted(set(listed) | set(cards)):
        if experiment not in cards:
            check.fault(experiment, "is listed, and its card is not there")
        else:
            if has_manifest and experiment not in listed:
                check.fault(cards[experiment], "is a card that the manifest lists as no experiment")
            check_card(check, cards[experiment], experiment)
    for name in names:
        match = _OBJECT.fullmatch(name)
        found = check.digest(name) if match else None
        if match and found is not None and artifact_id(found[0]) != match.group(1):
            check.fault(name, "its name does not follow from its bytes")
    return check


def shown(text: str, width: int) -> str:
    """One line of at most `width` characters; what a terminal would obey is replaced."""
    plain = "".join(character if character.isprintable() else "?" for character in text)
    return plain if len(plain) <= width else plain[: width - 1] + "~"


def main(arguments: list[str] | None = None) -> int:
    """The command line; the exit code."""
    here = str(Path(__file__).resolve().parent)
    parser = argparse.ArgumentParser(description="Check exported results of rlm-memory.")
    parser.add_argument("path", nargs="?", default=here, help="a folder or zip file; default: the script's own folder")
    parser.add_argument("--json", action="store_true", help="one JSON object for programs")
    options = parser.parse_args(arguments)
    try:
        path = Path(options.path)
        check = run(Folder(path) if path.is_dir() else Zip(path))
    except (Unusable, OSError, zipfile.BadZipFile) as error:
        print(f"verify.py: {error}", file=sys.stderr)
        return 2
    faults = list(dict.fromkeys(check.faults))
    if options.json:
        rows = [{"experiment_id": row[0], "bytes": row[2], "sound": row[3] == "ok"} for row in check.rows]
        print(json.dumps({"experiments": rows, "faults": [{"name": n, "reason": r} for n, r in faults]}))
    else:
        for experiment, title, size, state in check.rows:
            print(f"{state:<5} {size:>15}  {experiment}  {shown(title, 60)}")
        for name, reason in faults:
            print(f"FAULT {shown(name, 200)}: {shown(reason, 300)}")
        print(f"{len(check.rows)} experiments, {len(check.digests)} files read, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
