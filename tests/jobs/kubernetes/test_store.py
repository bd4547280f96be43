"""The etcd of a job in a cluster knows its own nodes, and refuses everybody else."""

from __future__ import annotations

from tests.jobs import programs
from tests.jobs.kubernetes.pods import STARTED, KubernetesPlace
from tests.lab.pods import run
from tests.waiting import eventually

READ = "ETCDCTL_API=3 etcdctl --endpoints {scheme}://met-rdzv:2379 {how} get --prefix / --keys-only"
BLIND = "--insecure-transport=false --insecure-skip-tls-verify --command-timeout 20s"
"""so that it is the server that refuses"""
CONNECT = "import socket; socket.create_connection(('met-rdzv', {port}), 3)"
ATTEMPTS = {
    "nobody": (READ.format(scheme="https", how=BLIND), "user name is empty"),
    "guess": (READ.format(scheme="https", how=f"{BLIND} --user root:root"), "invalid user ID or password"),
    "plain": (READ.format(scheme="http", how="--user root:root --command-timeout 3s"), "context deadline exceeded"),
    # Where it has no password yet, and where other members of a cluster would be.
    "start": (f'python3 -c "{CONNECT.format(port=2378)}"', "ConnectionRefusedError"),
    "peers": (f'python3 -c "{CONNECT.format(port=2380)}"', "ConnectionRefusedError"),
}
"""what a stranger tries, and what it hears"""
OTHER_CERTIFICATE = """
cd /tmp
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key -out other \
  -subj /CN=lattice-rdzv -addext subjectAltName=DNS:lattice-rdzv 2>/dev/null
python3 -m lattice run --nnodes 2 --rdzv_id x --rdzv_backend etcd --rdzv_endpoint met-rdzv:2379 --rdzv_conf \
  connect_timeout=5,cacert=other,server_name=lattice-rdzv,user=root,password_file=/etc/lattice/password true
"""


def test_only_who_has_the_secret_of_a_job_gets_to_its_etcd(place: KubernetesPlace) -> None:
    (place.folder / "save.py").write_text(programs.SAVE)
    assert place.submit("met", "save.py").code == 0
    eventually(lambda: place.run("logs", "met").out.count("ready") >= 2, within=STARTED)
    known = READ.format(scheme="https", how=f"{BLIND} --user root:$(cat /etc/lattice/password)")
    assert "/lattice/" in place.run("exec", "met", "--", "sh", "-c", known).out

    tried = [f"echo === {name}; if {what} 2>&1; then echo LET IN; fi" for name, (what, _) in ATTEMPTS.items()]
    printed = run(place.api, place.namespace, "stranger", "\n".join(tried))
    assert "LET IN" not in printed
    answers = dict(part.split("\n", 1) for part in printed.split("=== ")[1:])
    assert [name for name, (_, words) in ATTEMPTS.items() if words not in answers[name]] == [], printed

    # Who has the password, but is sent to another etcd, does not tell it there.
    other = place.run("exec", "met", "--", "sh", "-c", OTHER_CERTIFICATE)
    assert (other.code, "certificate" in other.out + other.err) == (1, True), other
