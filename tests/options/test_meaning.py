from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from lattice.core.spec import LogSpec, NodeRange, Policy, StoreSpec
from lattice.errors import UsageError
from lattice.options.facts import Machine, check_platform
from lattice.options.table import option_variables
from tests.options.machines import Stub, spec


def refused(*words: str, machine: Stub | None = None) -> str:
    with pytest.raises(UsageError) as caught:
        spec(*words, machine=machine)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_the_simple_case_needs_nothing() -> None:
    found = spec("sh", "-c", "true")
    assert found.store == StoreSpec("memory")
    assert found.run_id == "made-up"
    assert found.policy == Policy(NodeRange(1, 1))
    assert (found.workers, found.framework, found.role, found.node_rank) == (1, "generic", "default", None)
    assert found.logs == LogSpec()
    assert found.signals == (15, 2, 1, 3)
    assert found.shutdown_timeout == 30
    assert found.notices == ("run id made-up, made up; --rdzv_id (LATTICE_RDZV_ID) sets it",)
    assert found.strip == option_variables()


def test_a_run_id_that_is_given_is_used_without_a_word() -> None:
    found = spec("--nnodes=1:1", "--rdzv_id", "seven", "sh")
    assert (found.run_id, found.notices, found.store.backend) == ("seven", (), "memory")


def test_one_node_with_an_endpoint_uses_etcd_as_in_seed_001(tmp_path: Path) -> None:
    app = tmp_path / "your_app.py"
    app.touch()
    found = spec(
        "--nnode=1", "--nproc_per_node=2", "--rdzv_endpoint=etcd-server", str(app), LATTICE_FRAMEWORK="pytorch"
    )
    assert found.store == StoreSpec("etcd", (("etcd-server", 2379),))
    assert (found.run_id, found.framework, found.workers) == ("made-up", "pytorch", 2)


@pytest.mark.parametrize(
    "variables",
    [
        {"LATTICE_RDZV_CLIENT_SERVICE_HOST": "localhost"},
        {"LATTICE_RDZV_CLIENT_SERVICE_HOST": "localhost", "LATTICE_RDZV_CLIENT_SERVICE_PORT": "2379"},
        {"LATTICE_RDZV_ENDPOINT": "localhost", "LATTICE_RDZV_CLIENT_SERVICE_HOST": "elsewhere"},
    ],
)
def test_one_node_with_a_host_uses_etcd(variables: dict[str, str]) -> None:
    assert spec("sh", variables=variables).store.endpoints == (("localhost", 2379),)


def test_the_variables_of_seed_000() -> None:
    found = spec(
        "sh",
        LATTICE_NNODES="1:8",
        LATTICE_FRAMEWORK="pytorch",
        LATTICE_NPROC_PER_NODE="1",
        LATTICE_RDZV_CLIENT_SERVICE_HOST="localhost",
        LATTICE_RDZV_CLIENT_SERVICE_PORT="2379",
        LATTICE_RDZV_BACKEND="etcd",
        LATTICE_RDZV_ID="test-id",
    )
    assert found.store == StoreSpec("etcd", (("localhost", 2379),))
    assert (found.run_id, found.policy.nodes, found.notices) == ("test-id", NodeRange(1, 8), ())


def test_more_nodes_use_the_etcd_of_the_seed_by_default() -> None:
    found = spec("--nnodes", "2", "--rdzv_id", "a", "sh")
    assert found.store == StoreSpec("etcd", (("lattice-rdzv-client.lattice", 2379),))


def test_an_etcd_cluster() -> None:
    found = spec("--nnodes", "2", "--rdzv_id", "a", "--rdzv_endpoint", "a,b:1,[::1]:2", "--rdzv_backend=etcd-v2", "sh")
    assert found.store == StoreSpec("etcd", (("a", 2379), ("b", 1), ("::1", 2)))


def test_more_nodes_need_a_run_id() -> None:
    message = refused("--nnodes", "1:2", "sh")
    for fact in ("--rdzv_id", "LATTICE_RDZV_ID", "--nnodes", "LATTICE_NNODES", "1:2"):
        assert fact in message


