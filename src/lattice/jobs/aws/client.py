"""The one file that knows boto3: calls as the plan has them, errors in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lattice.errors import LatticeError, UsageError
from lattice.jobs.aws.plan import Call, Resource

ATTEMPTS = 7
"""tries of one call that is turned away because of too many; boto3 waits longer each time"""
HINTS = {
    "NoSuchBucket": "make the bucket first, or name another as worker.s3_bucket of the specs file",
    "InstanceLimitExceeded": "ask for a higher quota (EC2, Running On-Demand instances), or take fewer or smaller ones",
    "LimitExceeded": "ask for a higher quota (EC2 Auto Scaling), or end what is not needed",
    "VcpuLimitExceeded": "ask for a higher quota (EC2, Running On-Demand instances), or take fewer or smaller ones",
    "MaxSpotInstanceCountExceeded": "ask for a higher quota (EC2, All Spot Instance Requests), or take fewer",
    "InvalidSubnetID.NotFound": "is it of this region?",
    "InvalidGroup.NotFound": "is it of this region?",
    "ExpiredToken": "sign in again",
    "ExpiredTokenException": "sign in again",
    "InvalidClientTokenId": "is the access key right, and of this account?",
    "SignatureDoesNotMatch": "is the secret key right?",
}
FORBIDDEN = ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation", "AuthFailure")


class AwsFailed(LatticeError):
    """AWS said no."""

    def __init__(self, message: str, code: str = "") -> None:
        self.code = code
        """AWS's own word for it"""
        self.final = code in FORBIDDEN
        """the same again would be answered the same"""
        super().__init__(message)


class Client:
    """AWS in one region."""

    def __init__(self, region: str = "", attempts: int = ATTEMPTS, timeout: float = 60) -> None:
        """
        Read the user's AWS configuration.

        :param region: empty for what that says
        :param attempts: tries of one call
        :param timeout: seconds that an answer may take
        :raises UsageError: there is no boto3, or no region
        """
        try:
            import boto3
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError
        except ImportError:
            raise UsageError('--on aws needs boto3: pip install "lattice-addons-pytorch[aws]"') from None
        try:
            self._session = boto3.session.Session(region_name=region or None)
        except BotoCoreError as error:
            raise UsageError(f"the AWS configuration of this user: {error}.") from None
        if not self._session.region_name:
            raise UsageError("no AWS region: set region in the specs file, AWS_DEFAULT_REGION, or run aws configure")
        self._config = Config(
            retries={"mode": "standard", "max_attempts": attempts},
            connect_timeout=min(timeout, 10),
            read_timeout=timeout,
        )
        self._services: dict[str, Any] = {}

    @property
    def region(self) -> str:
        """Where."""
        return str(self._session.region_name)

    def call(self, call: Call) -> dict[str, Any]:
        """
        Make a call.

        :raises AwsFailed: says what AWS said, and what to do
        """
        service = self._service(call.service)
        answer: dict[str, Any] = self._explained(call, lambda: getattr(service, call.operation)(**call.arguments))
        return answer

    def pages(self, call: Call, key: str) -> Iterator[Any]:
        """Make a call whose answer has several pages, and give what is in their lists of that name."""
        paginator = self._service(call.service).get_paginator(call.operation)
        pages: Iterator[Any] = iter(self._explained(call, lambda: list(paginator.paginate(**call.arguments))))
        for page in pages:
            yield from page.get(key, ())

    def ensure(self, resource: Resource) -> bool:
        """Make something unless it is there; tells whether it was made now."""
        try:
            self.call(resource.make)
        except AwsFailed as error:
            if error.code in resource.already:
                return False
            raise
        return True

    def find(self, resource: Resource) -> list[dict[str, Any]]:
        """Describe something that says how it is found; empty if there is none."""
        found: list[dict[str, Any]] = self.call(resource.find)[resource.listed] if resource.find else []
        return found

    def undo(self, resource: Resource) -> bool:
        """Be rid of something; tells whether there was anything."""
        if resource.undo is None or (resource.find and not self.find(resource)):
            return False
        try:
            self.call(resource.undo)
        except AwsFailed as error:
            if error.code in resource.gone:
                return False
            raise
        return True

    def read(self, bucket: str, key: str) -> bytes:
        """Read an object."""
        return b"".join(self.chunks(bucket, key))

    def chunks(self, bucket: str, key: str) -> Iterator[bytes]:
        """Read an object piece by piece."""
        call = Call("s3", "get_object", {"Bucket": bucket, "Key": key})
        pieces = self.call(call)["Body"].iter_chunks(1 << 20)
        while (piece := self._explained(call, lambda: next(pieces, None))) is not None:
            yield piece

    def upload(self, bucket: str, key: str, path: str, said: Any) -> None:
        """Put a file there, in parts if it is large; ``said`` hears of each part's bytes."""
        call = Call("s3", "upload_file", {"Bucket": bucket, "Key": key})
        service = self._service("s3")
        self._explained(call, lambda: service.upload_file(path, bucket, key, Callback=said))

    def _service(self, name: str) -> Any:
        if name not in self._services:
            self._services[name] = self._session.client(name, config=self._config)
        return self._services[name]

    def _explained(self, call: Call, action: Any) -> Any:
        from boto3.exceptions import Boto3Error
        from botocore import exceptions
        from botocore.parsers import ResponseParserError

        try:
            return action()
        except exceptions.ClientError as error:
            found = error.response.get("Error", {})
            code, said = found.get("Code", ""), found.get("Message", str(error))
            raise AwsFailed(_words(call, code, said, self.region), code) from None
        except (
            exceptions.NoCredentialsError,
            exceptions.PartialCredentialsError,
            exceptions.TokenRetrievalError,
        ) as error:
            raise AwsFailed(f"no AWS credentials: {error}. Run aws configure, or sign in.", "NoCredentials") from None
        except exceptions.HTTPClientError as error:
            raise AwsFailed(f"AWS {call.service} in {self.region} cannot be reached: {error}.", "Unreachable") from None
        except (exceptions.BotoCoreError, Boto3Error, ResponseParserError) as error:
            raise AwsFailed(f"AWS {call.service} ({self.region}), {call.operation}: {error}.") from None


def _words(call: Call, code: str, said: str, region: str) -> str:
    what = f"AWS {call.service} ({region}) refused {call.operation}: {said.rstrip('.')} ({code})"
    if code in FORBIDDEN:
        action = "".join(part.capitalize() for part in call.operation.split("_"))
        return f"{what}. Whoever submits needs the permission {call.service}:{action}; docs/aws.md lists all."
    hint = HINTS.get(code)
    return f"{what}; {hint}." if hint else f"{what}."
