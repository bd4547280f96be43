from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lattice.errors import UsageError
from lattice.options.option import Option
from lattice.options.parsing import RUN, TORCHRUN, HelpAsked, VersionAsked, parse
from lattice.options.table import (
    EVENTS,
    FRAMEWORK,
    LOG_DIR,
    MAX_RESTARTS,
    MODULE,
    NNODES,
    NPROC_PER_NODE,
    OPTIONS,
    RDZV_BACKEND,
    RDZV_ID,
    REDIRECTS,
    SHUTDOWN_TIMEOUT,
    STANDALONE,
    TEE,
    option_variables,
)

WRONG = {
    "nnodes": "3:2",
    "framework": "caffe",
    "nproc_per_node": "many",
    "node_rank": "first",
    "role": "two words",
    "local_addr": "a b",
    "job_id": "a/b",
    "job_roles": "learner,file",
    "ends_job": "sometimes",
    "rdzv_backend": "zookeeper",
    "rdzv_endpoint": "host:port",
    "rdzv_client_service_host": "http://host",
    "rdzv_client_service_port": "tcp://10.0.0.1:2379",
    "rdzv_id": "a/b",
    "rdzv_conf": "join_timeout",
    "standalone": "perhaps",
    "master_addr": "a/b",
    "master_port": "x",
    "max_restarts": "-1",
    "shutdown_timeout": "soon",
    "hang_timeout": "-1",
    "notice_grace": "long",
    "checkpoint_timeout": "for ever",
    "notice_signal": "SIGUSR1,SIGUSR2",
    "signals_to_handle": "SIGKILL",
    "redirects": "4",
    "tee": "0:9",
    "local_ranks_filter": "all",
    "preload": "torch numpy",
    "module": "maybe",
    "no_python": "maybe",
}
TAKES_ANYTHING = {"rdzv_password", "log_dir", "events", "entrypoint", "entrypoint_args"}


def wrong_rows() -> list[tuple[Option[object], str]]:
    return [(option, WRONG[option.name]) for option in OPTIONS if option.name in WRONG]


def test_every_option_that_can_be_wrong_is_tried() -> None:
    assert {option.name for option in OPTIONS if not option.notice} == WRONG.keys() | TAKES_ANYTHING


@pytest.mark.parametrize(("option", "text"), wrong_rows())
def test_a_wrong_flag_or_variable_names_flag_variable_value_and_what_is_accepted(
    option: Option[object], text: str
) -> None:
    flag = f"--{option.name}={text}"
    for words, environ in (([flag, "x"], {}), (["x"], {option.variable: text})):
        with pytest.raises(UsageError) as caught:
            parse(words, environ)
        message = str(caught.value)
        assert caught.value.exit_code == 2
        assert "\n" not in message
        for fact in (f"--{option.name}", option.variable, repr(text), option.accepts):
            assert fact in message


@pytest.mark.parametrize("option", OPTIONS)
def test_the_default_of_every_option_is_accepted_by_it(option: Option[object]) -> None:
    if option.name == "rdzv_id":
        return  # there is none: it is made up or required
    for dialect in (RUN, TORCHRUN):
        parse([], {}, dialect)[option]


def test_seed_defaults() -> None:
    defaults = {option.name: option.default for option in OPTIONS}
    assert defaults["framework"] == "generic"
    assert defaults["nproc_per_node"] == "1"
    assert defaults["rdzv_backend"] == "etcd"
    assert defaults["rdzv_client_service_host"] == "lattice-rdzv-client.lattice"
    assert defaults["rdzv_client_service_port"] == "2379"
    assert defaults["rdzv_conf"] == ""


def test_dashes_underscores_equals_and_spaces_are_the_same() -> None:
    for words in (
        ["--nproc_per_node", "4"],
        ["--nproc-per-node", "4"],
        ["--nproc-per_node=4"],
    ):
        assert parse([*words, "x"], {})[NPROC_PER_NODE] == 4


