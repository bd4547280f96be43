"""``sync`` from the outside: a project that the hosts do not see is there all the same, and gone afterwards."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launching.sync.far import environ, far_hosts, write
from tests.waiting import patience

pytestmark = pytest.mark.lab  # hosts with folders of their own: mount namespaces

SCRIPT = """
import json, os, sys
from pathlib import Path
import lattice
import helper
from package.inner import VALUE

HELPER = helper.NAME

def look():
    import lazy
    from package import inner
    here = Path(__file__).parent
    return {
        "values": [helper.NAME, HELPER, VALUE, inner.VALUE, lazy.VALUE],
        "cwd": os.getcwd(),
        "path": sys.path,
        "main": sys.modules["__main__"].__file__,
        "argv": sys.argv,
        "beside": (here / "config.txt").read_text(),
        "relative": Path("../scripts/config.txt").read_text(),
        "found": sorted(str(p.relative_to(here.parent)) for p in here.parent.rglob("*")),
        "variables": [name for name in os.environ if "PROJECT" in name],
    }

if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    result = lattice.launch(look, sync="auto", **settings)
    print(json.dumps(result.all()))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return write(
        tmp_path / "my project",
        {
            "scripts/train.py": SCRIPT,
            "scripts/helper.py": "NAME = 'helper'\n",
            "scripts/lazy.py": "VALUE = 3\n",
            "scripts/config.txt": "lr=1\n",
            "src/package/__init__.py": "",
            "src/package/inner.py": "VALUE = 7\n",
            "work/empty": "",
            ".gitignore": "*.bin\n",
            "data.bin": "much",
            ".env": "TOKEN=1\n",
        },
    )


def test_a_script_of_a_git_work_tree_finds_its_modules_and_files(tmp_path: Path, project: Path) -> None:
    subprocess.run(["git", "init", "-q", str(project)], check=True)
    with far_hosts(tmp_path / "hosts", project, "one", "two") as far:
        settings = far.settings("one", "two", "localhost")
        settings["ssh_config_file"] = str(far.config)
        own = environ(tmp_path)
        own["PYTHONPATH"] = f"{project / 'src'}:{own['PYTHONPATH']}"
        done = subprocess.run(
            [sys.executable, str(project / "scripts" / "train.py"), json.dumps(settings)],
            cwd=project / "work", env=own, capture_output=True, text=True, timeout=patience(120), check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        *far_ones, near = json.loads(done.stdout.splitlines()[-1])
    for one, host in zip(far_ones, ("one", "two"), strict=True):
        folder = Path(one["main"]).parents[1]
        assert folder.name == "my project" and folder.is_relative_to(far.temporary(host))
        assert one["values"] == ["helper", "helper", 7, 7, 3]
        assert one["beside"] == one["relative"] == "lr=1\n"
        assert one["cwd"] == f"{folder}/work"
        assert one["argv"][0] == one["main"] == f"{folder}/scripts/train.py"
        # Where the caller's folders were, there are these, and nothing of the caller's is left.
        assert one["path"][0] == f"{folder}/scripts" and f"{folder}/src" in one["path"]
        assert [entry for entry in one["path"] if entry.startswith(str(project))] == []
        order = [entry.replace(str(folder), str(project)) for entry in one["path"]]
        assert [entry for entry in order if "my project" in entry] == [
            entry for entry in near["path"] if "my project" in entry
        ]
        files = {name for name in one["found"] if "__pycache__" not in name}
        assert {"scripts/train.py", "src/package/inner.py", ".gitignore", "work/empty"} <= files
        assert not {"data.bin", ".env", ".git"} & files
        assert one["variables"] == []
    assert near["cwd"] == f"{project}/work" and near["main"] == str(project / "scripts" / "train.py")
    assert "data.bin" in near["found"], "this host has the folder itself"
