"""Settings: one table, four sources, one frozen value. Ids in comments are rows of the bad-input catalogue."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from horae.config import MAX_FILE, OTHER_VARIABLES, Config, load
from horae.errors import ConfigError
from horae.settings import SETTINGS
from horae.values import mask_database


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test starts in an empty directory: horae.toml and jobs/ are looked for in the present one."""
    monkeypatch.chdir(tmp_path)


def write(text: str, name: str = "horae.toml", mode: int = 0o600) -> Path:
    path = Path(name)
    path.write_text(text)
    path.chmod(mode)
    return path.absolute()


def refused(flags: dict[str, str] | None = None, **sources: object) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(flags, **{"environ": {}, **sources})  # type: ignore[arg-type]
    return caught.value


# ── the table ──


def test_the_config_has_one_field_for_each_row_of_the_table() -> None:
    fields = [field.name for field in dataclasses.fields(Config)]
    assert [*(setting.name for setting in SETTINGS), "sources", "warnings"] == fields


def test_every_setting_is_explained_and_has_a_default_in_words() -> None:
    for setting in SETTINGS:
        assert setting.help.endswith("."), setting.name
        assert setting.described_default(), setting.name
        assert str(Path.cwd()) not in setting.described_default(), setting.name


def test_the_defaults_are_those_of_the_embedded_server(tmp_path: Path) -> None:
    found = load(environ={})
    assert (found.host, found.port, found.grpc_port) == ("127.0.0.1", 8080, 8090)
    assert found.data == tmp_path / ".horae"
    assert found.files == str(tmp_path / ".horae" / "outputs")
    assert found.sqlite_path == tmp_path / ".horae" / "horae.db"
    assert found.roles == ("api", "coordinator", "scheduler", "agent")
    assert found.slots == max(4, 4 * (os.cpu_count() or 1))
    assert (found.handler_slots, found.workers, found.sandbox) == (2000, 2, "auto")
    assert (found.scan_interval, found.heartbeat_interval, found.lease) == (60, 5, 15)
    assert (found.output_limit, found.startup_timeout, found.history_days) == (100 * 2**20, 30, None)
    assert found.node.endswith("-8080")
    assert found.jobs_directory == tmp_path / "jobs"
    assert found.address == "http://127.0.0.1:8080"


def test_defaults_follow_the_settings_they_depend_on(tmp_path: Path) -> None:
    Path("jobs").mkdir()
    found = load({"port": "9000", "data": "d", "heartbeat_interval": "2s"}, environ={})
    assert (found.grpc_port, found.lease) == (9010, 6)
    assert found.node.endswith("-9000")
    assert found.files == str(tmp_path / "d" / "outputs")
    assert found.jobs_directory == tmp_path / "jobs"


