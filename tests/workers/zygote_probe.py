"""Dumps everything that a script can see of its process as JSON, to compare a forked worker with a fresh one."""

# ruff: noqa: PTH109, PTH115, PTH116, PTH123, SIM115
import faulthandler
import gc
import json
import locale
import os
import resource
import signal
import sys
import threading
import time
import warnings


def stream(value: object) -> object:
    if value is None:
        return None
    facts = {
        name: repr(getattr(value, name, "missing"))
        for name in ("name", "mode", "encoding", "errors", "newlines", "line_buffering", "write_through", "closed")
    }
    buffer = value.buffer  # type: ignore[attr-defined]
    facts |= {
        "type": str(type(value)),
        "buffer": str(type(buffer)),
        "raw": str(type(getattr(buffer, "raw", buffer))),
        "buffer name": repr(buffer.name),
        "buffer mode": repr(buffer.mode),
        "closefd": repr(getattr(buffer, "raw", buffer).closefd),
        "seekable": repr(value.seekable()),  # type: ignore[attr-defined]
        "tty": repr(value.isatty()),  # type: ignore[attr-defined]
    }
    return facts


def target(number: int) -> str:
    return os.readlink(f"/proc/self/fd/{number}").split(":")[0]


def depth() -> int:
    frame, count = sys._getframe(1), 0
    while frame.f_back is not None:
        frame, count = frame.f_back, count + 1
    return count


def opened() -> dict[int, str]:
    found = {}
    for number in range(64):
        try:
            found[number] = target(number)
        except OSError:
            pass
    return found


def process_status() -> dict[str, str]:
    kept = (
        "Name",
        "Umask",
        "Uid",
        "Gid",
        "Groups",
        "Threads",
        "SigPnd",
        "SigBlk",
        "SigIgn",
        "SigCgt",
        "CapEff",
        "NoNewPrivs",
        "Seccomp",
    )
    with open("/proc/self/status") as status:
        lines = dict(line.rstrip("\n").split(":\t", 1) for line in status if ":\t" in line)
    return {name: lines.get(name, "") for name in kept}


main = sys.modules["__main__"]
facts = {
    "argv": sys.argv,
    "orig_argv": getattr(sys, "orig_argv", None),
    "path": sys.path,
    "meta path": [str(finder).split(" at 0x")[0] for finder in sys.meta_path],
    "path hooks": len(sys.path_hooks),
    "path cache": sorted(sys.path_importer_cache),
    "executable": [sys.executable, sys.prefix, sys.base_prefix, sys.exec_prefix],
    "flags": str(sys.flags),
    "warnoptions": sys.warnoptions,
    "xoptions": dict(sys._xoptions),
    "warnings": [str(entry) for entry in warnings.filters],
    "modules": sorted(sys.modules),
    "main": {
        name: repr(value) if name not in ("__loader__", "__builtins__") else str(type(value))
        for name, value in vars(main).items()
        if name.startswith("__")
    },
    "main is this": vars(main) is globals(),
    "main spec": repr(main.__spec__),
    "environ": dict(os.environ),
    "cwd": os.getcwd(),
    "opened": opened(),
    "cloexec": [os.get_inheritable(number) for number in range(3)],
    "streams": [stream(getattr(sys, name)) for name in ("stdin", "stdout", "stderr")],
    "same streams": [getattr(sys, name) is getattr(sys, f"__{name}__") for name in ("stdin", "stdout", "stderr")],
    "signals": {number: str(signal.getsignal(number)) for number in signal.valid_signals()},
    "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
    "wakeup": signal.set_wakeup_fd(-1),
    "timers": [signal.getitimer(number) for number in range(3)],
    "threads": [thread.name for thread in threading.enumerate()],
    "main thread": threading.current_thread() is threading.main_thread(),
    "tid": threading.get_native_id() == os.getpid(),
    "limits": {
        name: resource.getrlimit(getattr(resource, name))
        for name in sorted(dir(resource))
        if name.startswith("RLIMIT_")
    },
    "status": process_status(),
    "nice": os.nice(0),
    "affinity": sorted(os.sched_getaffinity(0)),
    "scheduler": os.sched_getscheduler(0),
    "session": [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
    "parent": os.getppid(),
    "cmdline": open("/proc/self/cmdline").read(),
    "comm": open("/proc/self/comm").read(),
    "exe": os.readlink("/proc/self/exe"),
    "oom": open("/proc/self/oom_score_adj").read(),
    "cgroup": open("/proc/self/cgroup").read(),
    "locale": [locale.setlocale(locale.LC_ALL), locale.getpreferredencoding(False), sys.getfilesystemencoding()],
    "faulthandler": faulthandler.is_enabled(),
    "recursion": sys.getrecursionlimit(),
    "switch": sys.getswitchinterval(),
    "gc": [gc.isenabled(), gc.get_threshold(), gc.get_debug(), len(gc.callbacks)],
    "hooks": [
        sys.excepthook is sys.__excepthook__,
        sys.displayhook is sys.__displayhook__,
        sys.breakpointhook is sys.__breakpointhook__,
        sys.gettrace(),
        sys.getprofile(),
        sys.exc_info(),
        hasattr(sys, "last_value"),
        hasattr(sys, "ps1"),
    ],
    "builtins": sorted(vars(__import__("builtins"))),
    "depth": depth(),
    "bytecode": [sys.dont_write_bytecode, sys.pycache_prefix],
    "time zone": time.tzname,
    "dumpable": oct(os.stat("/proc/self/mem").st_mode),
}
print(json.dumps(facts, indent=1, sort_keys=True))
print("to standard error", file=sys.stderr)
