"""A joblib cache (`joblib.Memory`): each cached call is one result, its pickle kept as bytes and never unpickled.

Owns: the layout `…/<module>/<function>/<hash of arguments>/output.pkl` with `metadata.json`, and `func_code.py` beside
the hashes. PATH is the cache's location, or the `joblib` folder in it.

Unpickling runs code from the file, so nothing here does it: what is recorded is the file `output.pkl` as it is, media
type `application/octet-stream`, for `joblib.load` in a place where its origin is trusted. The arguments go to the
sidecar only; cards may travel to a memory service. A result that joblib spread over several files is not taken.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from typing import Any, Final, cast

from rlm_memory.wire import UNSAFE_FILESYSTEM_ENTRY, VALIDATION

from rlm_memory_host.artifacts.importers.found import Found, Item, described, fitting
from rlm_memory_host.artifacts.importers.tree import Entry, Tree
from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.records import DEFAULT_MEDIA_TYPE

OUTPUT: Final = "output.pkl"
METADATA: Final = "metadata.json"
CODE: Final = "func_code.py"
MAX_TEXT_BYTES: Final = 1 << 20

_HASH = re.compile(r"[0-9a-f]{32}")


def find_joblib(tree: Tree) -> Found:
    """Every cached call below the folder."""
    calls: dict[str, list[Entry]] = defaultdict(list)
    for entry in tree.walk():
        if len(entry.parts) >= 3 and _HASH.fullmatch(entry.parts[-2]):
            calls["/".join(entry.parts[:-1])].append(entry)
    found = Found()
    for folder, entries in sorted(calls.items()):
        output = next((entry for entry in entries if entry.parts[-1] == OUTPUT), None)
        if output is None:
            found.skip(folder, VALIDATION, "there is no output.pkl: the call was not finished")
        elif output.sort != "file":
            found.skip(output.name, UNSAFE_FILESYSTEM_ENTRY, "it is a link or no regular file")
        elif len([entry for entry in entries if entry.parts[-1] not in (OUTPUT, METADATA)]):
            found.skip(folder, VALIDATION, "the result lies in several files; load and record it in a notebook")
        else:
            found.items.append(_item(tree, output))
    return found


def _item(tree: Tree, output: Entry) -> Item:
    *above, call, _ = output.parts
    # What joblib calls a module of a script or notebook holds the path of its file; that stays out.
    modules = [part.partition("--")[0] for part in above if part != "joblib"]
    function = ".".join(modules)
    code = tree.read("/".join((*above, CODE)), MAX_TEXT_BYTES)
    digest = None if code is None else hashlib.sha256(code).hexdigest()
    identity = {"importer": "joblib", "function": "/".join(above), "arguments": call, "code": digest}
    request = described(
        title=f"{function}, cached call {call[:8]}",
        summary=f"Result of {function} from a joblib cache, as the pickle file that joblib wrote (not unpickled here).",
        fingerprint=hashlib.sha256(ids.canonical_json(identity)).hexdigest(),
        source=f"joblib:{function}",
        version="unknown" if digest is None else f"code-{digest[:16]}",
        media_type=DEFAULT_MEDIA_TYPE,
        tags=["joblib", "pickle", modules[-1] if modules else ""],
    )
    note = {"from": "joblib", "function": function, "arguments_hash": call, **_metadata(tree, output)}
    name = output.name
    return Item(name, output.size, lambda check: tree.chunks(name, check), request, note=fitting(note, "arguments"))


def _metadata(tree: Tree, output: Entry) -> dict[str, Any]:
    data = tree.read("/".join((*output.parts[:-1], METADATA)), MAX_TEXT_BYTES)
    try:
        document: Any = json.loads(data or b"")
    except (ValueError, RecursionError):
        return {}
    if not isinstance(document, dict):
        return {}
    told = cast("dict[str, Any]", document)
    names = {"duration": "duration_seconds", "time": "computed_at", "input_args": "arguments"}
    return {ours: told[theirs] for theirs, ours in names.items() if theirs in told}