def test_the_jobs_directory_may_be_made_later_but_not_where_anybody_may_make_it(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    assert load(environ={}).jobs_directory is None
    Path("Jobs").mkdir()
    assert load(environ={}).jobs_directory == tmp_path / "Jobs"


def test_the_highest_port_still_leaves_one_for_grpc() -> None:
    assert load({"port": "65535"}, environ={}).grpc_port == 65525


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        load(environ={}).port = 1  # type: ignore[misc]


# ── sources ──


def test_flags_win_over_environment_over_file_over_default_and_each_says_so() -> None:  # E29
    path = write("port = 1001\nslots = 11\nworkers = 3\n")
    found = load({"port": "1003"}, environ={"HORAE_PORT": "1002", "HORAE_SLOTS": "12"})
    assert (found.port, found.slots, found.workers, found.history_days) == (1003, 12, 3, None)
    shown = {name: (value, source) for name, value, source in found.shown()}
    assert shown["port"] == ("1003", "flag --port")
    assert shown["slots"] == ("12", "environment HORAE_SLOTS")
    assert shown["workers"] == ("3", f"file {path.name}:3:1")
    assert shown["history_days"] == ("90; 0 on an installation that is older than this default", "default")


def test_every_setting_can_be_read_from_each_source(tmp_path: Path) -> None:
    for name in ("d", "j", "o", "e"):
        (tmp_path / name).mkdir()
    for name in ("c.pem", "k.pem"):
        (tmp_path / name).touch()
    values = {
        "host": "::1", "port": "1", "grpc_port": "2", "compat_ports": "3,4", "data": "d",
        "database": "postgresql://u@h/n", "node": "n1",
        "roles": "api,agent", "slots": "10000", "labels": "gpu,zone=eu", "resources": "gpu=1",
        "kinds": "shell,python", "handler_slots": "5",
        "workers": "7", "jobs_directory": "j", "maven_settings": "c.pem", "declarations": "e", "script_roots": "d,j",
        "sandbox": "plain", "scheduler_mode": "active-passive", "scan_interval": "2m",
        "heartbeat_interval": "500ms", "lease": "1m30s", "worker_timeout": "45", "on_restart": "keep",
        "output_limit": "3MiB", "artifact_limit": "1KiB", "cache_limit": "1MiB",
        "log_format": "json", "access_log": "requests.log", "otlp_endpoint": "http://127.0.0.1:4318",
        "trace_ratio": "0.5", "startup_timeout": "0", "allowed_hosts": "a.example,b.example", "require_token": "true",
        "request_rate": "100",
        "most_waiting_per_owner": "1000", "trusted_proxies": "127.0.0.1,10.0.0.0/24,2001:db8::/64",
        "history_days": "30", "events_days": "3", "audit_days": "30", "files": "o",
        "files_endpoint": "http://127.0.0.1:1", "files_limit": "1GiB",
        "tls_cert": "c.pem", "tls_key": "k.pem", "tls_client_ca": "c.pem", "public_url": "https://jobs.example.org",
        "credential_renewal": "6h", "session_idle": "1h", "session_limit": "12h", "oidc_issuer": "https://id.example.org",
        "oidc_client_id": "horae",
        "oidc_client_secret": "hush", "oidc_client_secret_file": "c.pem", "oidc_scopes": "openid,groups",
        "oidc_groups_claim": "realm_access.roles", "oidc_roles": "admins=*:admin,data=2:editor,*=viewer",
        "smtp_url": "smtps://u:p@h:465", "smtp_from": "horae@example.org", "alert_commands": "page=/usr/bin/page",
        "lake_workers": "external", "lake_lease": "2m", "secret_key_file": "s.key", "docker_url": "unix:///run/d.sock",
        "spark_warehouse": "hdfs://h:8020/warehouse", "hdfs_user": "etl",
        "spark_url": "sc://h:15002", "clickhouse_url": "http://u:p@h:8123", "lake_root": "s3://bucket/lake",
        "queue": "nats://127.0.0.1:4222", "allowed_networks": "127.0.0.0/8", "repository_roots": "j",
        "lake_buckets": "one,two", "spark_code": "true",
    }  # fmt: skip
    assert set(values) == {setting.name for setting in SETTINGS}
    by_flags = load(values, environ={})
    by_environment = load(environ={f"HORAE_{name.upper()}": text for name, text in values.items()})
    by_file = load(file=write("\n".join(f'{name} = "{text}"' for name, text in values.items()), "x.toml"), environ={})
    plain = [{**dataclasses.asdict(found), "sources": None} for found in (by_flags, by_environment, by_file)]
    assert plain[0] == plain[1] == plain[2]
    assert (by_flags.lease, by_flags.output_limit, by_flags.roles) == (90, 3 * 2**20, ("api", "agent"))
    assert by_flags.address == "https://[::1]:1"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("clickhouse_url", "https://u:hush@h:8443"),
        ("smtp_url", "smtps://u:hush@h:465"),
        ("spark_url", "sc://h:15002/;use_ssl=true;token=hush;user_id=u"),
    ],
)
def test_what_opens_an_engine_is_never_shown(name: str, value: str) -> None:
    shown = {name: text for name, text, _ in load({name: value}, environ={}).shown()}
    assert "hush" not in str(shown)
    assert "***" in shown[name]
    path = write(f'{name} = "{value}"', "x.toml")
    path.chmod(0o644)
    assert any("holds a password" in warning for warning in load(file=path, environ={}).warnings)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark_url", "http://h"),
        ("spark_url", "local[0]"),
        ("clickhouse_url", "h:8123"),
        ("lake_root", "ftp://h/x"),
        ("spark_warehouse", "s3://bucket/x"),
        ("hdfs_user", "a b"),
    ],
)
def test_the_address_of_an_engine_must_be_one(name: str, value: str) -> None:
    assert refused({name: value}).path == name


