"""Identifiers: how artifacts, experiments and projects are named. Pure functions, no I/O.

Owns: digests to ids, the canonical JSON that identity is computed from, ULIDs. Does not own: where anything lies on
disk. Base32 is RFC 4648 in lower case without padding; canonical JSON has keys sorted by code point, no spaces,
non-ASCII kept, UTF-8.

Source: DeepSeek Honcho specification, sections 27.1, 27.2, 28.1; the identity vectors.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import time
from typing import Any, Final

ARTIFACT_PREFIX: Final = "art_"
EXPERIMENT_PREFIX: Final = "exp_"
IDENTITY_VERSION: Final = 1
REMOTE_ID_PATTERN: Final = r"^[A-Za-z0-9_-]{1,512}$"
"""What the memory service takes as the id of a workspace, peer, session or project."""

_ARTIFACT = re.compile(r"art_[a-z2-7]{52}")
_EXPERIMENT = re.compile(r"exp_[a-z2-7]{52}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
"""Two characters for ten bits: some ten times faster than `base64.b32encode`."""
_BASE32_DIGITS = str.maketrans(_ALPHABET, "0123456789abcdefghijklmnopqrstuv")
"""To Python's own digits of base 32, whose numbers it reads in C."""
_quoted = json.encoder.encode_basestring
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def base32_lower(digest: bytes) -> str:
    """RFC 4648 base32, lower case, no padding: 52 characters for a SHA-256 digest."""
    bits = len(digest) * 8
    padding = -bits % 10
    number = int.from_bytes(digest, "big") << padding
    text = "".join([_PAIRS[number >> shift & 1023] for shift in range(bits + padding - 10, -1, -10)])
    return text[: -(-bits // 5)]


def canonical_json(value: Any) -> bytes:
    """The one serialisation that digests are computed over.

    Raises ValueError for NaN and infinity, TypeError for what JSON cannot hold, UnicodeEncodeError for lone
    surrogates.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def artifact_id(sha256: bytes | str) -> str:
    """`art_` + base32 of the digest (32 bytes, or 64 hexadecimal digits) of the artifact's bytes."""
    digest = bytes.fromhex(sha256) if isinstance(sha256, str) else sha256
    if len(digest) != 32:
        raise ValueError(f"a SHA-256 digest has 32 bytes, not {len(digest)}")
    return ARTIFACT_PREFIX + base32_lower(digest)


def sha256_of(artifact: str) -> str:
    """The digest, 64 hexadecimal digits, that an artifact id names. Raises ValueError when it is not one."""
    if not is_artifact_id(artifact):
        raise ValueError("not an artifact id")
    return base64.b32decode(artifact[len(ARTIFACT_PREFIX) :].upper() + "====").hex()


def identity_json(*, project_id: str, artifact: str, query_fingerprint: str, source_version: str) -> bytes:
    """What an experiment is, as `canonical_json`: nothing descriptive is part of it (section 27.2).

    Put together by hand, in a quarter of the time: every card that is read computes it.
    """
    text = (
        f'{{"artifactId":{_quoted(artifact)},"projectId":{_quoted(project_id)},'
        f'"queryFingerprint":{_quoted(query_fingerprint)},"schemaVersion":{IDENTITY_VERSION},'
        f'"sourceVersion":{_quoted(source_version)}}}'
    )
    return text.encode("utf-8")


def experiment_id(*, project_id: str, artifact: str, query_fingerprint: str, source_version: str) -> str:
    """`exp_` + base32 of the SHA-256 of `identity_json`."""
    identity = identity_json(
        project_id=project_id, artifact=artifact, query_fingerprint=query_fingerprint, source_version=source_version
    )
    return EXPERIMENT_PREFIX + base32_lower(hashlib.sha256(identity).digest())


def is_artifact_of(artifact: str, sha256: str) -> bool:
    """Whether an artifact id is that of a digest, 64 hexadecimal digits: `artifact_id` backwards, far faster."""
    return is_artifact_id(artifact) and _number(artifact) == int(sha256, 16) << _PADDING


def is_experiment_of(
    experiment: str, *, project_id: str, artifact: str, query_fingerprint: str, source_version: str
) -> bool:
    """Whether an experiment id is that of an identity: `experiment_id` backwards, far faster."""
    identity = identity_json(
        project_id=project_id, artifact=artifact, query_fingerprint=query_fingerprint, source_version=source_version
    )
    digest = int.from_bytes(hashlib.sha256(identity).digest(), "big")
    return is_experiment_id(experiment) and _number(experiment) == digest << _PADDING


_PADDING: Final = 4
"""Bits that 52 characters of base 32 have more than a SHA-256 digest."""


def _number(name: str) -> int:
    """What the base 32 behind a prefix of four characters stands for."""
    return int(name[4:].translate(_BASE32_DIGITS), 32)


def project_key(project_id: str) -> str:
    """The path-safe, one-way name of a project's folder (section 28.1)."""
    return base32_lower(hashlib.sha256(project_id.encode("utf-8")).digest())


def is_artifact_id(value: object) -> bool:
    """Whether `value` has the form of an artifact id."""
    return isinstance(value, str) and _ARTIFACT.fullmatch(value) is not None


def is_experiment_id(value: object) -> bool:
    """Whether `value` has the form of an experiment id."""
    return isinstance(value, str) and _EXPERIMENT.fullmatch(value) is not None


def is_sha256(value: object) -> bool:
    """Whether `value` is a SHA-256 digest as 64 lower-case hexadecimal digits."""
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None


def new_ulid(milliseconds: int | None = None) -> str:
    """A ULID: 48 bits of time (milliseconds since 1970, now when None) and 80 random bits, in Crockford's base32."""
    moment = time.time_ns() // 1_000_000 if milliseconds is None else milliseconds
    number = (moment & ((1 << 48) - 1)) << 80 | int.from_bytes(os.urandom(10), "big")
    return "".join(_CROCKFORD[number >> shift & 31] for shift in range(125, -1, -5))
