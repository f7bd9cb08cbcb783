"""Runs in an environment of the harness's own wheels: prompts in, events out. Not a test.

Reads one JSON object from standard input: {"options": of the SDK's client, "prompts": [[session, text], …]}. Writes one
JSON line for each turn: {"reason", "final", "events": of that session}.
"""

import importlib
import json
import sys
from typing import Any


def main() -> None:
    """Run the prompts one after the other in one harness."""
    asked = json.load(sys.stdin)
    sdk: Any = importlib.import_module("deepseek_harness")
    with sdk.DeepSeekHarness(**asked["options"]) as harness:
        for session, text in asked["prompts"]:
            told = harness.run(text, session_id=session)
            line = {"reason": told.finish_reason, "final": told.final_response, "events": told.events}
            print(json.dumps(line), flush=True)


main()