def test_a_file_may_use_the_types_of_toml() -> None:
    write('port = 99\nroles = ["agent", "api"]\nlease = 12.5\nallowed_hosts = []\noutput_limit = 2048\n')
    found = load(environ={})
    assert (found.port, found.roles, found.lease) == (99, ("api", "agent"), 12.5)
    assert (found.allowed_hosts, found.output_limit) == ((), 2048)


def test_without_a_file_in_the_directory_none_is_missed() -> None:
    assert load(environ={}).sources == {}


def test_a_named_file_must_exist() -> None:  # E23
    error = refused(file="nowhere.toml")
    assert error.code == "E_CONFIG"
    assert "nowhere.toml cannot be read: No such file" in error.message


def test_what_is_no_file_is_not_read_as_settings(tmp_path: Path) -> None:
    os.mkfifo("fifo.toml")
    for path in (tmp_path, Path("fifo.toml"), Path("/dev/zero")):
        assert "is not a file" in refused(file=path).message


def test_a_huge_or_binary_settings_file_is_refused() -> None:
    write("#" * (MAX_FILE + 1), "huge.toml")
    Path("binary.toml").write_bytes(b"\xff\xfe")
    assert "larger than 1MiB" in refused(file="huge.toml").message
    assert "not UTF-8" in refused(file="binary.toml").message


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("port = = 1\n", "horae.toml:1:8: "),
        ("slots = 4\nport 8080\n", "horae.toml:2:6: "),
        ("port = 1\nport = 2\n", "horae.toml:2:9: "),
    ],
)
def test_broken_toml_is_refused_with_line_and_column(text: str, where: str) -> None:  # E25
    write(text)
    error = refused()
    assert error.code == "E_CONFIG"
    assert error.message.startswith(where)


def test_an_unknown_key_is_refused_with_its_place_and_the_nearest_name() -> None:  # E25
    write("# mine\nslots = 4\n  prot = 8080\n")
    error = refused()
    assert error.message == "horae.toml:3:3: prot is no setting of Horae"
    assert error.hint == "did you mean port?"


def test_a_table_in_the_file_is_refused() -> None:
    write("[server]\nport = 1\n")
    assert refused().message == "horae.toml:1:2: server is a table; settings stand alone"


def test_settings_that_begin_alike_may_stand_in_a_table() -> None:
    write('port = 99\n\n[lake]\nworkers = "external"\nlease = "90s"\n')
    found = load(environ={})
    assert (found.lake_workers, found.lake_lease, found.workers) == ("external", 90, 2)
    assert found.sources["lake_lease"] == "file horae.toml:5:1"


def test_an_unknown_key_of_a_table_is_refused_with_its_place_and_the_nearest_name() -> None:
    write('[lake]\nworker = "external"\n')
    error = refused()
    assert error.message == "horae.toml:2:1: lake_worker is no setting of Horae"
    assert error.hint == "did you mean lake_workers?"


def test_a_setting_alone_and_in_a_table_stands_twice() -> None:
    write('lake_lease = "90s"\n[lake]\nlease = "80s"\n')
    assert refused().message == "horae.toml:3:1: lake_lease stands twice"


def test_a_wrong_value_in_a_file_is_refused_with_its_place() -> None:
    write("slots = 4\nport = true\n")
    assert refused().message == "port must be a whole number from 1 to 65535; got True (file horae.toml:2:1)"


def test_an_unknown_variable_is_refused_with_the_nearest_name() -> None:
    error = refused(environ={"HORAE_PROT": "1"})
    assert (error.code, error.hint) == ("E_CONFIG", "did you mean HORAE_PORT?")
    assert "HORAE_PROT" in error.message