def test_a_node_rank_without_nnodes_asks_for_it() -> None:
    message = refused("--node_rank", "1", "sh")
    for fact in ("--node_rank", "LATTICE_NODE_RANK", "--nnodes", "LATTICE_NNODES"):
        assert fact in message


def test_a_node_rank_beyond_the_maximum_is_a_spare() -> None:
    found = spec("--nnodes", "1:2", "--node_rank", "5", "--rdzv_id", "a", "--rdzv_endpoint", "a", "sh")
    assert found.node_rank is None
    assert "--node_rank 5" in found.notices[0]


def test_standalone() -> None:
    found = spec("--standalone", "--rdzv_endpoint", "a:1", "--rdzv_backend", "c10d", "sh")
    assert found.store.backend == "memory"
    assert "--rdzv_backend, --rdzv_endpoint" in found.notices[-1]
    assert "LATTICE_STANDALONE" in refused("--standalone", "--nnodes", "2", "sh")


def test_memory_is_for_one_node() -> None:
    assert spec("--rdzv_backend", "memory", "--rdzv_endpoint", "a", "sh").store.backend == "memory"
    message = refused("--rdzv_backend", "memory", "--nnodes", "2", "--rdzv_id", "a", "sh")
    assert "LATTICE_RDZV_BACKEND" in message


TWO = ("--nnodes", "2", "--rdzv_id", "a")
EMBEDDED = (*TWO, "--rdzv_backend", "embedded")


@pytest.mark.parametrize(
    ("words", "serve"),
    [
        (("--rdzv_endpoint", "ours"), None),
        (("--rdzv_endpoint", "theirs"), False),
        (("--rdzv_endpoint", "localhost"), None),
        (("--rdzv_endpoint", "[::1]"), None),
        (("--rdzv_endpoint", "127.0.0.7"), None),
        (("--rdzv_endpoint", "theirs", "--node_rank", "0"), True),
        (("--rdzv_endpoint", "ours", "--node_rank", "1"), False),
        (("--rdzv_endpoint", "theirs", "--rdzv_conf", "is_host=true"), True),
        (("--rdzv_endpoint", "ours", "--rdzv_conf", "is_host=0"), False),
        (("--rdzv_endpoint", "ours", "--rdzv_conf", "is_host=0", "--node_rank", "0"), False),
        (("--rdzv_endpoint", "theirs", "--rdzv_conf", "is_host=1", "--node_rank", "1"), True),
        (("--master_addr", "ours"), None),
    ],
)
def test_who_serves_an_embedded_store(words: tuple[str, ...], serve: bool | None) -> None:
    found = spec(*EMBEDDED, *words, "sh", machine=Stub(hosts=["ours"]))
    assert found.store.serve is serve
    assert found.store.endpoints[0][1] == 29500


def test_the_secret_of_an_embedded_store() -> None:
    here = spec(*EMBEDDED, "--rdzv_endpoint", "localhost", "sh")
    assert here.notices == ()
    far = spec(*EMBEDDED, "--rdzv_endpoint", "node0", "sh")
    assert "WARNING" in far.notices[0]
    assert far.store.password == ""
    safe = spec(*EMBEDDED, "--rdzv_endpoint", "node0", "sh", LATTICE_RDZV_PASSWORD="secret")
    assert (safe.store.password, safe.notices) == ("secret", ())
    assert "secret" not in repr(safe)


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        ((), ("--rdzv_endpoint", "LATTICE_RDZV_ENDPOINT")),
        (("--rdzv_endpoint", "a,b"), ("2 addresses",)),
        (("--rdzv_endpoint", "a:0"), ("port 0", "LATTICE_RDZV_ENDPOINT")),
    ],
)
def test_an_embedded_store_has_one_known_address(words: tuple[str, ...], facts: tuple[str, ...]) -> None:
    message = refused(*EMBEDDED, *words, "sh")
    for fact in facts:
        assert fact in message


def test_embedded_needs_a_run_id() -> None:
    assert "LATTICE_RDZV_ID" in refused("--nnodes=2", "--rdzv_backend=embedded", "--rdzv_endpoint=a", "sh")


