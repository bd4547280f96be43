"""Command lines and job files become jobs, or errors that say what is wrong and where."""

from __future__ import annotations

from pathlib import Path

import pytest

from lattice.core.spec import NodeRange
from lattice.errors import UsageError
from lattice.jobs import jobfile, meaning
from lattice.jobs.job import Code, Job
from lattice.jobs.options import FOLLOW, LOGS, RANK, SUBMIT
from lattice.jobs.orders import Meeting, order, shown
from lattice.options.parsing import parse

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text("")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "main.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def job(*words: str) -> Job:
    parsed = parse(words, {}, SUBMIT)
    file = parsed.given.get("file")
    return meaning.job(parsed, jobfile.read(file.text) if file else None)


@pytest.mark.parametrize(
    ("words", "code", "arguments"),
    [
        (["train.py"], Code("train.py"), ()),
        (["train.py", "--", "--lr", "1"], Code("train.py"), ("--lr", "1")),
        (["train.py", "--lr", "1"], Code("train.py"), ("--lr", "1")),
        (["train.py", "--", "a", "--", "b"], Code("train.py"), ("a", "--", "b")),
        (["project", "main.py", "--", "x"], Code("project", "main.py"), ("x",)),
        (["project", "main.py", "x"], Code("project", "main.py"), ("x",)),
        (["s3://b/train.py", "x"], Code("s3://b/train.py"), ("x",)),
        (["s3://b/code.tar.gz", "main.py", "x"], Code("s3://b/code.tar.gz", "main.py"), ("x",)),
    ],
)
def test_scripts_and_arguments(words: list[str], code: Code, arguments: tuple[str, ...]) -> None:
    found = job("--name", "j", *words)
    assert (found.code, found.arguments) == (code, arguments)


