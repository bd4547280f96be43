"""A program in a container, with this process's input and output, and a terminal if there is one."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

PAUSE = 0.2


def attach(session: Any, *, stdin: bool, tty: bool) -> int:
    """
    Pass on what is typed and written, until the program ends.

    :param session: what :meth:`~lattice.jobs.kubernetes.client.Client.execute` gave
    :param stdin: whether it hears this process's input
    :param tty: whether it has a terminal: keys go there one by one
    :return: its exit code
    """
    with _raw() if tty else contextlib.nullcontext():
        if stdin:
            threading.Thread(target=_type, args=(session,), name="input", daemon=True).start()
        while session.is_open():
            session.update(timeout=PAUSE)
            _write(session)
        _write(session)
    code = session.returncode
    session.close()
    return 1 if code is None else int(code)


def _write(session: Any) -> None:
    for peek, read, stream in (
        (session.peek_stdout, session.read_stdout, sys.stdout),
        (session.peek_stderr, session.read_stderr, sys.stderr),
    ):
        if peek():
            stream.write(read())
            stream.flush()


def _type(session: Any) -> None:
    while data := os.read(0, 4096):
        session.write_stdin(data.decode(errors="replace"))


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    import termios
    import tty

    before = termios.tcgetattr(0)
    try:
        tty.setraw(0)
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
