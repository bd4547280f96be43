"""Finds the caller's project folder, and lists what git would have of it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from lattice.errors import UsageError
from lattice.launching.surroundings import is_installed
from lattice.launching.sync.rules import CACHES, NEVER, Listed, Rule, ignored, parse

OF_ANOTHER_REPOSITORY = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX")
"""variables that a hook of git has, and by which git would look elsewhere"""
OURS = str(Path(__file__).resolve().parents[2])
LONGEST = 60.0
OWN = ".latticeignore"
"""names, by the rules of .gitignore, what is not sent although git has it"""


def project_folder(sync: object) -> Path:
    """
    Find the folder that is to be sent.

    :param sync: as the caller gave it: ``auto``, or a folder
    :raises UsageError: it is none of these
    """
    if not isinstance(sync, str | os.PathLike):
        raise UsageError(f"sync is {sync!r}: give 'auto', a folder, or None.")
    if sync != "auto":
        folder = Path(sync).expanduser().resolve()
        if not os.path.isdir(folder):  # noqa: PTH112 - Path's own question fails where it may not look
            raise UsageError(f"sync is {os.fspath(sync)!r}, which is no folder here: give 'auto', a folder, or None.")
        return folder
    folder = _folder_of_main() or Path.cwd()
    home = Path(os.path.realpath(os.path.expanduser("~")))  # noqa: PTH111 - home may be none
    for above in (folder, *folder.parents):
        if above in (home, Path("/")):
            break  # a home folder under git is nobody's project
        if (above / ".git").exists():
            return above
    if folder == Path("/"):
        raise UsageError("sync is 'auto', and neither the script nor the working directory is in a project: name it.")
    return folder


def list_files(root: Path) -> list[Listed]:
    """
    List what is in a folder and not ignored: by git, or by the same rules where there is none; and by the files that
    are called :data:`OWN`, which hold for what git tracks too.

    :param root: the folder
    """
    listed = _listed(str(root))
    folders = {""}.union(*(_above(one.path) for one in listed))
    rules = {folder: found for folder in folders if (found := _rules(str(root), folder, OWN))}

    @cache
    def left_out(path: str, *, folder: bool) -> bool:
        above = _above(path)
        if above and left_out(above[0].rstrip("/"), folder=True):
            return True
        files = [(base, rules[base]) for base in (*above, "") if base in rules]
        return ignored(files, path, folder=folder)

    return [one for one in listed if not left_out(one.path, folder=False)] if rules else listed


def _folder_of_main() -> Path | None:
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    path = Path(file or "/").resolve()
    if path.is_relative_to(OURS) or path.name == "lattice":
        return Path(sys.path[0]).resolve()  # where the command has found the function
    if path.suffix != ".py" or is_installed(str(path)):
        return None
    package = getattr(getattr(main, "__spec__", None), "name", "").removesuffix(".__main__")
    # A module that was started by its name is found from the folder around its package.
    inner = package.count(".") + path.name.startswith("__main__") * bool(package)
    return path.parents[inner]


def _listed(root: str) -> list[Listed]:
    listed = _by_git(root)
    return listed if listed is not None else list(_by_walking(root, "", ()))


def _above(path: str) -> list[str]:
    """Give the folders around a path, the nearest first, each with a slash at its end; not the root."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:end]) + "/" for end in range(len(parts), 0, -1)]


def _rules(root: str, folder: str, name: str) -> tuple[Rule, ...]:
    """Read the rules of a folder; none if there is no such file."""
    try:
        return parse(Path(root, folder, name).read_text(errors="surrogateescape"))
    except OSError:
        return ()


def _by_git(root: str) -> list[Listed] | None:
    import subprocess  # slow to import, and only needed here

    environ = {name: value for name, value in os.environ.items() if name not in OF_ANOTHER_REPOSITORY}
    command = ["git", "-c", "core.fsmonitor=false", "ls-files", "-z", "-t", "--cached", "--others"]
    try:
        done = subprocess.run(
            [*command, "--exclude-standard"],
            cwd=root, env=environ, stdin=subprocess.DEVNULL, capture_output=True, timeout=LONGEST, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode != 0:
        return None  # no work tree, or one that git does not trust
    found: dict[str, Listed] = {}
    for line in filter(None, os.fsdecode(done.stdout).split("\0")):
        tag, path = line[0], line[2:].rstrip("/")
        if os.path.isdir(f"{root}/{path}") and not os.path.islink(f"{root}/{path}"):  # noqa: PTH112, PTH114
            # A repository in this one; a submodule that was not fetched is empty.
            inner = _listed(f"{root}/{path}") if os.path.exists(f"{root}/{path}/.git") else []  # noqa: PTH110
            found |= {f"{path}/{one.path}": Listed(f"{path}/{one.path}", one.tracked) for one in inner}
        else:
            found[path] = Listed(path, tag != "?")
    return list(found.values())


def _by_walking(root: str, folder: str, files: tuple[tuple[str, tuple[Rule, ...]], ...]) -> Iterator[Listed]:
    files = ((folder, _rules(root, folder, ".gitignore")), *files)
    try:
        entries = sorted(os.scandir(f"{root}/{folder}"), key=lambda entry: entry.name)
    except OSError:
        yield Listed(folder.rstrip("/"), False)  # who reads it will say why not
        return
    for entry in entries:
        path = folder + entry.name
        is_folder = entry.is_dir(follow_symlinks=False)
        if ignored(files, path, folder=is_folder):
            continue
        if not is_folder:
            yield Listed(path, False)
        elif entry.name not in NEVER and entry.name not in CACHES:
            yield from _by_walking(root, f"{path}/", files)
