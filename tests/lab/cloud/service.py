"""
What runs inside a cloud: ``python -m tests.lab.cloud.service STATE DESCRIPTOR REGION``.

Moto is AWS. Every instance that is in it gets a host, which runs its user data; an instance that is ended loses its
host as by a power cut. Scheduled actions, which moto keeps but never does, are done when their time has come.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from base64 import b64decode
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import ClientError
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import make_server

from tests.lab.cloud.metadata import CUT, Instance, serve

HERE = Path(__file__).parent
GATE = "10.77.0.1"
"""where instances find AWS"""
METADATA = "169.254.169.254"
LOOK = 0.3
LIVING = ("pending", "running")


class Hosts:
    """The hosts of all instances."""

    def __init__(self, state: Path, region: str) -> None:
        self._state, self._region = state, region
        key = {"aws_access_key_id": "cloud", "aws_secret_access_key": "cloud"}
        session = boto3.session.Session(region_name=region, **key)
        self._ec2 = session.client("ec2", endpoint_url=f"http://{GATE}")
        self._groups = session.client("autoscaling", endpoint_url=f"http://{GATE}")
        self._hosts: dict[str, tuple[Instance, subprocess.Popen[bytes]]] = {}
        self._count = 0

    def at(self, address: str) -> Instance | None:
        """Find an instance by its address."""
        return next((one for one, _ in list(self._hosts.values()) if one.address == address), None)

    def look(self) -> None:
        """Have a host for every instance, and none besides."""
        found = [one for part in self._ec2.describe_instances()["Reservations"] for one in part["Instances"]]
        living = {one["InstanceId"]: one for one in found if one["State"]["Name"] in LIVING}
        for name in self._hosts.keys() - living.keys():
            _, process = self._hosts.pop(name)
            process.kill()
            process.wait()
        for instance, process in self._hosts.values():
            if (instance.folder / CUT).exists():
                process.kill()
        for name in living.keys() - self._hosts.keys():
            self._start(living[name])

    def act(self) -> None:
        """Do the scheduled actions whose time has come."""
        for action in self._groups.describe_scheduled_actions()["ScheduledUpdateGroupActions"]:
            if action["StartTime"] <= datetime.now(UTC):
                named = {"AutoScalingGroupName": action["AutoScalingGroupName"]}
                sizes = {name: action[name] for name in ("MinSize", "MaxSize", "DesiredCapacity")}
                self._groups.delete_scheduled_action(**named, ScheduledActionName=action["ScheduledActionName"])
                self._groups.update_auto_scaling_group(**named, **sizes)

    def _start(self, found: dict[str, Any]) -> None:
        address, name = found["PrivateIpAddress"], found["InstanceId"]
        folder = self._state / "hosts" / name
        folder.mkdir(parents=True, exist_ok=True)
        data = self._ec2.describe_instance_attribute(InstanceId=name, Attribute="userData")["UserData"]["Value"]
        (folder / "user-data").write_bytes(b64decode(data))
        host = "ip-" + address.replace(".", "-")
        (folder / "name").write_text(host)
        self._count += 1
        namespaces = ("--net", "--mount", "--pid", "--uts", "--mount-proc", "--propagation", "private")
        with (folder / "host.log").open("wb") as log:
            process = subprocess.Popen(
                ["unshare", *namespaces, "--fork", "--kill-child", "--", str(HERE / "host.sh"), str(folder)]
                + [str(self._count), host, address, self._region],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        instance = Instance(name, host, address, found["Placement"]["AvailabilityZone"], folder)
        self._hosts[name] = (instance, process)


def main(state: Path, descriptor: int, region: str) -> None:
    """Serve until standard input ends."""
    app = DomainDispatcherApplication(create_backend_app)
    outside = socket.socket(fileno=descriptor)
    host, port = outside.getsockname()
    servers = [
        make_server(GATE, 80, app, threaded=True, request_handler=MotoRequestHandler),
        # The socket was made outside, and answers there wherever its owner is.
        make_server(host, port, app, threaded=True, request_handler=MotoRequestHandler, fd=descriptor),
    ]
    hosts = Hosts(state, region)
    for target in (*(server.serve_forever for server in servers), lambda: serve(METADATA, hosts.at)):
        threading.Thread(target=target, daemon=True).start()
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    (state / "up").touch()
    while True:
        try:
            hosts.look()
            hosts.act()
        except ClientError as error:
            print(error, flush=True)  # something went meanwhile; the next look finds it gone
        time.sleep(LOOK)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
