"""Runs the cases: each on machines of its own, against a service of its own, in three settings.

Owns: rooms (folders, the fake or a real service), what a run collects, the probe for secrets and paths. Does not own:
the cases (`cases`), what follows from a run (`gates`), how it is written down (`report`).

The settings are: everything on; artifacts off (what a memory of texts alone can do); all of it off (the baseline). A
case that ends in an error has failed; of the error the class and the place are kept, never its words.

Source: DeepSeek Honcho specification, sections 8.3, 22, 34.2.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

from rlm_memory_host.contracts.ids import new_ulid
from rlm_memory_host.evaluation.cases import Case, Check, Measures, Trial
from rlm_memory_host.evaluation.stand import Service, Stand, Wanted, fresh
from rlm_memory_host.honcho.fake import FakeHoncho, Served, serving
from rlm_memory_host.logs import where

Setting = Literal["everything", "no-artifacts", "no-memory"]
SETTINGS: Final[tuple[Setting, ...]] = ("everything", "no-artifacts", "no-memory")
SECRETS: Final = ("ghp_" + "A1b2C3d4E5f6" * 3, "sk-proj-" + "Q9w8E7r6T5y4" * 4, "hunter2-" + "Correct-Horse-99")
"""Made-up keys; put together here so that no line looks like one."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one case went in one setting. `fault` names class and place of an error, "" where there was none."""

    case: Case
    checks: tuple[Check, ...]
    seconds: float
    fault: str = ""
    skipped: str = ""

    @property
    def passed(self) -> bool:
        """Whether every check came out right."""
        return not self.fault and not self.skipped and bool(self.checks) and all(item.passed for item in self.checks)

    @property
    def did_the_task(self) -> bool:
        """Whether everything that memory has to bring about was brought about."""
        wanted = [item.passed for item in self.checks if item.positive]
        return not self.fault and bool(wanted) and all(wanted)


@dataclass(slots=True)
class Run:
    """Everything that a run collected."""

    service: Literal["fake", "real"]
    outcomes: dict[Setting, list[Outcome]] = field(default_factory=dict[Setting, list[Outcome]])
    measures: Measures = field(default_factory=Measures)
    spent_seconds: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    bytes_sent: dict[str, int] = field(default_factory=dict[str, int])
    rejections: dict[str, int] = field(default_factory=dict[str, int])
    outbox: dict[str, int] = field(default_factory=dict[str, int])
    probe: dict[str, bool] = field(default_factory=dict[str, bool])


class Room:
    """One case's place: a bench whose machines are new folders. Implements `cases.Bench`."""

    def __init__(
        self, root: Path, service: Service, fake: Served | None, setting: Setting, run: Run, pause: float
    ) -> None:
        self._root = root
        self._service = service
        self._fake = fake
        self._setting: Setting = setting
        self._run = run
        self._pause = pause
        self.measures = run.measures if setting == "everything" else Measures()

    @property
    def service(self) -> Service:
        """The service."""
        return self._service

    @property
    def fake(self) -> Served | None:
        """The fake behind it."""
        return self._fake

    def folder(self) -> Path:
        """A new machine."""
        return fresh(self._root, "machine")

    @contextmanager
    def stand(self, wanted: Wanted | None = None, *, folder: Path | None = None) -> Generator[Stand]:
        """A host's services, as the setting allows."""
        asked = wanted or Wanted(self._service)
        if self._setting == "no-artifacts":
            asked = replace(asked, artifacts=False, bounds={})
        elif self._setting == "no-memory":
            asked = replace(asked, service=None, text=False, artifacts=False, bounds={})
        stand = Stand(folder or self.folder(), asked)
        stand.pause_seconds = self._pause
        with stand:
            try:
                yield stand
            finally:
                if self._setting == "everything":
                    self._collect(stand)

    def _collect(self, stand: Stand) -> None:
        for name, times in stand.spent_seconds.items():
            self._run.spent_seconds.setdefault(name, []).extend(times)
        counters: dict[str, Any] = stand.parts.metrics.snapshot()["counters"]
        for name, held in (("remote_bytes_sent", self._run.bytes_sent), ("scope_rejections", self._run.rejections)):
            for label, number in counters[name].items():
                held[label] = held.get(label, 0) + number
        for name, number in stand.outbox().items():
            if type(number) is int:
                self._run.outbox[name] = self._run.outbox.get(name, 0) + number


