"""Frames written by one pandas line load with the other, exactly, both ways.

Each case is recorded here, loaded and recorded again by the other line, and loaded here: what comes home must be
what left. The second interpreter is `RLM_MEMORY_OTHER_PYTHON`, which CI sets; without it these tests do not run.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import cases
import pandas as pd
import pytest
from rlm_memory import codecs, errors
from same import assert_same

OTHER = os.environ.get("RLM_MEMORY_OTHER_PYTHON")
pytestmark = [
    pytest.mark.compat,
    pytest.mark.skipif(not OTHER, reason="RLM_MEMORY_OTHER_PYTHON names no second interpreter"),
]

RELAY = """
import json, sys
from pathlib import Path
from rlm_memory import codecs
folder, home = Path(sys.argv[1]), {}
for name, (path, media_type) in json.loads((folder / "out.json").read_text()).items():
    try:
        again = codecs.encode(codecs.decode(folder / path, media_type), folder)
        home[name] = [again.path.name, again.media_type]
    except Exception as fault:
        home[name] = [type(fault).__name__, str(fault)[:300]]
(folder / "home.json").write_text(json.dumps(home))
"""


@pytest.fixture(scope="module")
def relayed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[str]]]:
    """Every case, there and back by way of the other line."""
    assert OTHER is not None
    folder, out = tmp_path_factory.mktemp("lines"), {}
    for name, build in cases.FRAMES.items():
        try:
            encoded = codecs.encode(build(), folder)
        except (errors.NotExact, ImportError):
            continue
        out[name] = [encoded.path.name, encoded.media_type]
    (folder / "out.json").write_text(json.dumps(out))
    subprocess.run([OTHER, "-c", RELAY, str(folder)], check=True, timeout=110)
    return folder, json.loads((folder / "home.json").read_text())


@pytest.mark.parametrize("name", cases.FRAMES)
def test_a_case_survives_the_other_line(name: str, relayed: tuple[Path, dict[str, list[str]]]) -> None:
    """Notes state concrete types, so neither line's defaults matter."""
    folder, home = relayed
    if name not in home:
        pytest.skip("refused by name")
    path, media_type = home[name]
    assert (folder / path).is_file(), home[name]
    assert_same(cases.FRAMES[name](), codecs.decode(folder / path, media_type))


def test_the_other_interpreter_is_another_line() -> None:
    """Otherwise this file would prove nothing."""
    assert OTHER is not None
    program = [OTHER, "-c", "import pandas; print(pandas.__version__)"]
    version = subprocess.check_output(program, text=True).strip()
    assert version.partition(".")[0] != pd.__version__.partition(".")[0]
