"""The program on each host of a launch: an agent whose store, payload, results and logs travel over one stream."""

from __future__ import annotations

import gc
import json
import os
import platform
import queue
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import TYPE_CHECKING, Any

from lattice import __version__
from lattice.agent.starting import Starter
from lattice.core.spec import AgentSpec, Command, LogSpec, NodeRange, Policy, StoreSpec
from lattice.environments import environment
from lattice.errors import LatticeError
from lattice.launching.channel import TAKEN, BrokenChannelError, Channel, Kind
from lattice.launching.meeting import reached
from lattice.launching.room import machine, room
from lattice.launching.tunnel import StoreTunnel
from lattice.launching.variables import OF_A_LAUNCH, source_file
from lattice.launching.words import Told, Words
from lattice.process.devices import count
from lattice.process.spawning import Guard

if TYPE_CHECKING:
    from lattice.agent.loop import Loop
    from lattice.launching.calling import Caller
    from lattice.launching.forwarding import Forwarder
    from lattice.launching.sync.intake import Intake

PRELOADED = "cloudpickle,lattice.launching.task,lattice.launching.remains"
"""what every worker needs, whatever its function does"""
BEAT = 1.0
"""seconds between two signs of life"""
SILENCE = 20.0
"""seconds without a sign of the launcher after which there is none; its interpreter may be busy for a while"""
STOPPED = 13.0
"""seconds for which this process may be stopped (SIGSTOP): the launcher has given it up by then, and said why"""


class Node:
    """One host's part in one run after another, until the launcher is gone."""

    def __init__(self, channel: Channel, guard: Guard, folder: str) -> None:
        """
        Begin.

        :param channel: to the launcher
        :param guard: ends all that is started here, and removes the folder
        :param folder: for the logs of workers
        """
        self._channel = channel
        self._guard = guard
        self._heard = time.monotonic()
        self._own = dict(os.environ)
        self._settings: dict[str, Any] = {}
        self._payload = -1
        self._begun: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._stops: queue.SimpleQueue[tuple[str, bool]] = queue.SimpleQueue()
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._loop: Loop | None = None
        self._tunnel = StoreTunnel(channel)
        self._folder = Path(folder)
        self._intake: Intake | None = None
        self._selector = DefaultSelector()
        self._selector.register(self._bell, EVENT_READ, self._stop)
        self._console = Words(channel)
        self._forwarder: Forwarder | None = None
        self._starter: Starter | None = None
        self._starter_for = ""
        self._token = os.urandom(8).hex()
        self._caller: Caller | None = None

    def serve(self) -> None:
        """Run what the launcher asks for; ends with the process, at once when the launcher is gone."""
        self._channel.announce()
        self._channel.tell(
            Kind.HELLO,
            lattice=__version__,
            python=platform.python_version(),
            host=socket.gethostname(),
            pid=os.getpid(),
            machine=machine(),
            room=room(),
            **reached(os.environ),
        )
        threading.Thread(target=self._listen, name="launcher", daemon=True).start()
        threading.Thread(target=self._watch, name="alive", daemon=True).start()
        while True:
            self._begun.get()
            try:
                self._run(self._settings)
            except BrokenChannelError:
                self._leave()
            except LatticeError as error:
                self._console.flush()
                self._channel.tell(Kind.FINISHED, status=error.exit_code, message=str(error), outcome=None)
            except BaseException:
                self._console.flush()  # what was said before it may explain it; the rest is on standard error
                raise

    def _listen(self) -> None:
        try:
            self._hear()
        except BaseException:
            traceback.print_exc()  # the launcher shows it
        self._leave()

    def _hear(self) -> None:
        for kind, body in self._channel.receive():
            self._heard = time.monotonic()
            match kind:
                case Kind.SETTINGS:
                    self._settings = json.loads(body)
                    self._open_payload(self._settings["payload"])
                case Kind.PAYLOAD:
                    os.write(self._payload, body)
                case Kind.BEGIN:
                    self._begun.put(True)
                case Kind.STORE:
                    self._tunnel.received(body)
                case Kind.MANIFEST | Kind.CONTENT:
                    self._take_in(kind, body)
                case Kind.STOP:
                    asked = json.loads(body)
                    self._stops.put((asked["run_id"], asked["leave"]))
                    os.eventfd_write(self._bell, 1)
                case Kind.CALL:
                    self._called(body)
                case Kind.TAKEN:
                    if self._forwarder is not None:
                        self._forwarder.taken(*TAKEN.unpack(body))
                case _:
                    pass

    def _called(self, body: bytes) -> None:
        if self._caller is None:
            from lattice.launching.calling import Caller  # loads ssl: only where it is needed

            self._caller = Caller(self._channel)
        self._caller.received(body)

    def _watch(self) -> None:
        while time.monotonic() < self._heard + SILENCE:
            self._channel.beat()
            time.sleep(BEAT)
        self._leave()

    def _leave(self) -> None:
        """End now: the guard ends the workers and all that they started, and removes our folder."""
        os._exit(1)

    def _stop(self) -> None:
        """Let the agent hear what it was told, in its own thread; what was meant for an earlier run is void."""
        try:
            os.eventfd_read(self._bell)
        except BlockingIOError:
            pass
        while not self._stops.empty():
            run_id, leave = self._stops.get()
            if self._loop is not None and run_id == self._settings["run_id"]:
                if leave:
                    self._loop.signalled(signal.SIGTERM)
                self._loop.hurry()

    def _began(self, loop: Loop) -> None:
        self._loop = loop
        self._stop()

    def _take_in(self, kind: Kind, body: bytes) -> None:
        if self._intake is None:
            from lattice.launching.sync.intake import Intake  # few launches need it

            self._intake = Intake(self._channel, self._folder)
        self._intake.take(kind, body)

    def _open_payload(self, path: str) -> None:
        if self._payload >= 0:
            os.close(self._payload)
        flags = os.O_RDONLY | os.O_CLOEXEC
        self._payload = os.open(path, flags) if path else os.memfd_create("lattice-payload", os.MFD_CLOEXEC)

    def _run(self, settings: dict[str, Any]) -> None:
        if self._intake is not None:
            settings = self._intake.move(settings)
        variables = self._variables(settings)
        os.environ.clear()
        os.environ.update(variables)
        cwd = settings["cwd"] if Path(settings["cwd"]).is_dir() else str(Path.home())
        os.chdir(cwd)
        spec = agent_spec(settings, str(self._folder))
        starter = self._starter_of(spec, cwd, settings["preloaded"])
        starter.warm_up()
        # Loaded only now, while what the workers need is imported already: both at once take no longer than one.
        from lattice.agent.run import Surroundings, supervise
        from lattice.agent.serving import RunStore
        from lattice.launching.forwarding import Forwarder
        from lattice.stores.served import ServedStore

        folder = self._folder / spec.run_id
        if self._forwarder is not None:
            self._forwarder.forget()
        name, room, local = settings["name"], settings["room"], bool(settings["payload"])
        forwarder = Forwarder(self._channel, folder, self._payload, name, settings["project"], room, local=local)
        self._forwarder = forwarder
        store = ServedStore(lambda: self._tunnel.dial(bytes.fromhex(settings["secret"])))
        incarnation = os.urandom(8).hex()
        around = Surroundings(
            self._guard,
            self._console,
            self._selector,
            starter,
            RunStore(store),
            folder,
            incarnation,
            forwarder,
            self._began,
        )
        finish = supervise(spec, around, Told(self._console))
        self._loop = None
        forwarder.close()
        self._console.flush()
        outcome = finish.outcome
        self._channel.tell(
            Kind.FINISHED,
            status=finish.status,
            message=finish.message,
            outcome=json.loads(outcome.encode()) if outcome else None,
        )
        shutil.rmtree(folder, ignore_errors=True)

    def _variables(self, settings: dict[str, Any]) -> dict[str, str]:
        """Put together the environment of a run: nothing of an earlier one is in it."""
        forgotten = frozenset(settings["forgotten"])
        variables = {name: value for name, value in self._own.items() if name not in forgotten}
        variables |= settings["variables"]
        if settings["env_file"]:
            variables, said = source_file(variables, settings["env_file"])
            if said:
                self._console.say(said)
        return variables

    def _starter_of(self, spec: AgentSpec, cwd: str, preloaded: str) -> Starter:
        """Keep what is warm from one run to the next, if it is still what is needed."""
        wanted = json.dumps(
            [cwd, dict(os.environ), spec.workers, spec.framework, spec.preload, preloaded], sort_keys=True
        )
        if self._starter is None or self._starter_for != wanted:
            if self._starter is not None:
                self._starter.close()
            framework = environment(spec.framework)
            self._starter = Starter(
                spec, framework, self._token, cwd, self._guard, self._selector, self._console.say, OF_A_LAUNCH
            )
            self._starter_for = wanted
        return self._starter


