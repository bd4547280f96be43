"""Starts the program of a node on another machine through the system's own ssh, with the user's whole configuration."""

from __future__ import annotations

import os
import random
import shlex
import threading
from pathlib import Path

from lattice.launching.hosts import Address, HostSpec, parse_address
from lattice.launching.transports.child import Child, Command, Ending
from lattice.launching.transports.doors import Doors
from lattice.launching.transports.reasons import SSH_FAILED, TURNED_AWAY, of_ssh, of_ssh_kind

CONNECT_TIMEOUT = 10
ALIVE_INTERVAL = 3
ALIVE_COUNT = 4
TRIES = 6
FAST_EXCHANGE = "^curve25519-sha256,curve25519-sha256@libssh.org"
SLOW_EXCHANGE = "sntrup761"

# The command line wins over the configuration, so only what our stream depends on stands here.
OPTIONS = (
    "BatchMode=yes",  # never ask: nobody would see the question
    "RemoteCommand=none",
    "ClearAllForwardings=yes",  # a LocalForward of the user's own session has the port already
    "ForwardX11=no",
    # A connection that is open already is used, with its one-time password; none is left open after us.
    "ControlMaster=no",
    f"ServerAliveInterval={ALIVE_INTERVAL}",
    f"ServerAliveCountMax={ALIVE_COUNT}",
    "LogLevel=VERBOSE",  # says when a connection is through
)
CHATTER = ("Authenticated to ", "Transferred: sent ", "Bytes per second: sent ", "Pseudo-terminal will not be ")


class SshTransport:
    """One ssh per node; the stream is its standard input and output."""

    def __init__(self, program: tuple[str, ...], config: str | None = None, ssh: str = "ssh") -> None:
        self._program = program
        self._base = (ssh, *(("-F", config) if config is not None else ()))
        self._doors = Doors()
        self._lock = threading.Lock()
        self._usual: str | None = None

    def start(self, host: HostSpec) -> Child:
        """
        Begin to connect.

        :param host: where
        """
        return Child(_Plan(self, host.given, self._program, self._base, self._doors))

    def usual_exchange(self) -> str:
        """Give the key exchanges that this ssh would use if nobody had configured any."""
        with self._lock:
            if self._usual is None:
                self._usual = settings((self._base[0], "-F", "none"), ("localhost",)).get("kexalgorithms", "")
            return self._usual


class _Plan:
    tidies_up = False

    def __init__(
        self, owner: SshTransport, given: str, program: tuple[str, ...], base: tuple[str, ...], doors: Doors
    ) -> None:
        self._owner = owner
        self._given = given
        self._program = program
        self._base = base
        self._doors = doors
        self._address = parse_address(given)
        self._destination = destination(self._address)
        self._tries = 0
        self._door: str | None = None
        self._inside = False
        self._options: list[str] = []

    def command(self, stopped: threading.Event) -> Command | None:
        if not self._tries:
            self._look_up()
        # Spread out, so that those that were turned away together do not come back together.
        elif stopped.wait(random.uniform(0.1, 0.3) * 2 ** min(self._tries, 3)):
            return None
        self._tries += 1
        if self._door is not None:
            if not self._doors.enter(self._door, stopped):
                return None
            self._inside = True
        environ = {**os.environ, "SSH_ASKPASS_REQUIRE": "never"}
        options = [word for option in (*OPTIONS, *self._options) for word in ("-o", option)]
        # exec: no shell stays between sshd and the program.
        remote = "exec " + shlex.join(self._program)
        return Command((*self._base, "-T", *options, *self._destination, remote), environ)

    def line(self, text: str) -> bool:
        if text.startswith("Authenticated to "):
            self._through()
        return not text.startswith(CHATTER)

    def ended(self, ending: Ending) -> bool:
        # Once it is through the program may have read from the stream: then there is no second beginning.
        knocked = self._inside
        self._through()
        if not knocked or self._door is None or self._tries >= TRIES:
            return False
        if ending.status != SSH_FAILED or of_ssh_kind(ending.stderr) != TURNED_AWAY:
            return False
        self._doors.narrow(self._door)
        return True

    def explain(self, ending: Ending) -> str:
        by_hand = (*self._base, *self._destination)
        port = self._address.port
        known_as = self._address.host if port is None else f"[{self._address.host}]:{port}"
        return of_ssh(self._given, shlex.quote(known_as), by_hand, self._program, ending)

    def wake(self) -> None:
        self._doors.wake()

    def _through(self) -> None:
        if self._inside and self._door is not None:
            self._inside = False
            self._doors.leave(self._door)

    def _look_up(self) -> None:
        """Ask ssh what the user configured for this host: what is set there is left alone."""
        found = settings(self._base, self._destination)
        way = found.get("proxyjump", "none").partition(",")[0], found.get("proxycommand", "none")
        direct = f"{found.get('hostname', self._address.host)}:{found.get('port', '')}"
        if not Path(found.get("controlpath", "none")).is_socket():  # else it goes through a connection that is open
            self._door = next((step for step in way if step != "none"), direct)
        if found.get("connecttimeout", "none") in ("none", "0"):
            self._options.append(f"ConnectTimeout={CONNECT_TIMEOUT}")
        exchange = found.get("kexalgorithms", "")
        if exchange.startswith(SLOW_EXCHANGE) and exchange == self._owner.usual_exchange():
            self._options.append(f"KexAlgorithms={FAST_EXCHANGE}")


def destination(address: Address) -> tuple[str, ...]:
    """Give the last words of an ssh command line that lead to a host."""
    port = () if address.port is None else ("-p", str(address.port))
    user = () if address.user is None else ("-l", address.user)
    return (*port, *user, "--", address.host)


def settings(base: tuple[str, ...], target: tuple[str, ...]) -> dict[str, str]:
    """
    Have ssh work out its configuration for a host.

    :param base: the program, with the configuration to use
    :param target: see :func:`destination`
    :return: the last value of each setting, by its name in lower case; nothing if it fails, as the connection then will
    """
    import subprocess  # slow to import, and only needed here

    try:
        said = subprocess.run(
            [*base, "-T", "-G", *target],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=CONNECT_TIMEOUT,
            check=False,
        ).stdout.decode(errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return {}
    return dict(line.split(" ", 1) for line in said.splitlines() if " " in line)


def make(program: tuple[str, ...], ssh_config_file: str | Path | None) -> SshTransport:
    """Make the transport; without a file ssh reads the user's and the system's configuration."""
    return SshTransport(program, None if ssh_config_file is None else str(ssh_config_file))