def test_workers_are_counted_by_the_machine() -> None:
    machine = Stub(devices={"gpu": 8, "cpu": 2, "auto": 3})
    for asked, workers in (("gpu", 8), ("cpu", 2), ("auto", 3), ("5", 5)):
        assert spec("--nproc_per_node", asked, "sh", machine=machine).workers == workers
    message = refused("--nproc_per_node", "gpu", "sh", machine=Stub(devices={"gpu": 0}))
    assert "--nproc_per_node (LATTICE_NPROC_PER_NODE) is 'gpu'" in message


def test_output_options(tmp_path: Path) -> None:
    found = spec(
        *("--log_dir", str(tmp_path), "-r", "3", "-t", "0:1", "--local_ranks_filter", "0,11", "--events", "-", "sh"),
    )
    assert found.logs == LogSpec(str(tmp_path), ((None, 3),), ((0, 1),), frozenset({0, 11}), "-")
    file = tmp_path / "file"
    file.touch()
    assert "LATTICE_LOG_DIR" in refused("--log_dir", str(file), "sh")


def test_the_rest_of_the_options() -> None:
    words = ["--role", "trainer", "--local_addr", "10.0.0.1", "--max_restarts", "3", "--shutdown_timeout", "2.5"]
    found = spec(*words, "--signals_to_handle", "SIGTERM,SIGUSR2", "sh")
    assert (found.role, found.local_addr, found.shutdown_timeout) == ("trainer", "10.0.0.1", 2.5)
    assert (found.policy.max_restarts, found.signals) == (3, (15, 12))


# rdzv_conf


def test_time_limits_of_rdzv_conf() -> None:
    words = "join_timeout=10,last_call=0.5,lease_ttl=3,store_grace=0,connect_timeout=1,grow_interval=2,outcome_ttl=9"
    found = spec(*TWO, "--rdzv_endpoint", "a", "--rdzv_conf", f"{words},request_timeout=7", "sh")
    assert found.policy == Policy(NodeRange(2, 2), 0, 10, 0.5, 3, 0, 1, 2, 9)
    assert found.store.request_timeout == 7


def test_torchruns_names_of_time_limits() -> None:
    found = spec(*TWO, "--rdzv_endpoint", "a", "--rdzv_conf", "last_call_timeout=9,timeout=8,read_timeout=3", "sh")
    assert (found.policy.last_call, found.policy.join_timeout) == (9, 8)
    assert "read_timeout in rdzv_conf" in found.notices[0]


def test_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {name: tmp_path / name for name in ("cacert", "cert", "key")}
    for file in files.values():
        file.touch()
    conf = ",".join(f"{name}={file}" for name, file in files.items())
    store = spec(*TWO, "--rdzv_conf", f"{conf},user=root", "sh", LATTICE_RDZV_PASSWORD="secret").store
    assert (store.user, store.password) == ("root", "secret")
    assert (store.cacert, store.cert, store.key) == tuple(str(file) for file in files.values())
    aliases = f"ca_cert={files['cacert']},ssl_cert={files['cert']},ssl_cert_key={files['key']}"
    assert spec(*TWO, "--rdzv_conf", aliases, "sh").store.key == str(files["key"])
    bundle = tmp_path / "bundle"
    bundle.write_text("")
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    assert spec(*TWO, "--rdzv_conf", "protocol=https", "sh").store.cacert == str(bundle)
    assert not spec(*TWO, "--rdzv_conf", "user=root,password=x", "sh").store.cacert


def test_certificates_of_an_embedded_store(tmp_path: Path) -> None:
    file = tmp_path / "x.pem"
    file.touch()
    words = (*EMBEDDED, "--rdzv_endpoint", "a", "--rdzv_conf")
    member = spec(*words, f"cacert={file}", "--node_rank=1", "sh").store
    assert (member.cacert, member.cert) == (str(file), "")
    first = spec(*words, f"cacert={file},cert={file},key={file}", "--node_rank=0", "sh").store
    assert (first.serve, first.cert, first.key) == (True, str(file), str(file))
    assert "give cert and key too" in refused(*words, f"cacert={file}", "--node_rank=0", "sh")
    assert "cacert is not" in refused(*words, f"cert={file},key={file}", "--node_rank=0", "sh")