def test_paths_on_the_nodes_are_not_looked_for_here() -> None:
    assert job("--name", "j", "--no_upload", "/there/main.py", "x").code == Code("/there/main.py", "", upload=False)
    assert job("--name", "j", "--no_upload", "/there", "main.py").code == Code("/there", "main.py", upload=False)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train.py"], "--name is missing"),
        (["--name", "Big Job", "train.py"], "a-z, 0-9 and -"),
        (["--name", "j"], "no script"),
        (["--name", "j", "nothing.py"], "there is no 'nothing.py' here"),
        (["--name", "j", "train.py", "extra", "--", "--lr", "1"], "'train.py' is no folder: .* go after --"),
        (["--name", "j", "project"], "is a folder: name the script"),
        (["--name", "j", "project", "other.py"], "there is no 'other.py' in 'project'"),
        (["--name", "j", "--size", "3:2", "train.py"], "--size is '3:2'"),
        (["--name", "j", "--on", "ssh", "train.py"], "--on ssh needs --hosts"),
        (["--name", "j", "--hosts", "a", "train.py"], "--hosts has no meaning with --on local"),
        (["--name", "j", "--on", "mars", "train.py"], "--on is 'mars'"),
        (["--name", "j", "--nnodes", "2", "train.py"], "unknown option --nnodes"),
        (["--name", "j", "--rdzv_conf", "lsat_call=2", "train.py"], "unknown key 'lsat_call'"),
    ],
)
def test_what_cannot_be_meant(words: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        job(*words)


def test_the_size_is_the_number_of_hosts_unless_given() -> None:
    assert job("--name", "j", "--on", "ssh", "--hosts", "a,b", "train.py").size == NodeRange(2, 2)
    assert job("--name", "j", "--on", "ssh", "--hosts", "a,b", "--size", "1:4", "train.py").size == NodeRange(1, 4)


FILE = """\
name: from-file
size: 2:4
framework: pytorch
nproc_per_node: 8
max-restarts: 3
folder: project
script: main.py
args: [--lr, 0.1, yes]
env:
  COLOUR: dark, green
  DEBUG: true
"""


def test_a_job_file_holds_all_of_it(here: Path) -> None:
    (here / "sub").mkdir()
    (here / "sub" / "job.yaml").write_text(FILE.replace("project", "../project"))
    found = job("--file", "sub/job.yaml")
    assert (found.name, found.size, found.code.script) == ("from-file", NodeRange(2, 4), "main.py")
    assert Path(found.code.source).resolve() == here / "project"
    assert found.arguments == ("--lr", "0.1", "yes")
    assert found.environment == (("COLOUR", "dark, green"), ("DEBUG", "true"))
    assert dict(found.run_options) == {"framework": "pytorch", "nproc_per_node": "8", "max_restarts": "3"}
    flags = job("--file", "sub/job.yaml", "--name", "mine", "--size", "1", "--", "other")
    assert (flags.name, flags.size, flags.arguments) == ("mine", NodeRange(1, 1), ("other",))


def test_the_job_file_of_the_docs_is_one(here: Path) -> None:
    (here / "job.yaml").write_text((DOCS / "jobs.md").read_text().split("```yaml\n")[1].split("```")[0])
    found = job("--file", "job.yaml")
    assert (found.name, found.place, found.size) == ("big", "slurm", NodeRange(2, 8))
    assert (found.code.script, found.arguments) == ("train.py", ("--lr", "0.1"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: a\nsiez: 2\n", r"job\.yaml:2: unknown key 'siez'; did you mean size\?"),
        ("name: a\nsize: many\n", r"job\.yaml:2: size is 'many'; accepted: N or MIN:MAX"),
        ("name: a\n\nname: b\n", r"job\.yaml:3: name is given twice; the first is in line 1"),
        ("name: a\nargs: x\n", r"job\.yaml:2: a list is wanted here"),
        ("name: [a\n", r"job\.yaml:2: no YAML"),
        ("- a\n", r"job\.yaml:1: a job file is a list of KEY: VALUE"),
        ('name: a\nenv: {"A=B": x}\n', r"job\.yaml:2: 'A=B' cannot be a variable"),
        ('name: a\nenv: {A: "\\0"}\n', r"job\.yaml:2: 'A' cannot be a variable"),
        ("name: {a: b}\n", r"job\.yaml:1: one word or number is wanted here"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_with_its_line(here: Path, text: str, said: str) -> None:
    (here / "job.yaml").write_text(text)
    with pytest.raises(UsageError, match=said):
        job("--file", "job.yaml", "train.py")


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(UsageError, match="No such file"):
        job("--file", "none.yaml")


def test_orders_are_the_command_line_of_an_agent() -> None:
    made = job(
        "--name", "j", "--size", "1:2", "--max_restarts", "3", "--env", "A=b c", "train.py", "--", "two words", ""
    )
    told = order(made, "j-1", 1, Meeting("10.0.0.1:7", "secret"))
    assert told["argv"] == [
        *("--max_restarts", "3"),
        *("--nnodes", "1:2"),
        *("--node_rank", "1"),
        *("--rdzv_backend", "embedded"),
        *("--rdzv_endpoint", "10.0.0.1:7"),
        *("--rdzv_id", "j-1"),
        *("train.py", "two words", ""),
    ]
    assert told["environment"] == {"A": "b c", "LATTICE_RDZV_PASSWORD": "secret"}
    assert "secret" not in str(shown(told))


def test_the_node_that_serves_has_the_key_and_the_others_know_the_certificate() -> None:
    made = job("--name", "j", "--size", "2", "--rdzv_conf", "last_call=1", "train.py")
    meeting = Meeting("a:7", "secret", "the certificate", "the key")
    first, second = (order(made, "j-1", index, meeting) for index in (0, 1))
    conf = "last_call=1,cacert=../store.crt"
    assert f"{conf},cert=../store.pem,key=../store.pem" in first["argv"] and conf in second["argv"]
    assert first["files"] == {"store.crt": "the certificate", "store.pem": "the key"}
    assert second["files"] == {"store.crt": "the certificate"}
    alone = job("--name", "j", "train.py")
    assert not order(alone, "j-1", 0, meeting)["files"]


def test_a_store_of_the_users_own_is_left_to_the_user() -> None:
    made = job("--name", "j", "--size", "2", "--rdzv_backend", "etcd", "--rdzv_endpoint", "e:2379", "train.py")
    argv = order(made, "j-1", 1, Meeting("10.0.0.1:7", "secret"))["argv"]
    assert "e:2379" in argv and "10.0.0.1:7" not in argv and "--node_rank" not in argv


STORE = """\
name: j
rdzv_backend: etcd
rdzv_endpoint: e:2379
rdzv_conf: last_call=5,password=hush,user=me
"""
OF_ROLES = """\
folder: project
roles:
  a: {script: main.py}
  b: {script: main.py, rdzv_conf: password=other, env: {B: b}}
"""


def test_a_password_is_on_no_command_line(here: Path) -> None:
    (here / "job.yaml").write_text(STORE + "script: train.py\n")
    made = job("--file", "job.yaml")
    assert dict(made.run_options)["rdzv_conf"] == "last_call=5,user=me"
    told = order(made, "j-1", 0, Meeting("", "", "", ""))
    assert "hush" not in str(told["argv"]) and told["environment"] == {"LATTICE_RDZV_PASSWORD": "hush"}
    assert "hush" not in str(shown(told))
    mine = job("--file", "job.yaml", "--env", "LATTICE_RDZV_PASSWORD=mine")
    assert mine.environment == (("LATTICE_RDZV_PASSWORD", "mine"),), "an agent takes that, too"

    (here / "job.yaml").write_text(STORE + OF_ROLES)
    first, second = job("--file", "job.yaml").roles
    assert dict(first.run_options)["rdzv_conf"] == "last_call=5,user=me"
    assert dict(first.environment) == {"LATTICE_RDZV_PASSWORD": "hush"}
    assert "rdzv_conf" not in dict(second.run_options)
    assert dict(second.environment) == {"LATTICE_RDZV_PASSWORD": "other", "B": "b"}


def test_a_job_survives_being_written_down() -> None:
    made = job("--name", "j", "--size", "1:2", "--env", "A=b", "train.py", "--", "x")
    assert Job.load(made.dump()) == made
    assert made.digest() != job("--name", "j", "--size", "1:2", "--env", "A=b", "train.py", "--", "y").digest()


@pytest.mark.parametrize(
    "words", [["tell", "-f", "--rank", "1"], ["-f", "tell", "--rank=1"], ["-f", "--rank", "1", "tell"]]
)
def test_options_about_a_job_come_before_its_name_or_after_it(words: list[str]) -> None:
    parsed = parse(words, {}, LOGS)
    assert parsed.entry == ("tell",) and parsed[RANK] == 1 and parsed[FOLLOW]
    assert parse(["--", "-f"], {}, LOGS).entry == ("-f",)
    with pytest.raises(UsageError, match="did you mean --rank"):
        parse(["tell", "--rnak", "1"], {}, LOGS)