def test_short_flags() -> None:
    for words in (["-r", "3"], ["-r3"], ["-r=3"], ["--redirects", "3"]):
        assert parse([*words, "-t", "0:1", "x"], {})[REDIRECTS] == ((None, 3),)
    assert parse(["-t", "0:1", "x"], {})[TEE] == ((0, 1),)
    parsed = parse(["-m", "--max_restarts", "2", "pkg.mod", "-m", "--nnodes", "9"], {})
    assert parsed[MODULE]
    assert parsed[MAX_RESTARTS] == 2
    assert parsed.entry == ("pkg.mod", "-m", "--nnodes", "9")


def test_the_flag_wins_over_the_variable_and_the_last_flag_over_the_first() -> None:
    assert parse(["--nnodes", "2", "--nnode=3", "x"], {"LATTICE_NNODES": "4"})[NNODES].maximum == 3
    assert parse(["x"], {"LATTICE_NNODES": "4"})[NNODES].maximum == 4


def test_a_wrong_variable_behind_a_right_flag_is_nobodys_business() -> None:
    assert parse(["--nnodes", "2", "x"], {"LATTICE_NNODES": "zero"})[NNODES].maximum == 2


def test_an_empty_variable_is_not_set() -> None:
    parsed = parse(["x"], {"LATTICE_NNODES": "", "LATTICE_RDZV_ID": ""})
    assert parsed[NNODES].maximum == 1
    assert not parsed.has(RDZV_ID)


@pytest.mark.parametrize(("text", "on"), [("1", True), ("true", True), ("0", False), ("no", False)])
def test_switches_by_variable(text: str, on: bool) -> None:
    assert parse(["x"], {"LATTICE_STANDALONE": text})[STANDALONE] is on
    assert parse(["--standalone", "x"], {"LATTICE_STANDALONE": text})[STANDALONE]
    assert not parse(["--standalone=false", "x"], {"LATTICE_STANDALONE": text})[STANDALONE]


def test_torchruns_variables_are_read_under_torchrun_only_and_after_ours() -> None:
    environ = {"PET_NNODES": "2", "PET_STANDALONE": "1", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "7"}
    assert parse(["x"], environ)[NNODES].maximum == 1
    parsed = parse(["x"], environ, TORCHRUN)
    assert parsed[NNODES].maximum == 2
    assert parsed[STANDALONE]
    assert parsed[SHUTDOWN_TIMEOUT] == 7
    assert parse(["x"], {**environ, "LATTICE_NNODES": "3"}, TORCHRUN)[NNODES].maximum == 3
    with pytest.raises(UsageError, match=r"--nnodes \(LATTICE_NNODES\) is 'x', given as PET_NNODES; accepted: N or"):
        parse(["x"], {"PET_NNODES": "x"}, TORCHRUN)


def test_torchruns_defaults_hold_under_torchrun() -> None:
    assert parse(["x"], {}, TORCHRUN)[FRAMEWORK] == "pytorch"
    assert parse(["x"], {}, TORCHRUN)[RDZV_BACKEND] == "static"
    assert parse(["--framework", "jax", "x"], {}, TORCHRUN)[FRAMEWORK] == "jax"


def test_variables_that_kubernetes_adds_for_a_service_of_our_name_are_no_options() -> None:
    kubernetes = {
        "LATTICE_RDZV_CLIENT_PORT": "tcp://10.0.0.1:2379",
        "LATTICE_RDZV_CLIENT_PORT_2379_TCP": "tcp://10.0.0.1:2379",
        "LATTICE_RDZV_CLIENT_PORT_2379_TCP_ADDR": "10.0.0.1",
        "LATTICE_RDZV_CLIENT_SERVICE_HOST": "10.0.0.1",
        "LATTICE_RDZV_CLIENT_SERVICE_PORT": "2379",
    }
    assert set(parse(["x"], kubernetes).given) == {"rdzv_client_service_host", "rdzv_client_service_port"}


