"""The guard program: starts workers for the agent, and kills all of them when the agent is gone, however it went."""

# ruff: noqa: PTH118, PTH123, PTH208
# Executed as `python -I -S guard.py AGENT_PID STOPPED_AT_MOST FOLDER` with the control socket as descriptor 0, so it
# sees no package and imports little: it must be ready before the first round is. It stays small and single-threaded,
# hence safe to fork. STOPPED_AT_MOST: seconds after which an agent that is stopped (SIGSTOP) counts as gone, 0 for
# never. FOLDER: removed when nobody is left who could use it, unless empty.
#
# Every message is one marshalled tuple behind its length, with descriptors attached to its first byte:
#   ("spawn", argv, environ, cwd, marker, has_stdin) + descriptors  ->  ("started", pid) | ("failed", stage, errno)
#   ("look after", sessions, markers)                               ->  no answer
#   ("forget", sessions)                                            ->  no answer
#   ("leave",)                                                      ->  no answer: nobody is left, exit at once
# Sessions are forgotten once they are empty, because their numbers may then be given to somebody else's processes.
#
# Decision: no cgroup.kill. Most agents may not write to their cgroup, and sessions plus the marker variable find
# everything but a process that both left its session and wiped its environment.

import ctypes
import errno
import marshal
import os
import select
import signal
import socket
import struct
import sys
import time

HEADER = struct.Struct("<Q")
PID = struct.Struct("<i")
FAILURE = struct.Struct("<Bi")
STAGES = ("fork", "attach to the agent", "descriptors", "directory", "program")
PR_SET_PDEATHSIG = 1
KILL_TIMEOUT = 30.0
KILL_INTERVAL = 0.01
LOOK_INTERVAL = 0.5
# A process in the middle of an exec shows no environment for a moment, so one pass that finds nothing proves little.
QUIET_PASSES = 3


class Process:
    """One row of the process table."""

    __slots__ = ("ended", "parent", "pid", "session", "stopped")

    def __init__(self, pid: int, parent: int, session: int, state: bytes) -> None:
        self.pid = pid
        self.parent = parent
        self.session = session
        self.ended = state in (b"Z", b"X")  # only its exit status is left
        self.stopped = state in (b"T", b"t")  # by a signal, or by a debugger


