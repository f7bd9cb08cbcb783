"""Settings: what is refused, by which name, and which file may say what."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rlm_memory_host import settings
from rlm_memory_host.errors import SettingsError


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def load(tmp_path: Path, text: str = "", **options: Any) -> settings.Settings:
    """Load `text` as `--config`, away from this machine's own files."""
    config = written(tmp_path / "given.toml", text)
    options = {
        "state_root": tmp_path / "state",
        "cwd": tmp_path,
        "environ": {},
        "user_folder": tmp_path / "u",
    } | options
    return settings.load(config, **options).settings


def test_defaults_are_those_of_the_specification(tmp_path: Path) -> None:
    """Without a word from the operator the bounds are section 28.5's and the store lies in the state root."""
    found = load(tmp_path)
    assert found.artifacts.max_artifact_bytes == 1 << 30
    assert found.artifacts.max_project_bytes == 20 << 30
    assert (found.artifacts.max_cards, found.artifacts.max_tags, found.artifacts.max_columns) == (10_000, 20, 256)
    assert found.artifact_root == found.state_root / "artifacts"


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("stat_root = '/x'", "stat_root"),
        ("[artifacts]\nenable = true", "artifacts.enable"),
        ("[artifacts]\nenabled = 'yes'", "artifacts.enabled"),
        ("[artifacts]\nenabled = 1", "artifacts.enabled"),
        ("[artifacts]\nintegrity = 'never'", "artifacts.integrity"),
        ("[artifacts]\nmax_cards = 0", "artifacts.max_cards"),
        ("[artifacts]\nmax_cards = -1", "artifacts.max_cards"),
        ("[artifacts]\nmax_cards = true", "artifacts.max_cards"),
        ("[artifacts]\nmax_cards = 10001", "max_cards"),
        ("[artifacts]\nmax_artifact_bytes = 1073741825", "max_artifact_bytes"),
        ("[artifacts]\nmax_project_bytes = 21474836481", "max_project_bytes"),
        ("[artifacts]\nallow_larger = true\nmax_cards = 1000001", "artifacts.max_cards"),
        ("[artifacts]\nmax_title_chars = 201", "artifacts.max_title_chars"),
        ("[artifacts]\nallow_larger = true\nmax_tags = 21", "artifacts.max_tags"),
        ("[artifacts]\nroot = 'relative/place'", "artifacts.root"),
        ("[tools]\nmemory_everything = true", "tools.memory_everything"),
        ("[tools]\nmemory_search = 'on'", "tools.memory_search"),
        ("[host]\nshutdown_seconds = 0", "host.shutdown_seconds"),
        ("[host]\ntool_timeout_seconds = 1e9", "host.tool_timeout_seconds"),
        ("[host]\nlog_level = 'chatty'", "host.log_level"),
        ("[project]\nid = ''", "project.id"),
        ('[project]\nid = "a\\u0000b"', "project.id"),
        ("[project]\nid = 'x'\nname = 'y'", "project.name"),
        ("[credentials]\nkey = 'sk-planted-0000'", "credentials"),
        ("not toml at all", "not valid TOML"),
    ],
)
def test_a_wrong_key_is_refused_by_name(tmp_path: Path, text: str, names: str) -> None:
    """Unknown keys, wrong types and ranges name the key and repeat no value."""
    with pytest.raises(SettingsError, match=names) as refused:
        load(tmp_path, text)
    assert "planted" not in str(refused.value)


def test_an_operator_may_raise_card_and_byte_bounds_on_purpose(tmp_path: Path) -> None:
    """`allow_larger` is the explicit word."""
    found = load(
        tmp_path, "[artifacts]\nallow_larger = true\nmax_cards = 1_000_000\nmax_artifact_bytes = 2_000_000_000"
    )
    assert found.artifacts.max_cards == 1_000_000


def roots(tmp_path: Path) -> dict[str, Path]:
    repository = tmp_path / "repository"
    (repository / ".git").mkdir(parents=True)
    (tmp_path / "home-link").symlink_to(Path.home())
    return {
        "a file system root": Path("/"),
        "the home folder": Path.home(),
        "a folder above the home folder": Path.home().parent,
        "a link to the home folder": tmp_path / "home-link",
        "a repository's root": repository,
        "the DSH profile folder": tmp_path / "dsh",
        "a folder in the DSH profile": tmp_path / "dsh" / "memory",
        "a folder in an RLM session": tmp_path / "rlm" / "exports",
    }


@pytest.mark.parametrize("key", ["state_root", "artifacts.root"])
@pytest.mark.parametrize(
    "what",
    [
        "a file system root",
        "the home folder",
        "a folder above the home folder",
        "a link to the home folder",
        "a repository's root",
        "the DSH profile folder",
        "a folder in the DSH profile",
        "a folder in an RLM session",
    ],
)
def test_a_dangerous_root_is_refused(tmp_path: Path, key: str, what: str) -> None:
    """Section 32: roots that would put results in commits, homes or another program's folders."""
    root = roots(tmp_path)[what]
    environ = {"DSH_HOME": str(tmp_path / "dsh"), "RLM_SESSION_DIR": str(tmp_path / "rlm")}
    table, name = key.rpartition(".")[::2]
    text = f"[{table}]\n{name} = '{root}'" if table else f"{name} = '{root}'"
    with pytest.raises(SettingsError, match=key):
        load(tmp_path, text, environ=environ, state_root=None if key == "state_root" else tmp_path / "state")


