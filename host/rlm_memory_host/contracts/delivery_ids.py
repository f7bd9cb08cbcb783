"""How deliveries, sessions and messages are named at the memory service. Pure functions, no I/O.

Owns: delivery and session ids, fingerprints, which ids the service takes. Does not own: documents (`delivery`).

Source: DeepSeek Honcho specification, sections 10.1, 12.2, 29.2; the identity vectors.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from rlm_memory_host.contracts.ids import REMOTE_ID_PATTERN, base32_lower, canonical_json

if TYPE_CHECKING:
    from rlm_memory_host.contracts.delivery import DeliveryScope, Role

SESSION_PREFIX: Final = "dsh_"
_DELIVERY_ID = re.compile(r"[0-9a-f]{64}")
_ID = re.compile(REMOTE_ID_PATTERN[1:-1])
_DELIVERY_TAG = "rlm-memory/delivery/1"
_CARD_TAG = "rlm-memory/card-delivery/1"


def honcho_session_id(session_id: str) -> str:
    """The service's session for an exact session id (section 10.1): `dsh_` + base32 of its SHA-256.

    Raises UnicodeEncodeError for a lone surrogate.
    """
    return SESSION_PREFIX + base32_lower(hashlib.sha256(session_id.encode("utf-8")).digest())


def is_remote_id(value: object) -> bool:
    """Whether the service takes `value` as the id of a workspace, peer, session or project."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def is_delivery_id(value: object) -> bool:
    """Whether `value` has the form of a delivery id."""
    return isinstance(value, str) and _DELIVERY_ID.fullmatch(value) is not None


def exchange_delivery_id(
    scope: DeliveryScope,
    *,
    turn: int | None,
    event_sequences: Sequence[int],
    contents: Sequence[tuple[Role, str]],
    revision: str | None = None,
) -> str:
    """The id of an exchange or a note (section 12.2): the same source and the same redacted text, the same id.

    `contents` are role and text after redaction, in order; `revision` names the state of a memory, which has no events.
    """
    own: dict[str, Any] = {} if revision is None else {"revision": revision}
    return _digest(
        own
        | {
            "contents": [[role, text] for role, text in contents],
            "eventSequences": list(event_sequences),
            "honchoSessionId": scope.honcho_session_id,
            "projectId": scope.project_id,
            "schema": _DELIVERY_TAG,
            "sessionId": scope.dsh_session_id,
            "turn": turn,
            "userPeerId": scope.user_peer_id,
            "workspaceId": scope.workspace_id,
        }
    )


def card_delivery_id(
    *, namespace: str, workspace_id: str, project_id: str, experiment_id: str, schema_version: int, revision: str
) -> str:
    """The id of a remote experiment card (section 29.2): a new revision of the projection is a new delivery."""
    return _digest(
        {
            "experimentId": experiment_id,
            "namespace": namespace,
            "projectId": project_id,
            "remoteSchemaVersion": schema_version,
            "revision": revision,
            "schema": _CARD_TAG,
            "workspaceId": workspace_id,
        }
    )


def _digest(identity: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(identity)).hexdigest()


def fingerprint(peer_id: str, role: str, content: str) -> str:
    """The SHA-256, hexadecimal, that stands for a message within its delivery."""
    return _digest({"content": content, "peerId": peer_id, "role": role})