def run_cases(
    cases: Iterable[Case],
    *,
    service: Service | None = None,
    settings: Iterable[Setting] = SETTINGS,
    pause_seconds: float = 0.0,
    told: Callable[[Setting, Outcome], None] = lambda _setting, _outcome: None,
) -> Run:
    """Run cases; `service` None runs each against a fake of its own. `told` hears of each outcome as it comes."""
    run = Run("fake" if service is None else "real")
    wanted = list(cases)
    for setting in settings:
        run.outcomes[setting] = []
        for each in wanted:
            if setting != "everything" and each.theme == "baseline":
                continue
            outcome = run_case(each, run, service=service, setting=setting, pause_seconds=pause_seconds)
            run.outcomes[setting].append(outcome)
            told(setting, outcome)
    return run


def run_case(
    case: Case, run: Run, *, service: Service | None = None, setting: Setting = "everything", pause_seconds: float = 0.0
) -> Outcome:
    """One case in one setting. Never raises for what the case finds."""
    if case.needs_fake and service is not None:
        return Outcome(case, (), 0.0, skipped="it breaks the service on purpose, so it runs against the fake only")
    began = time.monotonic()
    fault = ""
    checks: list[Check] = []
    with _room(run, service, setting, pause_seconds) as room:
        trial = Trial(room, checks)
        try:
            case.run(trial)
        except Exception as error:
            fault = where(error)
    return Outcome(case, tuple(checks), time.monotonic() - began, fault)


@contextmanager
def _room(run: Run, service: Service | None, setting: Setting, pause: float) -> Generator[Room]:
    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rlm-memory-evaluate-")))
        fake: Served | None = None
        if service is None:
            fake = stack.enter_context(serving(FakeHoncho(workspaces=["evaluation"])))
            named = Service(fake.url)
        else:
            # A project of its own keeps the rows of earlier cases and runs away.
            named = replace(service, project=f"evaluation-{new_ulid().lower()}")
        yield Room(root, named, fake, setting, run, pause)


def probe(run: Run) -> None:
    """Look for planted secrets and for paths of the store in everything that was written or sent. Fake only."""
    with _room(run, None, "everything", 0.0) as room, room.stand() as stand:
        scope = stand.scope("trial-a")
        for number, secret in enumerate(SECRETS):
            done = stand.record(
                scope, b"exact", title=f"Title {number}", summary=f"It opens with password = {secret} today.",
                query_fingerprint=f"{number:064d}", source="s", source_version="v",
            )  # fmt: skip
            path = stand.call("memory_artifact_resolve", scope, experiment_id=done["experiment_id"])["path"]
            stand.feed(scope, (f"Use password = {secret} and open {path}", f"I read {path} with password = {secret}."))
        stand.settle()
        served = room.fake
        assert served is not None
        sent = b"".join(asked.body for asked in served.fake.requests)
        kept = b"".join(
            file.read_bytes()
            for file in stand.folder.rglob("*")
            if file.is_file() and "objects" not in file.parts and "exports" not in file.parts
        )
        objects = str(stand.parts.settings.artifact_root).encode()
        run.probe = {
            "something was sent": bool(served.fake.rows()),
            "no secret was sent": not any(secret.encode() in sent for secret in SECRETS),
            "no secret was written": not any(secret.encode() in kept for secret in SECRETS),
            "no path of the store was sent": objects not in sent,
            "no path of the store was captured": objects not in kept,
        }
