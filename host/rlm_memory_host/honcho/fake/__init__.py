"""A fake Honcho server: the routes that the official client uses, faithful where the real service hurts.

    from rlm_memory_host.honcho.fake import FakeHoncho, Fault, serving

    with serving(FakeHoncho(api_keys={"key"})) as server:
        server.fake.plan.add(Fault(route="POST .*/messages$", commit=True, drop=True))
        ... talk to server.url ...

Public and documented (`docs/fake-honcho.md`). Nothing is persisted, nothing leaves the process, no text is understood:
search compares words, a representation lists sentences.
"""

from rlm_memory_host.honcho.fake.app import FakeHoncho
from rlm_memory_host.honcho.fake.faults import Fault, Plan
from rlm_memory_host.honcho.fake.server import Served, serving
from rlm_memory_host.honcho.fake.transport import FakeTransport

__all__ = ["FakeHoncho", "FakeTransport", "Fault", "Plan", "Served", "serving"]
