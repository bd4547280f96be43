"""Which of the caller's variables go along to agents and workers, and what a file of shell code adds to them there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from lattice.errors import UsageError

PAYLOAD = "LATTICE_LAUNCH_PAYLOAD"
REMAINS = "LATTICE_LAUNCH_REMAINS"
RECORDS = "LATTICE_LAUNCH_RECORDS"
ROOM = "LATTICE_LAUNCH_ROOM"
"""the most bytes of a result that the launcher takes; nothing if it sees the memory of this host"""
HOST = "LATTICE_LAUNCH_HOST"
"""how the caller calls this host"""
PROJECT = "LATTICE_LAUNCH_PROJECT"
"""where the caller's project is on this host, if it was sent there"""
OF_A_LAUNCH = frozenset((HOST, PAYLOAD, PROJECT, RECORDS, REMAINS, ROOM))
"""what an agent tells each worker of a launch"""
DEFAULT_PATTERNS = (
    "PATH", "LD_LIBRARY*", "LIBRARY_PATH", "LANG", "LC_*", "TZ", "PYTHON*", "VIRTUAL_ENV*", "CONDA_*",
    "TORCH*", "PYTORCH*", "TRITON_*", "CUDA*", "NVIDIA_*", "CUDNN*", "CUBLAS*", "HIP_*", "ROCR_*", "HSA_*",
    "NCCL*", "RCCL*", "GLOO*", "UCC_*", "UCX_*", "FI_*", "OMPI_MCA_*",
    "HF_*", "HUGGINGFACE_*", "TRANSFORMERS_*", "TOKENIZERS_*", "ACCELERATE_*", "DIFFUSERS_*",
    "JAX_*", "XLA_*", "TF_*", "OMP_*", "GOMP_*", "KMP_*", "MKL_*", "OPENBLAS_*", "NUMEXPR_*", "BLIS_*", "DNNL_*",
)  # fmt: skip
"""patterns of the variables that are copied unless the caller gives others"""
OF_ONE_WORKER = ("TORCHELASTIC_*", "TF_CONFIG")
"""what the defaults match and must not: variables that tell a worker who it is, when it launches something itself"""
OF_BASH = ("_", "SHLVL", "PWD", "OLDPWD")
READ_BY_BASH = ("BASH_ENV", "ENV", "POSIXLY_CORRECT", "SHELLOPTS", "BASHOPTS")
"""variables that would make bash do something else"""
OF_LOGIN = ("HOME", "USER", "LOGNAME", "SHELL", "HOSTNAME", "TERM", "TMPDIR", "XDG_RUNTIME_DIR", "SLURM*")
"""what a host gives its processes by itself"""
LONGEST = 60.0


def select(
    environ: Mapping[str, str], default: Iterable[str] = DEFAULT_PATTERNS, extra: Iterable[str] = ()
) -> dict[str, str]:
    """
    Pick the variables that go along.

    :param environ: the caller's
    :param default: patterns as :mod:`fnmatch` knows them; variables of one worker only if they are named
    :param extra: more of them, which are obeyed as they are
    """
    default, extra = tuple(default), tuple(extra)
    for given in (default, extra):
        if any(not isinstance(pattern, str) for pattern in given):
            raise UsageError(f"patterns of variables must be strings, not {given!r}: name them, as in ('HF_*', 'TZ').")

    def goes(name: str) -> bool:
        if name in default or any(fnmatchcase(name, pattern) for pattern in extra):
            return True
        if any(fnmatchcase(name, pattern) for pattern in OF_ONE_WORKER):
            return False
        return any(fnmatchcase(name, pattern) for pattern in default)

    return {name: value for name, value in environ.items() if goes(name)}


def unasked(inherited: Iterable[str], environ: Mapping[str, str]) -> set[str]:
    """
    Name what an agent on the caller's own machine has only because it was started by the caller.

    Another host's has nothing of it, and a function must not run here that fails there; what goes along is added later.

    :param inherited: what the caller had when it started the agent
    :param environ: what it has now
    """
    return {
        name for name in inherited if name not in environ or not any(fnmatchcase(name, pattern) for pattern in OF_LOGIN)
    }