@pytest.mark.parametrize(
    ("word", "suggested"),
    [
        ("--nproc", "--nproc_per_node"),
        ("--n-nodes", "--nnodes"),
        ("--rdzv_endpoints=a", "--rdzv_endpoint"),
        ("--max-restart", "--max_restarts"),
        ("-nnodes", "--nnodes"),
    ],
)
def test_an_unknown_option_is_refused_with_the_nearest_names(word: str, suggested: str) -> None:
    with pytest.raises(UsageError, match="unknown option") as caught:
        parse([word, "2", "x"], {})
    assert suggested in str(caught.value)
    assert word.partition("=")[0] in str(caught.value)


def test_an_unknown_option_near_nothing() -> None:
    with pytest.raises(UsageError, match=r"unknown option -x \(lattice run --help lists all"):
        parse(["-x", "train.py"], {})


@pytest.mark.parametrize("words", [["--rdzv_id"], ["--rdzv_id", "--nnodes", "2"], ["--rdzv_id", "--", "x"], ["-r"]])
def test_a_forgotten_value_does_not_swallow_the_next_option(words: list[str]) -> None:
    with pytest.raises(UsageError, match="needs a value"):
        parse(words, {})


def test_values_that_look_like_options() -> None:
    assert parse(["--events", "-", "x"], {})[EVENTS] == "-"
    assert parse(["--log_dir=--odd", "x"], {})[LOG_DIR] == "--odd"
    with pytest.raises(UsageError, match="'-1'; accepted: a number from 0"):
        parse(["--max_restarts", "-1", "x"], {})


def test_a_password_is_never_shown() -> None:
    with pytest.raises(UsageError) as caught:
        parse(["--rdzv_conf", "password=hunter2,user", "x"], {})
    assert "hunter2" not in str(caught.value)
    assert "password=***,user" in str(caught.value)


def test_help_and_version_only_before_the_entry_point() -> None:
    for words in (["--help"], ["-h"], ["--nnodes", "2", "-h", "x"]):
        with pytest.raises(HelpAsked):
            parse(words, {})
    with pytest.raises(VersionAsked):
        parse(["--version"], {})
    assert parse(["x", "--help", "-h", "--version"], {}).entry == ("x", "--help", "-h", "--version")


WORDS = st.one_of(
    st.text(),
    st.sampled_from(
        ["--", "-", "", "--nnodes", "--nnodes=3", "-m", "--help", "two words", "line\nbreak", "'q\"", "$x", "*"]
    ),
)


@given(st.lists(WORDS, max_size=8), st.booleans(), st.booleans())
def test_whatever_follows_the_entry_point_is_untouched(arguments: list[str], separator: bool, options: bool) -> None:
    before = ["--nnodes", "2:3", "--nproc-per-node=2"] if options else []
    parsed = parse([*before, *(["--"] if separator else []), "train.py", *arguments], {})
    assert parsed.entry == ("train.py", *arguments)
    assert parsed[NNODES].maximum == (3 if options else 1)


@given(st.lists(WORDS, min_size=1, max_size=5))
def test_after_a_separator_the_next_word_is_the_entry_point_whatever_it_is(words: list[str]) -> None:
    assert parse(["--", *words], {}).entry == tuple(words)


def test_option_variables() -> None:
    names = option_variables()
    assert {"LATTICE_NNODES", "LATTICE_RDZV_PASSWORD", "LATTICE_ENTRYPOINT", "LATTICE_ENTRYPOINT_ARGS"} <= names
    assert {"PET_NNODES", "PET_RDZV_BACKEND", "PET_MODULE", "LATTICE_EVENTS"} <= names
    assert "PET_FRAMEWORK" not in names
    workers = {"RUN_ID", "ROUND", "RESTART_COUNT", "RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "WORKER_ROLE"}
    assert not names & {f"LATTICE_{name}" for name in workers}