def test_no_setting_is_taken_for_a_variable_of_something_else() -> None:
    assert not OTHER_VARIABLES & {setting.variable for setting in SETTINGS}


def test_variables_that_are_no_settings_are_left_alone() -> None:
    others = {"HORAE_SERVER": "http://x", "HORAE_REQUIRE_SERVERS": "1", "HOME": "/", "HORAE_CA_FILE": "c",
              "HORAE_TOKEN": "t", "HORAE_TOKEN_FILE": "f"}  # fmt: skip
    assert load(environ=others).sources == {}


def test_inside_a_job_its_variables_are_not_taken_for_settings(tmp_path: Path) -> None:
    given = {"HORAE_RUN_ID": "7", "HORAE_FENCE": "1", "HORAE_STEP": "build", "HORAE_RUN_DATA": '{"full": true}'}
    assert load(environ=given).sources == {}
    assert load(environ={**given, "HORAE_DATA": "d"}).data == tmp_path / "d"
    assert load(environ={**given, "HORAE_PORT": "99"}).port == 99


def test_a_file_that_everyone_can_change_is_warned_about() -> None:  # E27
    write("port = 1\n", mode=0o602)
    assert "can be changed by every user" in load(environ={}).warnings[0]


def test_a_password_that_everyone_can_read_is_warned_about() -> None:  # E27
    write('database = "postgresql://u:hush@h/n"\n', mode=0o604)
    assert "holds a password" in load(environ={}).warnings[0]
    write('database = "postgresql://u@h/n"\n', mode=0o604)
    assert load(environ={}).warnings == ()


# ── values ──


@pytest.mark.parametrize("port", ["abc", "0", "70000", "-1", "", "80.5", "８０"])
def test_a_port_is_a_number_from_1_to_65535(port: str) -> None:  # E05
    error = refused({"port": port})
    assert error.message == f"port must be a whole number from 1 to 65535; got {port!r} (flag --port)"


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.com", "10.0.0.1"])
def test_listening_beyond_loopback_without_tls_is_refused_with_the_reason_and_a_way(host: str) -> None:
    error = refused({"host": host})
    assert error.code == "E_TLS_REQUIRED"
    assert "needs a login and TLS" in error.message
    assert "--tls-cert" in error.hint
    assert "ssh -L" in error.hint


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "::", "example.com"])
def test_listening_beyond_loopback_with_tls_is_https_and_not_loopback(host: str, tmp_path: Path) -> None:
    for name in ("c.pem", "k.pem"):
        (tmp_path / name).touch()
    found = load({"host": host, "tls_cert": "c.pem", "tls_key": "k.pem"}, environ={})
    assert not found.is_loopback
    assert found.address == (f"https://[{host}]:8080" if ":" in host else f"https://{host}:8080")
    assert found.tls_cert == tmp_path / "c.pem"


def test_a_certificate_without_its_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.pem").touch()
    assert "tls_key is missing" in refused({"tls_cert": "c.pem"}).message
    assert "tls_cert is missing" in refused({"tls_key": "c.pem"}).message


@pytest.mark.parametrize("name", ["nowhere.pem", ".", "", "https://x/c.pem"])
def test_a_certificate_that_is_no_file_is_refused(name: str) -> None:
    error = refused({"tls_cert": name, "tls_key": name})
    assert error.message.startswith("tls_cert must be a file")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost"])
def test_every_loopback_address_can_be_listened_on(host: str) -> None:
    found = load({"host": host}, environ={})
    assert found.host == host.strip("[]")
    assert found.is_loopback
    assert found.address.startswith("http://")


@pytest.mark.parametrize("host", ["", "999.1.1.1", "1.2.3", ":::", "a b", "http://127.0.0.1"])
def test_what_is_no_address_cannot_be_listened_on(host: str) -> None:  # E49
    assert refused({"host": host}).code == "E_LISTEN"