def read_process(pid: int) -> Process | None:
    """Look up one process; None if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as stat:
            line = stat.read(1024)
    except OSError:
        return None
    # The name in parentheses may hold anything, spaces and parentheses included.
    fields = line[line.rfind(b")") + 2 :].split(None, 4)
    return Process(pid, int(fields[1]), int(fields[3]), fields[0]) if len(fields) > 4 else None


def read_processes() -> list[Process]:
    """Look up all processes that can be seen."""
    found = (read_process(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return [process for process in found if process is not None]


def is_marked(pid: int, markers: set[bytes]) -> bool:
    """Tell whether a process was started with one of these ``NAME=value`` entries in its environment."""
    try:
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as environ:
            return not markers.isdisjoint(environ.readall().split(b"\0"))
    except OSError:
        return False


def kill_all(sessions: set[int], markers: set[bytes]) -> None:
    """Kill until no process of the sessions, and none that carries a marker, is found any more."""
    deadline = time.monotonic() + KILL_TIMEOUT
    quiet = 0
    while quiet < QUIET_PASSES and time.monotonic() < deadline:
        killed = [process.pid for process in read_processes() if _kill(process.pid, sessions, markers)]
        quiet = 0 if killed else quiet + 1
        time.sleep(KILL_INTERVAL)


def _kill(pid: int, sessions: set[int], markers: set[bytes]) -> bool:
    """Kill a process if it is one of ours; checked once more behind a pidfd, so that a reused pid is never hit."""
    if pid == os.getpid() or not _is_ours(pid, sessions, markers):
        return False
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _is_ours(pid, sessions, markers):
            return False
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:
        return False
    finally:
        os.close(pidfd)
    return True


def _is_ours(pid: int, sessions: set[int], markers: set[bytes]) -> bool:
    process = read_process(pid)
    if process is None or process.ended:
        return False
    return process.session in sessions or is_marked(pid, markers)


def send(control: socket.socket, message: object, descriptors: tuple[int, ...] = ()) -> None:
    """Send one message."""
    body = marshal.dumps(message)  # type: ignore[arg-type]
    header = HEADER.pack(len(body))
    sent = socket.send_fds(control, [header], list(descriptors)) if descriptors else control.send(header)
    control.sendall(header[sent:] + body)


def receive(control: socket.socket) -> tuple[tuple, list[int]]:  # type: ignore[type-arg]
    """
    Receive one message.

    :return: the message and the descriptors that came with it
    :raises EOFError: the other side is gone
    """
    header, descriptors, _, _ = socket.recv_fds(control, HEADER.size, 3)
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)  # recv_fds() takes no notice of MSG_CMSG_CLOEXEC before Python 3.12
    header += _receive_exactly(control, HEADER.size - len(header))
    (length,) = HEADER.unpack(header)
    return marshal.loads(_receive_exactly(control, length)), list(descriptors)


def _receive_exactly(control: socket.socket, length: int) -> bytes:
    received = bytearray()
    while len(received) < length:
        part = control.recv(min(length - len(received), 1 << 20))
        if not part:
            raise EOFError
        received += part
    return bytes(received)


class Spawner:
    """Starts workers as children of the agent and remembers their sessions."""

    def __init__(self, agent: int) -> None:
        self.agent = agent
        self.sessions: set[int] = set()
        self.markers: set[bytes] = set()
        self._libc = ctypes.CDLL(None, use_errno=True)

    def spawn(
        self, argv: list[bytes], environ: dict[bytes, bytes], cwd: bytes, has_stdin: bool, descriptors: list[int]
    ) -> tuple[str, int] | tuple[str, str, int]:
        """Fork twice and execute; answers when the worker is the agent's child and its program runs."""
        go_read, go_write = os.pipe()
        status_read, status_write = os.pipe()
        try:
            middle = os.fork()
        except OSError as error:
            for descriptor in (go_read, go_write, status_read, status_write):
                os.close(descriptor)
            return "failed", STAGES[0], error.errno or 0
        if middle == 0:
            code = 0
            try:
                if os.fork() == 0:
                    os.close(go_write)
                    self._become_worker(argv, environ, cwd, has_stdin, descriptors, go_read, status_write)
            except OSError as error:
                code = error.errno or 255
            finally:
                os._exit(code)
        os.close(go_read)
        os.close(status_write)
        # Once the middle process is reaped its child has been given to the agent, the nearest subreaper: only then
        # may it go on. If this process dies before, the child reads end-of-file and leaves.
        _, wait_status = os.waitpid(middle, 0)
        try:
            os.write(go_write, b"!")
        except OSError:
            pass
        os.close(go_write)
        with open(status_read, "rb") as pipe:
            status = pipe.read()
        if len(status) < PID.size:
            return "failed", STAGES[0], os.waitstatus_to_exitcode(wait_status)
        (pid,) = PID.unpack_from(status)
        if len(status) >= PID.size + FAILURE.size:
            stage, number = FAILURE.unpack_from(status, PID.size)
            return "failed", STAGES[stage], number
        self.sessions.add(pid)
        return "started", pid

    def _become_worker(
        self,
        argv: list[bytes],
        environ: dict[bytes, bytes],
        cwd: bytes,
        has_stdin: bool,
        descriptors: list[int],
        go: int,
        status: int,
    ) -> None:
        stage = 1
        try:
            os.write(status, PID.pack(os.getpid()))
            if not os.read(go, 1):
                os._exit(1)
            os.setsid()
            self._libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            # Checked after the death signal is set: an agent that died before would never trigger it.
            if os.getppid() != self.agent:
                raise ProcessLookupError(errno.ESRCH, "the agent is not the parent")
            stage = 2
            stdin = descriptors[0] if has_stdin else os.open("/dev/null", os.O_RDONLY)
            for target, source in enumerate((stdin, *descriptors[-2:])):
                os.dup2(source, target)
            # The guard was started with every disposition at its default; these two Python itself ignores.
            for number in (signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            stage = 3
            os.chdir(cwd)
            stage = 4
            _execute(argv, environ)
        except OSError as error:
            os.write(status, FAILURE.pack(stage, error.errno or 0))
        finally:
            os._exit(127)


def _execute(argv: list[bytes], environ: dict[bytes, bytes]) -> None:
    program = argv[0]
    if b"/" in program:
        os.execve(program, argv, environ)
    refused: OSError | None = None
    for folder in environ.get(b"PATH", os.fsencode(os.defpath)).split(b":"):
        try:
            os.execve(os.path.join(folder or b".", program), argv, environ)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            refused = error
    raise refused or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def wait(control: socket.socket, agent: int, stopped_at_most: float) -> bool:
    """
    Wait for a message, or the end, of the agent.

    :param control: readable then
    :param agent: its process
    :param stopped_at_most: seconds; 0 for no limit
    :return: False if the agent was stopped for longer
    """
    since = None
    while not select.select([control], [], [], LOOK_INTERVAL if stopped_at_most else None)[0]:
        process, now = read_process(agent), time.monotonic()
        since = (since or now) if process is not None and process.stopped else None
        if since is not None and now > since + stopped_at_most:
            return False
    return True


def main() -> None:
    """Serve the agent until its end of the control socket closes, or it was stopped for too long."""
    # Blocked for good: no Ctrl-C, hang-up or stray SIGTERM may take the guard away from the workers.
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            try:
                os.close(int(name))
            except OSError:
                pass  # the descriptor of the listing itself
    control = socket.socket(fileno=0)
    agent, stopped_at_most, folder = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    spawner = Spawner(agent)
    try:
        while wait(control, agent, stopped_at_most):
            message, descriptors = receive(control)
            match message:
                case ("spawn", argv, environ, cwd, marker, has_stdin):
                    spawner.markers.add(marker)
                    answer = spawner.spawn(argv, environ, cwd, has_stdin, descriptors)
                    for descriptor in descriptors:
                        os.close(descriptor)
                    send(control, answer)
                case ("look after", sessions, markers):
                    spawner.sessions.update(sessions)
                    spawner.markers.update(markers)
                case ("forget", sessions):
                    spawner.sessions.difference_update(sessions)
                case ("leave",):
                    spawner.sessions.clear()
                    spawner.markers.clear()
                    break
        else:
            os.kill(agent, signal.SIGKILL)  # it is our parent, so the number is its own
    except (EOFError, OSError):
        pass
    finally:
        if spawner.sessions or spawner.markers:
            kill_all(spawner.sessions, spawner.markers)
        if folder:
            import shutil

            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
    os._exit(0)  # the agent may wait for it
