from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lattice.process.ports import ReservedPorts
from tests.waiting import patience


def listening(port: int, address: str = "0.0.0.0", family: socket.AddressFamily = socket.AF_INET) -> socket.socket:
    server = socket.socket(family)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind((address, port))
        server.listen()
    except OSError:
        server.close()
        raise
    return server


def test_ports_differ_from_each_other_and_from_those_of_others() -> None:
    with ReservedPorts(200) as first, ReservedPorts(200, "127.0.0.1") as second:
        assert len({*first.ports, *second.ports}) == 400


@pytest.mark.parametrize("reserved", ["", "127.0.0.1", "0.0.0.0", "::1"])
def test_a_server_can_listen_on_a_reserved_port_and_be_reached(reserved: str) -> None:
    local = "::1" if ":" in reserved else "127.0.0.1"
    family = socket.AF_INET6 if ":" in reserved else socket.AF_INET
    if ":" in reserved and not Path("/proc/net/if_inet6").read_text():
        pytest.skip("no IPv6 here, as in most containers")
    with ReservedPorts(1, reserved) as ports, listening(ports.ports[0], local, family) as server:
        ports.close()
        with socket.create_connection((local, ports.ports[0]), timeout=patience(10)):
            connection, _ = server.accept()
            connection.close()


def test_a_taken_port_is_still_taken() -> None:
    with ReservedPorts(1) as ports, listening(ports.ports[0]), pytest.raises(OSError, match="in use"):
        listening(ports.ports[0])


def test_no_connection_is_given_a_reserved_port() -> None:
    with ReservedPorts(50, "127.0.0.1") as ports, listening(0, "127.0.0.1") as server:
        used = set()
        for _ in range(100):
            with socket.create_connection(server.getsockname()) as connection:
                used.add(connection.getsockname()[1])
                server.accept()[0].close()
        assert not used & set(ports.ports)


TORCH = """
import sys, datetime
from torch.distributed import TCPStore
port = int(sys.argv[1])
for libuv in (True, False):
    master = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, use_libuv=libuv)
    TCPStore("127.0.0.1", port, is_master=False, timeout=datetime.timedelta(seconds=30)).set("key", b"value")
    assert master.get("key") == b"value"
    del master
"""

GRPC = """
import sys, grpc
from concurrent.futures import ThreadPoolExecutor
for options in ((), (("grpc.so_reuseport", 0),), (("grpc.so_reuseport", 1),)):
    for address in ("[::]", "0.0.0.0", "127.0.0.1"):
        server = grpc.server(ThreadPoolExecutor(1), options=options)
        assert server.add_insecure_port(f"{address}:{sys.argv[1]}") == int(sys.argv[1])
        server.start()
        grpc.channel_ready_future(grpc.insecure_channel(f"127.0.0.1:{sys.argv[1]}")).result(30)
        server.stop(None).wait()
"""

PYTHON = """
import http.server, sys
with http.server.ThreadingHTTPServer(("", int(sys.argv[1])), http.server.BaseHTTPRequestHandler):
    pass
"""


@pytest.mark.parametrize("program", [TORCH, GRPC, PYTHON], ids=["torch TCP store", "gRPC", "http.server"])
def test_real_servers_listen_while_the_port_is_reserved(program: str) -> None:
    with ReservedPorts(1) as ports:
        result = subprocess.run(
            [sys.executable, "-c", program, str(ports.ports[0])],
            check=False,
            capture_output=True,
            text=True,
            timeout=patience(120),
        )
        assert result.returncode == 0, result.stderr