@pytest.mark.parametrize("sandbox", ["docker", "none", ""])
def test_an_unknown_sandbox_is_refused_with_those_there_are(sandbox: str) -> None:
    error = refused({"sandbox": sandbox})
    assert error.code == "E_CONFIG"
    assert "one of: auto, plain, bubblewrap" in error.message


@pytest.mark.parametrize(
    "database",
    ["mysql://h/x", "horae.db", "", "sqlite:", "sqlite:///", "sqlite://", "sqlite://host", "postgresql://h:0/x",
     "postgresql://h:99999/x", "postgresql://[h/x", "postgresql:x", "postgresql://a:1,b:99999/x"],
)  # fmt: skip
def test_a_database_is_postgresql_or_a_sqlite_file(database: str) -> None:
    error = refused({"database": database})
    assert "postgresql://user@host/name or sqlite:///path/to/file" in error.message


@pytest.mark.parametrize("database", ["postgresql://u:p@ss:w%rd@h/x", "postgresql://u:p%@h/x", "postgres://u:p@ss@h/x"])
def test_a_password_that_must_be_escaped_is_refused_and_not_shown(database: str) -> None:
    error = refused({"database": database})
    assert error.code == "E_URL"
    assert "%40" in error.hint
    for part in ("p@ss", "w%rd", "ss:", "p%"):
        assert part not in error.message


@pytest.mark.parametrize("database", ["sqlite:///x/a.db", "sqlite:////x/a.db", "sqlite:/x/a.db"])
def test_every_way_to_write_a_sqlite_path_means_the_same(database: str) -> None:
    found = load({"database": database}, environ={})
    assert (found.database, found.sqlite_path) == ("sqlite:///x/a.db", Path("/x/a.db"))


def test_a_data_directory_may_have_any_name(tmp_path: Path) -> None:
    found = load({"data": "a #1?%20"}, environ={})
    assert found.sqlite_path == tmp_path / "a #1?%20" / "horae.db"


@pytest.mark.parametrize("database", ["postgresql://u:p@a:1,b:2/x", "postgresql://a,[::1]:5/x?sslmode=require"])
def test_a_server_database_may_have_several_hosts(database: str) -> None:
    assert load({"database": database}, environ={}).database == database


def test_a_server_database_has_no_sqlite_path() -> None:
    assert load({"database": "postgres://h/x"}, environ={}).sqlite_path is None


@pytest.mark.parametrize(
    "url",
    ["postgresql://u:hush@h/n", "postgresql://u:hu#sh@h/n", "postgresql://u:hush@sh@h/n",
     "postgresql://h/n?user=u&password=hush", "postgresql://h/n?PASSWORD=hush&x=1"],
)  # fmt: skip
def test_a_password_is_never_shown(url: str) -> None:
    assert "sh" not in mask_database(url)
    try:
        shown = str(load({"database": url}, environ={}).shown())
    except ConfigError as error:
        shown = error.message
    assert "hush" not in shown
    assert "***" in shown


@pytest.mark.parametrize("slots", ["0", "10001", "-4", "many"])
def test_slots_are_1_to_10000(slots: str) -> None:  # E59
    assert "from 1 to 10000" in refused({"slots": slots}).message


def test_resources_are_named_with_their_amounts() -> None:
    config = load({"resources": "gpu=2, memory=8GiB,cpus=1.5,license-x=3"}, environ={})
    assert config.resources == (("cpus", 1500), ("gpu", 2), ("license-x", 3), ("memory", 8 << 30))
    assert ("resources", "cpus=1.5,gpu=2,license-x=3,memory=8GiB", "flag --resources") in config.shown()


def test_resources_may_be_a_table_of_the_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "horae.toml"
    file.write_text('port = 9000\n[resources]\ngpu = 1\nmemory = "8GiB"\n')
    assert load(file=file, environ={}).resources == (("gpu", 1), ("memory", 8 << 30))


@pytest.mark.parametrize("text", ["gpu", "gpu=", "=1", "gpu=0", "gpu=1.5", "gpu=much", "GPU=1", "memory=1 potato"])
def test_what_is_no_resource_is_refused_with_an_example(text: str) -> None:
    assert "resources by name, such as gpu=1,memory=8GiB" in refused({"resources": text}).message