def agent_spec(settings: dict[str, Any], folder: str) -> AgentSpec:
    """Give what an agent of a launch shall do."""
    wanted = settings["workers"]
    workers = wanted if isinstance(wanted, int) else count(wanted, os.environ, option="workers_per_host")
    minimum, maximum = settings["nodes"]
    # -P: what lies in the working directory is the user's own, and looked for where the caller would.
    argv = (sys.executable, "-P", "-m", "lattice.launching.worker")
    preload = settings["preload"]
    if preload != "none":
        preload = ",".join(filter(None, (PRELOADED, preload)))
    return AgentSpec(
        run_id=settings["run_id"],
        command=Command(argv, "a function", python=True),
        policy=Policy(
            NodeRange(minimum, maximum),
            max_restarts=settings["max_restarts"],
            join_timeout=settings["timeout"],
            store_grace=SILENCE,
        ),
        workers=workers,
        framework=settings["framework"],
        node_rank=settings["index"],
        local_addr=settings["address"],
        store=StoreSpec(backend="launch"),
        logs=LogSpec(directory=folder, redirects=((None, 3),)),
        preload=preload,
        signals=(signal.SIGTERM, signal.SIGINT),
        shutdown_timeout=settings["shutdown_timeout"],
    )


def main() -> None:
    """Take over standard input and output, and serve."""
    gc.disable()  # nothing of what is loaded now is garbage; the agent switches it on again when it has begun
    read, write = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)  # nothing that prints may come between the messages
    os.close(null)
    folder = tempfile.mkdtemp(prefix="lattice-launch-")
    Node(Channel(read, write), Guard(folder, STOPPED), folder).serve()


if __name__ == "__main__":
    main()
