"""Ids and cards are what the vectors and the TypeScript package say."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rlm_memory_host.contracts import ids
from rlm_memory_host.contracts.records import Bounds, ExperimentCardV1, parse_card
from rlm_memory_host.errors import FormatVersion, Integrity, SettingsError
from store_harness import card_json

VECTORS: dict[str, list[dict[str, Any]]] = json.loads(
    (Path(__file__).parent / "identity.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("vector", VECTORS["artifacts"], ids=lambda vector: vector["label"])
def test_an_artifact_is_named_by_its_bytes(vector: dict[str, Any]) -> None:
    """`art_` + base32 of the SHA-256, and back."""
    assert ids.artifact_id(vector["sha256"]) == vector["artifactId"]
    assert ids.sha256_of(vector["artifactId"]) == vector["sha256"]


@pytest.mark.parametrize("vector", VECTORS["experiments"], ids=lambda vector: vector["experimentId"][:12])
def test_an_experiment_is_named_by_its_identity(vector: dict[str, Any]) -> None:
    """Canonical JSON: keys sorted, no blanks, non-ASCII kept."""
    identity = {
        "project_id": vector["projectId"],
        "artifact": vector["artifactId"],
        "query_fingerprint": vector["queryFingerprint"],
        "source_version": vector["sourceVersion"],
    }
    assert ids.identity_json(**identity) == vector["canonicalJson"].encode()
    assert ids.experiment_id(**identity) == vector["experimentId"]


@pytest.mark.parametrize("vector", VECTORS["project_keys"], ids=lambda vector: vector["projectKey"][:8])
def test_a_project_has_a_key_that_says_nothing(vector: dict[str, Any]) -> None:
    """The folder's name is a digest."""
    assert ids.project_key(vector["projectId"]) == vector["projectKey"]


@given(st.text(max_size=20), st.binary(max_size=4), st.text(max_size=20), st.sampled_from("ab7\n_é"))
def test_an_id_is_recognised_as_it_is_made(project: str, data: bytes, version: str, odd: str) -> None:
    """Canonical JSON of any texts; the right id and no other, whatever one character of it is replaced by."""
    sha256 = hashlib.sha256(data).hexdigest()
    artifact = ids.artifact_id(sha256)
    identity = {"project_id": project, "artifact": artifact, "query_fingerprint": sha256, "source_version": version}
    names = ("projectId", "artifactId", "queryFingerprint", "sourceVersion")
    document = dict(zip(names, identity.values(), strict=True)) | {"schemaVersion": 1}
    assert ids.identity_json(**identity) == ids.canonical_json(document)
    experiment = ids.experiment_id(**identity)
    assert ids.is_artifact_of(artifact, sha256)
    assert ids.is_experiment_of(experiment, **identity)
    for at in (4, 30, 55):
        assert ids.is_artifact_of(artifact[:at] + odd + artifact[at + 1 :], sha256) is (artifact[at] == odd)
        other = experiment[:at] + odd + experiment[at + 1 :]
        assert ids.is_experiment_of(other, **identity) is (experiment[at] == odd)


def test_ulids_sort_by_time() -> None:
    """26 characters, the time first."""
    early, late = ids.new_ulid(1_000), ids.new_ulid(2_000)
    assert len(early) == 26
    assert early < late
    assert ids.new_ulid() != ids.new_ulid()


@pytest.mark.parametrize("text", ["", "art_", "art_" + "a" * 51, "art_" + "A" * 52, "exp_" + "a" * 52, None, 7])
def test_what_is_no_artifact_id(text: object) -> None:
    """Only the exact form counts."""
    assert not ids.is_artifact_id(text)


def test_a_card_of_the_typescript_package_is_read_and_written_back() -> None:
    """Every field survives, in camelCase, and absent ones stay absent."""
    _, document = card_json("project-a", b"a,b\n1,2\n", shape=[1, 2], columns=["a", "b"], tags=["x"])
    document["index"]["lastErrorCode"] = "TIMEOUT"
    card = parse_card(json.dumps(document).encode())
    assert isinstance(card, ExperimentCardV1)
    assert json.loads(card.to_json()) == document


def damaged(**changes: Any) -> bytes:
    _, document = card_json("project-a", b"a")
    for name, value in changes.items():
        if value is None:
            del document[name]
        else:
            document[name] = value
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"null",
        damaged(title=None),
        damaged(title="x" * 201),
        damaged(unknown="field"),
        damaged(sourceVersion=None, source_version="v1"),
        damaged(sourceVersion="v2"),
        damaged(projectId="project-b"),
        damaged(shape=[-1]),
        damaged(shape="3"),
        damaged(tags=["t"] * 21),
        damaged(columns=["c" * 129]),
        damaged(createdAt="yesterday"),
        damaged(queryFingerprint="A" * 64),
        damaged(index={"state": "elsewhere"}),
        damaged(schemaVersion="1"),
    ],
)
def test_a_malformed_card_is_refused_without_quoting_it(data: bytes) -> None:
    """Also one whose ids do not belong to its content."""
    with pytest.raises(Integrity) as caught:
        parse_card(data)
    assert caught.value.code == "VALIDATION"
    assert "x" * 20 not in str(caught.value)


def test_a_card_of_a_future_version_is_named_as_such() -> None:
    """Not guessed at, even when it has fields that this version does not know."""
    with pytest.raises(FormatVersion) as caught:
        parse_card(damaged(schemaVersion=2, novelty=True))
    assert caught.value.code == "UNSUPPORTED_VERSION"


def test_bounds_go_down_freely_and_up_only_on_an_operators_word() -> None:
    """Text bounds never go up; cards never over what the index holds."""
    assert Bounds(title=50, cards=3).title == 50
    assert Bounds(cards=1_000_000, project_bytes=1 << 50, raised=True).cards == 1_000_000
    for fields in (
        {"cards": 10_001},
        {"title": 201, "raised": True},
        {"cards": 1_000_001, "raised": True},
        {"tags": 0},
    ):
        with pytest.raises(SettingsError, match=next(iter(fields))):
            Bounds(**fields)