def test_slots_are_no_resource_of_a_setting() -> None:
    assert refused({"resources": "slots=2"}).hint == "slots is a setting of its own"


@pytest.mark.parametrize(
    ("name", "text"),
    [("lease", "5x"), ("lease", "-1"), ("lease", ""), ("scan_interval", "0"), ("heartbeat_interval", "2h"),
     ("scan_interval", "nan"), ("scan_interval", "1e3")],
)  # fmt: skip
def test_a_duration_has_a_unit_and_a_range(name: str, text: str) -> None:
    assert f"{name} must be a duration from" in refused({name: text}).message


@pytest.mark.parametrize("text", ["1", "10 apples", "5TiB", "-1", "2e9"])
def test_a_size_has_a_unit_and_a_range(text: str) -> None:
    assert "output_limit must be a size from 1KiB to 1024GiB" in refused({"output_limit": text}).message


def test_roles_are_known_named_once_and_not_none() -> None:
    error = refused({"roles": "api,agnt"})
    assert (error.hint, "api, coordinator, scheduler, agent" in error.message) == ("did you mean agent?", True)
    assert "api stands twice" in refused({"roles": "api,agent,api"}).message
    assert refused({"roles": ""}).code == "E_CONFIG"
    write("roles = []\n")
    assert "at least one of" in refused().message


@pytest.mark.parametrize("node", ["", "-x", "a b", "a/b", "ä", "x" * 129, "a\nb"])
def test_a_node_name_is_plain(node: str) -> None:
    assert "node must be a name of 1 to 128 letters" in refused({"node": node}).message


@pytest.mark.parametrize("hosts", ["http://x", "a:80", "a,a", "a,,b", "*"])
def test_allowed_hosts_are_distinct_names(hosts: str) -> None:
    assert "allowed_hosts must be a list of host names" in refused({"allowed_hosts": hosts}).message


@pytest.mark.parametrize(
    "proxies", ["proxy.example", "10.0.0.1:80", "10.0.0.1/24", "10.0.0.1,10.0.0.1", "0.0.0.0/0", "::/0", "*", ",", "-1"]
)
def test_trusted_proxies_are_addresses_and_not_all_of_them(proxies: str) -> None:
    found = refused({"trusted_proxies": proxies})
    assert "trusted_proxies must be a list of addresses or networks of proxies" in found.message


def test_directories_are_directories() -> None:
    Path("file").write_text("")
    assert "data must be a directory" in refused({"data": "file"}).message
    assert "a directory, or a bucket such as s3://name/prefix" in refused({"files": "ftp://host"}).message
    assert "a directory, or a bucket" in refused({"files": "s3://key:secret@bucket"}).message
    assert "an address such as http" in refused({"files_endpoint": "host:80"}).message
    assert "jobs_directory must be a directory that exists" in refused({"jobs_directory": "nowhere"}).message


def test_a_lease_outlasts_two_heartbeats() -> None:
    error = refused({"lease": "9s", "heartbeat_interval": "5s"})
    assert error.message == "lease must be at least 2 heartbeat intervals of 5s; got 9s (flag --lease)"


@pytest.mark.parametrize(
    ("written", "ports"),
    [
        ("true", (8081, 8082, 8083, 8084, 8085)),
        ("false", ()),
        ("9001", (9001,)),
        ("9001, 9002", (9001, 9002)),
    ],
)
def test_further_ports_are_the_five_of_the_contract_or_those_listed(written: str, ports: tuple[int, ...]) -> None:
    assert load({"compat_ports": written}, environ={}).further_ports == ports


def test_further_ports_in_a_file_are_a_switch_or_a_list() -> None:
    write("compat_ports = true\n")
    assert load(environ={}).further_ports == (8081, 8082, 8083, 8084, 8085)
    write("compat_ports = [9001]\n")
    assert load(environ={}).further_ports == (9001,)


def test_the_main_port_is_listened_on_once() -> None:
    found = load({"compat_ports": "true", "port": "8083", "grpc_port": "8093"}, environ={})
    assert found.further_ports == (8081, 8082, 8084, 8085)


