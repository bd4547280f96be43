"""The policies of the docs: all that the code asks of AWS is allowed, and nothing else."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.agents import ROOT
from tests.jobs.aws.conftest import Cloud

AWS = ROOT / "src" / "lattice" / "jobs" / "aws"
OF_INSTANCES = ("instance.py", "node.py", "rdzv.py", "code.py")
OF_NOBODY = ("setup.py",)
"""who sets up an account may do anything in it"""
NAMES = {
    ("s3", "list_objects_v2"): {"s3:ListBucket"},
    # Who may not list a bucket is not told that something is not there.
    ("s3", "head_object"): {"s3:GetObject", "s3:ListBucket"},
    ("s3", "list_multipart_uploads"): {"s3:ListBucketMultipartUploads"},
    # A large file goes in parts, and the parts of one that fails are thrown away.
    ("s3", "upload_file"): {"s3:PutObject", "s3:AbortMultipartUpload"},
    # What is made with tags is tagged. A group has to be allowed what it will do, and to give instances their role; the
    # first one in an account makes the roles that EC2's services have.
    ("ec2", "create_launch_template"): {"ec2:CreateLaunchTemplate", "ec2:CreateTags"},
    ("ssm", "put_parameter"): {"ssm:PutParameter", "ssm:AddTagsToResource"},
    ("logs", "create_log_group"): {"logs:CreateLogGroup", "logs:TagResource"},
    ("autoscaling", "create_auto_scaling_group"): {
        "autoscaling:CreateAutoScalingGroup",
        "autoscaling:CreateOrUpdateTags",
        "ec2:RunInstances",
        "iam:CreateServiceLinkedRole",
        "iam:PassRole",
    },
}
"""permissions that are called otherwise than the operation, or are several"""
OF_DOCKER = {
    "ecr:BatchGetImage",
    "ecr:GetAuthorizationToken",
    "ecr:GetDownloadUrlForLayer",
    "logs:CreateLogStream",
    "logs:PutLogEvents",
}
"""what the engine on an instance asks for: images of an account's own registry, and where logs go"""


def trees(files: Iterable[Path]) -> list[ast.AST]:
    return [ast.parse(file.read_text(), file.name) for file in files]


def calls(parts: Iterable[ast.AST]) -> set[tuple[str, str]]:
    """Find every request that is written down in some code."""
    found = set()
    for part in parts:
        for node in ast.walk(part):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Call":
                service, operation = (ast.unparse(one).strip("'") for one in node.args[:2])
                assert service.isidentifier()
                # One lists what its caller names.
                names = ("list_objects_v2", "list_multipart_uploads") if operation == "operation" else (operation,)
                found |= {(service, name) for name in names}
    return found


def used(parts: Iterable[ast.AST]) -> list[ast.AST]:
    """Give the functions of the plan and of the client that some code names."""
    nodes = [node for part in parts for node in ast.walk(part)]
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    shared = [node for tree in trees([AWS / "plan.py", AWS / "client.py"]) for node in ast.walk(tree)]
    return [node for node in shared if isinstance(node, ast.FunctionDef) and node.name in names]


def permissions(made: Iterable[tuple[str, str]]) -> set[str]:
    """Name what must be allowed for some requests."""
    found: set[str] = set()
    for service, operation in made:
        plain = f"{service}:{''.join(part.capitalize() for part in operation.split('_'))}"
        found |= NAMES.get((service, operation), {plain})
    return found


def allowed(name: str) -> tuple[set[str], list[dict[str, Any]]]:
    """Read a policy that the docs show."""
    page = (ROOT / "docs" / "aws.md").read_text()
    path = f"../src/lattice/jobs/aws/{name}_policy.json"
    assert f"literalinclude}} {path}" in page
    statements = json.loads((ROOT / "docs" / path).read_text())["Statement"]
    assert all(one["Effect"] == "Allow" for one in statements)
    actions = [one["Action"] for one in statements]
    words = [word for one in actions for word in ([one] if isinstance(one, str) else one)]
    assert len(words) == len(set(words)), "nothing is allowed twice"
    assert not [word for word in words if "*" in word]
    return set(words), statements


def of_submitters() -> set[tuple[str, str]]:
    files = [path for path in AWS.glob("*.py") if path.name not in (*OF_INSTANCES, *OF_NOBODY)]
    return calls(trees([*files, AWS.parent / "backends" / "aws.py"]))


def test_who_submits_may_do_what_submitting_takes_and_nothing_else() -> None:
    assert permissions(of_submitters()) == allowed("submitter")[0]


def test_instances_may_do_what_looking_after_a_job_takes_and_nothing_else() -> None:
    own = trees(AWS / name for name in OF_INSTANCES)
    assert permissions(calls([*own, *used(own)])) | OF_DOCKER == allowed("instance")[0]


def test_what_changes_or_ends_something_is_scoped_to_what_jobs_made() -> None:
    changing = ("Create", "Delete", "Put", "Terminate", "Update", "Pass", "Run", "Add", "Abort", "Tag")
    for name in ("submitter", "instance"):
        for one in allowed(name)[1]:
            words = [one["Action"]] if isinstance(one["Action"], str) else one["Action"]
            if any(word.partition(":")[2].startswith(changing) for word in words):
                assert one["Resource"] != "*" or "Condition" in one, one["Sid"]


def test_what_a_job_really_calls_is_what_is_written_down(cloud: Cloud) -> None:
    made: set[str] = set()
    assert cloud.submit("try").code == 0
    made |= set(cloud.calls)
    for command in ("status", "logs", "kill", "forget"):
        assert cloud.run(command, "try").code == 0
        made |= set(cloud.calls)
    written = {operation.replace("_", "") for _, operation in of_submitters()}
    assert len(made) > 10
    assert {name.lower() for name in made} <= written