def source_file(base: Mapping[str, str], path: str, timeout: float = LONGEST) -> tuple[dict[str, str], str]:
    """
    Let bash source a file, and see which variables there are afterwards, exported or not.

    :param base: the variables before
    :param path: of the file
    :param timeout: seconds that it may take
    :return: the variables after, and what it wrote
    :raises UsageError: it cannot be read, is no shell code, or ends the shell
    """
    return _source(base, os.path.abspath(os.path.expanduser(path)), path, timeout)  # noqa: PTH100, PTH111


def source_text(
    base: Mapping[str, str], text: str, name: str = "env_file", timeout: float = LONGEST
) -> tuple[dict[str, str], str]:
    """
    Let bash source the text of a file that is on another host.

    :param base: the variables before
    :param text: of the file
    :param name: how errors call it
    :param timeout: seconds that it may take
    :return: the variables after, and what it wrote
    :raises UsageError: it is no shell code, or ends the shell
    """
    descriptor = os.memfd_create("env_file")
    try:
        os.write(descriptor, text.encode(errors="surrogateescape"))
        return _source(base, f"/proc/{os.getpid()}/fd/{descriptor}", name, timeout)
    finally:
        os.close(descriptor)


def _source(base: Mapping[str, str], path: str, name: str, timeout: float) -> tuple[dict[str, str], str]:
    import shlex
    import shutil
    import subprocess

    search = base.get("PATH", os.defpath)
    bash = shutil.which("bash", path=search) or shutil.which("bash", path=os.defpath)
    env = shutil.which("env", path=search) or shutil.which("env", path=os.defpath)
    if bash is None or env is None:
        raise UsageError(f"env_file {name} is sourced by bash, which is not on the PATH here ({search}).")
    environ = {key: value for key, value in base.items() if key not in READ_BY_BASH}
    if not os.access(path, os.R_OK):
        raise UsageError(f"env_file {name} cannot be read on this host: is it there, and may this user read it?")
    # Written to a file of its own: what the sourced code prints must not be taken for variables.
    after = os.memfd_create("variables")
    said = os.memfd_create("said")

    def shell(*words: str) -> int:
        return subprocess.run(
            [bash, "--noprofile", "--norc", *words],
            env=environ, stdin=subprocess.DEVNULL, stdout=said, stderr=said, timeout=timeout, check=False,
        ).returncode  # fmt: skip

    try:
        status = shell("-n", path)
        if status == 0:
            # No variables or parameters of ours, which the file could see or change, and no function, in which its
            # declarations would be local.
            ending = f"{shlex.quote(env)} -0 >/proc/{os.getpid()}/fd/{after}"
            status = shell("-c", f"set -a; . {shlex.quote(path)}; set +a; {ending}")
        output = _content(said).decode(errors="backslashreplace")
        found = _content(after)
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"env_file {name} did not end within {timeout:g}s. It wrote:\n"
            f"{_content(said).decode(errors='backslashreplace') or '(nothing)'}"
        ) from None
    finally:
        os.close(after)
        os.close(said)
    if not found:
        raise UsageError(
            f"env_file {name}: bash ended with code {status} before all of it was sourced, and wrote:\n"
            f"{output.rstrip() or '(nothing)'}"
        )
    return _variables(found, base), output


def _content(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


def _variables(found: bytes, base: Mapping[str, str]) -> dict[str, str]:
    pairs = (entry.partition(b"=") for entry in found.split(b"\0") if entry)
    after = {os.fsdecode(name): os.fsdecode(value) for name, _, value in pairs}
    kept = {name: value for name, value in after.items() if name not in OF_BASH and not name.startswith("BASH_FUNC_")}
    before = {name: value for name, value in base.items() if name in (*OF_BASH, *READ_BY_BASH)}
    return {**before, **kept}