@pytest.mark.parametrize("written", ["yes", "8081,8081", "0", "8081;8082", "70000"])
def test_further_ports_that_cannot_be_are_refused(written: str) -> None:
    assert refused({"compat_ports": written}).path == "compat_ports"


def test_grpc_has_a_port_of_its_own_among_further_ones() -> None:
    assert "grpc_port is among compat_ports" in refused({"compat_ports": "true", "grpc_port": "8082"}).message


@pytest.mark.parametrize("written", ["60s", "60000ms", "1m", "60"])
def test_intervals_are_written_as_people_do(written: str) -> None:
    assert load({"scan_interval": written}, environ={}).scan_interval == 60


def test_two_listeners_need_two_ports() -> None:
    assert "grpc_port must differ from port" in refused({"port": "80", "grpc_port": "80"}).message


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("127.0.0.0/8", "127.0.0.0/8"),
        ("10.0.0.7", "10.0.0.7/32"),
        ("127.0.0.1:5432", "127.0.0.1/32:5432"),
        ("::1", "::1/128"),
        ("[::1]:5432", "[::1/128]:5432"),
    ],
)
def test_networks_that_jobs_may_reach_are_read(written: str, kept: str) -> None:
    assert load({"allowed_networks": written}, environ={}).allowed_networks == (kept,)


@pytest.mark.parametrize("written", ["everything", "127.0.0.1/8", "127.0.0.1:0", "127.0.0.1:99999", "[::1]", "a:b:c"])
def test_networks_that_are_none_are_refused(written: str) -> None:
    with pytest.raises(ConfigError, match=r"allowed_networks must be a list of networks"):
        load({"allowed_networks": written}, environ={})


@pytest.mark.parametrize(("written", "is_set"), [("true", True), ("false", False)])
def test_the_servers_own_user_and_root_need_no_token_on_loopback_unless_it_is_required(
    written: str, is_set: bool
) -> None:
    assert load({"require_token": written}, environ={}).free_pass == (set() if is_set else {os.geteuid(), 0})
    assert refused({"require_token": "perhaps"}).path == "require_token"


def test_beyond_loopback_nobody_has_a_free_pass(tmp_path: Path) -> None:
    for name in ("c.pem", "k.pem"):
        (tmp_path / name).touch()
    tls = {"tls_cert": str(tmp_path / "c.pem"), "tls_key": str(tmp_path / "k.pem")}
    assert load({"host": "0.0.0.0", **tls}, environ={}).free_pass == frozenset()


@pytest.mark.parametrize(
    "address", ["tcp://127.0.0.1:2375", "http://docker:2375", "https://docker:2376", "unix://", ""]
)
def test_a_docker_daemon_is_reached_by_its_socket_only(address: str) -> None:
    error = refused({"docker_url": address})
    assert error.path == "docker_url"
    assert "unix:///var/run/docker.sock" in error.message
    assert ("whoever reaches the daemon is root" in error.hint) == ("://" in address and "unix" not in address)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user: run this test as root")
@pytest.mark.parametrize("owned", [".", "horae.toml"])
def test_what_lies_in_somebody_elses_directory_is_not_read_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owned: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "horae.toml").write_text('port = 9999\nscript_roots = ["/"]\n')
    for name in ("jobs", "declarations"):
        (tmp_path / name).mkdir()
    ours = load(environ={})
    assert (ours.port, ours.jobs_directory, ours.warnings) == (9999, tmp_path / "jobs", ())

    os.chown(tmp_path / owned, 65534, 65534)

    found = load(environ={})
    assert (found.port, found.script_roots) == (8080, ())
    assert any("./horae.toml is not read" in text and "65534" in text for text in found.warnings)
    if owned == ".":
        assert (found.jobs_directory, found.declarations, len(found.warnings)) == (None, None, 3)
    named = load({"jobs_directory": "jobs", "declarations": "declarations"}, file="horae.toml", environ={})
    assert (named.port, named.jobs_directory, named.warnings) == (9999, tmp_path / "jobs", ())