@pytest.mark.parametrize(
    ("below", "fine"),
    [
        ("state/artifacts", True),
        ("elsewhere", True),
        ("state", False),
        ("state/sessions/x", False),
        ("state/outbox", False),
        ("link/sessions", False),
        (".", False),
    ],
)
def test_the_artifact_root_may_not_overlap_the_state_root(tmp_path: Path, below: str, fine: bool) -> None:
    """Nested roots are refused, through links as well; the state root's own artifacts folder is the exception."""
    (tmp_path / "state").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "state")
    text = f"[artifacts]\nroot = '{tmp_path / below}'"
    if fine:
        assert load(tmp_path, text).artifact_root == tmp_path / below
    else:
        with pytest.raises(SettingsError, match=r"artifacts\.root"):
            load(tmp_path, text)


def test_roots_are_canonical(tmp_path: Path) -> None:
    """A root given through a link is kept under its real name, so that two spellings are one store."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert load(tmp_path, "", state_root=tmp_path / "link" / "s").state_root == tmp_path / "real" / "s"


@pytest.mark.parametrize(
    "text",
    [
        "state_root = '/tmp/x'",
        "[artifacts]\nroot = '/tmp/x'",
        "[artifacts]\nenabled = true",
        "[tools]\nmemory_search = true",
        "[project]\nid = 'other-project'",
        "[host]\nlog_level = 'debug'",
        "[host]\n",
        "[display]\nproject_name = 'x'\n[artifacts]\nmax_cards = 1",
    ],
)
def test_a_project_file_sets_nothing_that_is_obeyed(tmp_path: Path, text: str) -> None:
    """A file that a kernel or a clone can write is refused as soon as it reaches beyond display."""
    written(tmp_path / "p" / "rlm-memory.toml", text)
    (tmp_path / "p" / "deep" / "er").mkdir(parents=True)
    with pytest.raises(SettingsError, match="project file"):
        settings.load(
            None, tmp_path / "state", cwd=tmp_path / "p" / "deep" / "er", environ={}, user_folder=tmp_path / "u"
        )


def test_a_project_file_may_name_the_project_and_the_user_file_rules(tmp_path: Path) -> None:
    """The user's file is the base, the project's harmless keys come on top, both are reported."""
    written(tmp_path / "p" / "rlm-memory.toml", "[display]\nproject_name = 'Trial 7'")
    written(tmp_path / "u" / "rlm-memory.toml", "[artifacts]\nmax_cards = 5")
    loaded = settings.load(None, tmp_path / "state", cwd=tmp_path / "p", environ={}, user_folder=tmp_path / "u")
    assert loaded.settings.display.project_name == "Trial 7"
    assert loaded.settings.artifacts.max_cards == 5
    assert [source.role for source in loaded.sources] == ["user config file", "project file"]


def test_the_order_of_files(tmp_path: Path) -> None:
    """--config before RLM_MEMORY_CONFIG before the project's and the user's; a named one stands alone."""
    given = written(tmp_path / "given.toml", "[artifacts]\nmax_cards = 1")
    named = written(tmp_path / "named.toml", "[artifacts]\nmax_cards = 2")
    written(tmp_path / "u" / "rlm-memory.toml", "[artifacts]\nmax_cards = 3")
    places: dict[str, Any] = {"cwd": tmp_path, "user_folder": tmp_path / "u"}
    environ = {"RLM_MEMORY_CONFIG": str(named)}
    root = tmp_path / "state"
    assert settings.load(given, root, environ=environ, **places).settings.artifacts.max_cards == 1
    assert settings.load(None, root, environ=environ, **places).settings.artifacts.max_cards == 2
    assert settings.load(None, root, environ={}, **places).settings.artifacts.max_cards == 3
    with pytest.raises(SettingsError, match="--config: the file cannot be read"):
        settings.load(tmp_path / "absent.toml", root, environ=environ, **places)


def test_kernel_and_host_find_one_state_root(tmp_path: Path) -> None:
    """The option, else the variable, else the operator's file; a kernel that looks by itself comes to the same one."""
    from rlm_memory.finding import state_root as kernel_side

    named = written(tmp_path / "named.toml", f'state_root = "{tmp_path / "by file"}"')
    by_file = {"RLM_MEMORY_CONFIG": str(named)}
    by_variable = by_file | {"RLM_MEMORY_STATE_ROOT": str(tmp_path / "by variable")}
    places: dict[str, Any] = {"cwd": tmp_path, "user_folder": tmp_path / "u"}
    for environ, name in ((by_file, "by file"), (by_variable, "by variable")):
        host_side = settings.load(None, None, environ=environ, **places).settings.state_root
        assert host_side == kernel_side(environ) == tmp_path / name
    told = settings.load(None, tmp_path / "by option", environ=by_variable, **places)
    assert told.settings.state_root == tmp_path / "by option"


def test_a_settings_file_that_others_can_write_is_refused(tmp_path: Path) -> None:
    """Whoever can write it would choose the roots."""
    config = written(tmp_path / "shared.toml", "", mode=0o666)
    with pytest.raises(SettingsError, match="other users can write"):
        settings.load(config, tmp_path / "state", cwd=tmp_path, environ={}, user_folder=tmp_path / "u")


def test_every_key_is_documented() -> None:
    """The operator's page names each key, so that `config show` holds no surprise."""
    page = (Path(__file__).parents[2] / "docs" / "host.md").read_text()
    shown = json.loads(settings.Settings().model_dump_json())
    keys = [f"{table}.{key}" for table, value in shown.items() if isinstance(value, dict) for key in value]
    missing = [key for key in [*keys, "state_root"] if f"`{key}`" not in page]
    assert not missing
