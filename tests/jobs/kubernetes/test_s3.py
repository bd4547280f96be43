"""Code that is in S3 already: each pod fetches it, with the rights that a Secret gives."""

from __future__ import annotations

from tests.jobs.kubernetes.buckets import bucket
from tests.jobs.kubernetes.pods import STARTED, KubernetesPlace
from tests.waiting import eventually

CODE = """
import io, tarfile

data = io.BytesIO()
with tarfile.open(fileobj=data, mode="w:gz") as tar:
    for name, text in (("main.py", "import part; print(part.WORD)"), ("part.py", "WORD = 'fetched'")):
        member = tarfile.TarInfo(name)
        member.size = len(text)
        tar.addfile(member, io.BytesIO(text.encode()))
service.put_object(Bucket="bucket", Key="project.tar.gz", Body=data.getvalue())
service.put_object(Bucket="bucket", Key="alone.py", Body=b"print('alone')")
"""


def test_each_pod_fetches_the_code_from_s3(place: KubernetesPlace) -> None:
    with bucket(place, CODE):
        assert place.submit("project", "--secrets", "aws", "s3://bucket/project.tar.gz", "main.py").code == 0
        assert place.submit("alone", "--secrets", "aws", "s3://bucket/alone.py", size=1).code == 0
        assert place.run("wait", "project").code == 0
        eventually(lambda: place.run("logs", "--rank", "1", "project").out == "fetched\n", within=60)
        assert place.run("wait", "alone").code == 0
        eventually(lambda: place.run("logs", "--rank", "0", "alone").out == "alone\n", within=60)
        assert place.submit("none", "--secrets", "aws", "s3://bucket/none.py", size=1).code == 0
        eventually(lambda: "NoSuchKey" in place.status("none")["nodes"][0]["report"], within=STARTED)
