#!/usr/bin/env python3
"""
Forward a loopback port of this machine to a port inside a network namespace.

The listener is made in the machine's network and the outgoing sockets after entering the other one, so no link,
address or rule joins the two. Ends by itself when the process given with --pid ends.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import select
import socket
import subprocess
import sys
import threading
from pathlib import Path

CLONE_NEWNET = 0x40000000


def enter(path: str) -> None:
    """Move this thread, and the threads it starts later, into a network namespace."""
    descriptor = os.open(path, os.O_RDONLY)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), f"cannot enter {path}")
    os.close(descriptor)


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Copy one direction; pass on the end of the stream, not the end of the connection."""
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass
    finally:
        try:
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            pass


def join(near: socket.socket, address: str, port: int) -> None:
    """Connect to the other side, and copy both directions in threads of their own."""
    try:
        far = socket.create_connection((address, port), timeout=10)
    except OSError:
        near.close()
        return
    far.settimeout(None)
    for source, sink in ((near, far), (far, near)):
        threading.Thread(target=pump, args=(source, sink), daemon=True).start()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int, help="loopback port to listen on, 0 for any that is free")
    parser.add_argument("target", help="ADDRESS:PORT inside")
    parser.add_argument("--pid", type=int, required=True, help="a process inside the namespace")
    parser.add_argument("--tell", type=Path, help="file to write the port to")
    parser.add_argument("--owner", type=int, help="a process at whose end --then is run")
    parser.add_argument("--then", help="a command")
    options = parser.parse_args()

    inside = os.pidfd_open(options.pid)
    watched = [inside]
    if options.owner:
        watched.append(os.pidfd_open(options.owner))
    try:
        listener = socket.create_server(("127.0.0.1", options.port))
    except OSError as error:
        sys.exit(f"forward.py: cannot listen on port {options.port}: {error.strerror}. Choose another port.")
    if options.tell:
        options.tell.write_text(f"{listener.getsockname()[1]}\n")
    enter(f"/proc/{options.pid}/ns/net")

    address, _, port = options.target.rpartition(":")
    while True:
        ready, _, _ = select.select([listener.fileno(), *watched], [], [])
        if inside in ready:
            return
        if listener.fileno() not in ready:
            subprocess.Popen([options.then], cwd="/", start_new_session=True)
            return
        join(listener.accept()[0], address, int(port))


if __name__ == "__main__":
    main()
