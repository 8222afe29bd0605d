"""Settings: every one explained, the right one wins, and a wrong one is shown where it stands."""

import os
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcast.errors import ConfigError
from nearcast.server.config import (
    KEYS,
    STORAGE_VARIABLES,
    TABLES,
    JwtSettings,
    LimitSettings,
    Settings,
    StorageSettings,
    default_file,
    line_of,
    load_settings,
    meanings,
)


def written(folder: Path, text: str) -> Path:
    file = folder / "nearcast.toml"
    file.write_text(text, encoding="utf-8")
    return file


def refused(folder: Path, text: str, environment: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as why:
        load_settings(written(folder, text), environment)
    assert "\n" not in str(why.value)
    return str(why.value).removeprefix(f"{folder}/")


def test_the_printed_file_says_exactly_the_defaults(tmp_path: Path) -> None:
    assert load_settings(written(tmp_path, default_file())) == Settings() == load_settings()


def test_every_setting_is_in_the_printed_file_with_its_meaning() -> None:
    said = tomllib.loads(default_file())
    flat = {key for key in said if key not in TABLES}
    flat |= {f"{table}.{key}" for table in TABLES for key in said[table]}
    assert flat == set(KEYS)
    assert set(meanings()) == {*KEYS, *TABLES}
    lines = default_file().splitlines()
    explained = [above for above, line in pairwise(lines) if line and line[0] not in "#["]
    assert len(explained) == len(KEYS)  # each is one line
    assert all(above.startswith("# ") for above in explained)
    assert max(map(len, lines)) <= 100


def test_flags_come_before_environment_before_file_before_defaults(tmp_path: Path) -> None:
    file = written(tmp_path, "port = 1\nname = 'file'\nflush_ms = 3.0\n[limits]\nframe = 11\n")
    environment = {"NEARCAST_PORT": "2", "NEARCAST_NAME": "environment", "PATH": "/bin"}
    environment["NEARCAST_LIMITS_QUEUE_BYTES"] = "22"
    found = load_settings(file, environment, {"port": 3, "record": False, "name": None})
    assert (found.port, found.name, found.flush_ms) == (3, "environment", 3.0)
    assert (found.record, found.host) == (False, "127.0.0.1")
    assert (found.limits.frame, found.limits.queue_bytes) == (11, 22)
    assert found.limits.subscriptions == LimitSettings().subscriptions


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# one\nprt = 3\n", "nearcast.toml:2: there is no setting 'prt'; did you mean port?"),
        ("port = 70000", "nearcast.toml:1: port = 70000: expected int <= 65535"),
        ("\n\nport = 'x'", "nearcast.toml:3: port = 'x': expected int, got str"),
        ("record = 1", "nearcast.toml:1: record = 1: expected bool, got int"),
        ("[limits]\nframe = 0", "nearcast.toml:2: limits.frame = 0: expected int >= 1"),
        ("[limits]\nextent = -1.0", "nearcast.toml:2: limits.extent = -1.0: a limit is above 0"),
        ("[limits]\nextent = nan", "nearcast.toml:2: limits.extent = nan: a limit is above 0"),
        ("limits.frme = 3", "nearcast.toml:1: there is no setting 'limits.frme'"),
        ("limits = 3", "nearcast.toml:1: there is no setting 'limits'"),
        ("port = 1\n[server]\nport = 2", "nearcast.toml:2: there is no setting 'server'"),
        ("port = 1\nport = 2", "nearcast.toml:2: Cannot overwrite a value"),
        ("name = 'a'\nport = \n", "nearcast.toml:2: Invalid value"),
        ("port = 1\nhost = '0.0.0.0'", "nearcast.toml:2: host '0.0.0.0' can be reached from"),
        ("[jwt]\nkeys = 'http://id.example/jwks'", "nearcast.toml:2: jwt.keys is a file, an https"),
        ("[jwt]\nkeys = 'file:///etc/jwks'", "nearcast.toml:2: jwt.keys is a file, an https"),
        ("[jwt]\nissuer = 'me'", "nearcast.toml:2: jwt.issuer and jwt.audience need jwt.keys"),
        (
            "[cluster]\nkey = 'k'\nstandby = true",
            "nearcast.toml:3: cluster.standby needs a cluster.join: somebody must call it in",
        ),
        (
            "[cluster]\nlow = 0.5\nhigh = 0.5",
            "nearcast.toml:2: cluster.low must be below cluster.high",
        ),
        ("name = ''\ntls_key = 'k'", "nearcast.toml:2: tls_certificate and tls_key go together"),
    ],
)
def test_what_is_wrong_in_the_file_is_shown_with_its_line(
    tmp_path: Path, text: str, says: str
) -> None:
    assert refused(tmp_path, text).startswith(says)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("NEARCAST_PRT", "3", "NEARCAST_PRT: there is no setting 'prt'; did you mean port?"),
        ("NEARCAST_PORT", "tcp://x", "NEARCAST_PORT: port = 'tcp://x': expected int, got str"),
        ("NEARCAST_RECORD", "maybe", "NEARCAST_RECORD: record = 'maybe': expected bool, got str"),
        ("NEARCAST_LIMITS_SLOW_S", "-1", "NEARCAST_LIMITS_SLOW_S: limits.slow_s"),
        ("NEARCAST_HOST", "::", "NEARCAST_HOST: host '::' can be reached from elsewhere"),
    ],
)
def test_what_is_wrong_in_the_environment_is_shown_with_its_name(
    tmp_path: Path, name: str, value: str, says: str
) -> None:
    assert refused(tmp_path, "port = 1", {name: value}).startswith(says)