@pytest.mark.parametrize(
    ("conf", "facts"),
    [
        ("joint_timeout=3", ("'joint_timeout'", "join_timeout", "last_call", "cacert")),
        ("lease_ttl=0.5", ("lease_ttl is '0.5'", "whole seconds from 1")),
        ("lease_ttl=0", ("lease_ttl is '0'", "whole seconds from 1")),
        ("last_call_timeout=-1", ("last_call_timeout is '-1'", "seconds from 0")),
        ("join_timeout=0", ("join_timeout is '0'",)),
        ("store_grace=inf", ("store_grace is 'inf'",)),
        ("protocol=gopher", ("http or https",)),
        ("user=root", ("LATTICE_RDZV_PASSWORD",)),
        ("password=x", ("user",)),
        ("cert=/nowhere", ("cert and key",)),
        ("cacert=/nowhere", ("cacert is '/nowhere'",)),
    ],
)
def test_a_wrong_rdzv_conf(conf: str, facts: tuple[str, ...]) -> None:
    message = refused(*TWO, "--rdzv_endpoint", "a", "--rdzv_conf", conf, "sh")
    for fact in (*facts, "LATTICE_RDZV_"):
        assert fact in message


def test_etcd_has_no_port_zero() -> None:
    assert "port 0" in refused(*TWO, "--rdzv_endpoint", "a:0", "sh")


# the machine


def test_elsewhere_than_on_a_new_linux() -> None:
    for system, release in (("Darwin", "23.1.0"), ("Linux", "4.18.0-553.el8"), ("Linux", "5.3")):
        with pytest.raises(UsageError, match=r"Linux 5\.4 or newer"):
            check_platform(system, release)
    for release in ("5.4", "5.4.0-1-amd64", "5.10-rc1", "6.1.0", "10.0", "unheard.of"):
        check_platform("Linux", release)


def test_which_hosts_are_this_machine() -> None:
    machine = Machine({})
    assert machine.owns("127.0.0.1")
    assert machine.owns(socket.gethostname())
    assert not machine.owns("198.51.100.7")
    assert not machine.owns("no-such-host.invalid")


def test_made_up_names_can_be_read_and_differ() -> None:
    names = {Machine({}).made_up_name() for _ in range(50)}
    assert len(names) == 50
    for name in names:
        assert spec("--rdzv_id", name, "sh").run_id == name


def test_files_in_place_of_etcds_addresses_and_password(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("secret\n")
    words = ("--nnodes", "2", "--rdzv_id", "a", "--rdzv_endpoint", "@/run/etcd")
    conf = f"user=root,password_file={password},server_name=etcd.of.a.run"
    store = spec(*words, "--rdzv_conf", conf, "sh").store
    assert (store.endpoints, store.endpoints_file, store.server_name) == ((), "/run/etcd", "etcd.of.a.run")
    assert (store.password, store.password_file) == ("secret", str(password))
    assert "--rdzv_endpoint" in refused(*words, "--rdzv_backend", "embedded", "sh")
    assert "password_file is '/nowhere'" in refused(*words, "--rdzv_conf", "user=root,password_file=/nowhere", "sh")
    assert "one of them" in refused(*words, "--rdzv_conf", f"{conf},password=x", "sh")
    assert "accepted" in refused(*words[:-1], "@", "sh")


LONG = "a" * 300


@pytest.mark.parametrize("words", [(f"{LONG}.py",), (f"./{LONG}",), ("--log_dir", f"/tmp/{LONG}", "true")])
def test_a_name_that_no_file_can_have_is_an_error_of_the_user(words: tuple[str, ...]) -> None:
    assert "File name too long" in refused(*words)


def test_a_module_that_is_not_there_is_no_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "__main__.py").touch()
    monkeypatch.chdir(tmp_path)
    own = Stub()
    own.interpreter = sys.executable
    assert refused("-m", "nowhere.train", machine=own) == (
        f"entry point: there is no module 'nowhere.train' in {tmp_path} or installed"
    )
    for module in ("there", "json.tool"):
        assert spec("-m", module, machine=own).command.argv[-1] == module