def test_what_is_wrong_in_a_flag_is_shown_with_its_name() -> None:
    with pytest.raises(ConfigError, match=r"^--tls-key: tls_certificate and tls_key go together"):
        load_settings(flags={"tls_key": "key.pem"})


@pytest.mark.parametrize("word", ["true", "1"])
def test_the_environment_writes_truth_in_several_ways(word: str) -> None:
    assert load_settings(environment={"NEARCAST_RECORD": word}).record
    assert load_settings(environment={"NEARCAST_DEBUG": "1"}) == Settings()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_a_node_for_this_machine_alone_needs_no_token(host: str) -> None:
    assert Settings(host=host).host == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", ""])
def test_a_node_for_others_needs_a_token(host: str) -> None:
    with pytest.raises(ValueError, match="set a token"):
        Settings(host=host)
    assert Settings(host=host, token="secret").host == host
    assert Settings(host=host, token_file="tokens").host == host
    assert Settings(host=host, jwt=JwtSettings(keys="jwks.json")).host == host


keys = st.text("abcxyz_", min_size=1, max_size=6)
values: st.SearchStrategy[Any] = st.sampled_from(
    ["1", "'one'", '"#"', "[1,\n 2]", '"""two\nlines = 3"""', "{ a = 1 }", "true # why = 3"]
)


@given(st.dictionaries(keys, values, min_size=1, max_size=8), st.booleans(), st.data())
def test_the_line_of_a_key_is_where_its_value_ends(
    table: dict[str, str], nested: bool, data: st.DataObject
) -> None:
    """However keys and values are written, and whatever stands between them."""
    lines = ["[limits]"] if nested else []
    ends = {}
    for key, value in table.items():
        lines += data.draw(st.lists(st.sampled_from(["", "# port = 3"]), max_size=2))
        lines += f"{key} = {value}".split("\n")
        ends[key] = len(lines)
    for key, end in ends.items():
        assert line_of("\n".join(lines), f"limits.{key}" if nested else key) == end


def test_settings_of_stores_stand_behind_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variables in STORAGE_VARIABLES.values():
        for name in variables:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "mine")
    file = written(
        tmp_path,
        "[storage]\nendpoint = 'http://localhost:9'\nregion = 'x'\naccess_key = 'other'\n"
        "secret_key = 's'\nattempts = 7\n",
    )
    load_settings(file).storage.use()
    found = {name: os.environ[name] for names in STORAGE_VARIABLES.values() for name in names
             if name in os.environ}  # fmt: skip
    for name in found:
        monkeypatch.delenv(name)  # and what was before is set again
    assert found == {
        "AWS_ENDPOINT_URL": "http://localhost:9",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_ACCESS_KEY_ID": "mine",
        "AWS_SECRET_ACCESS_KEY": "s",
        "NEARCAST_STORAGE_ATTEMPTS": "7",
    }


def test_settings_of_stores_are_those_that_stores_have(tmp_path: Path) -> None:
    assert set(STORAGE_VARIABLES) == set(StorageSettings.__struct_fields__)
    assert refused(tmp_path, "[storage]\ntimeout_s = 0").startswith("nearcast.toml:2: storage.time")
