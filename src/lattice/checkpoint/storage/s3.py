"""S3, through boto3 with the user's own configuration."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lattice.checkpoint.memory import View
from lattice.errors import UsageError

FOUND_BEFORE = ("PreconditionFailed", "ConditionalRequestConflict")
NOT_THERE = ("NoSuchKey", "404")


class S3:
    """Objects below a prefix of a bucket."""

    def __init__(self, rest: str) -> None:
        """
        Read the user's AWS configuration.

        :param rest: ``bucket/prefix``
        :raises UsageError: there is no boto3, or no bucket
        """
        self._bucket, _, prefix = rest.partition("/")
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        if not self._bucket:
            raise UsageError("s3:// needs a bucket: s3://bucket/prefix.")
        try:
            import boto3
            from botocore.config import Config
        except ImportError:
            raise UsageError('checkpoints on S3 need boto3: pip install "lattice-addons-pytorch[aws]"') from None
        retries = {"mode": "standard", "max_attempts": 2}
        config = Config(retries=retries, connect_timeout=5, read_timeout=20)
        with self._errors(""):
            self._client: Any = boto3.session.Session().client("s3", config=config)

    def names(self, folder: str) -> list[str]:
        """List what is directly in a folder."""
        prefix = f"{self._prefix}{folder}/" if folder else self._prefix
        found: list[str] = []
        with self._errors(folder):
            pages = self._client.get_paginator("list_objects_v2")
            for page in pages.paginate(Bucket=self._bucket, Prefix=prefix, Delimiter="/"):
                found += [item["Key"] for item in page.get("Contents", ())]
                found += [item["Prefix"] for item in page.get("CommonPrefixes", ())]
        return [key.removeprefix(prefix).strip("/") for key in found if key != prefix]

    def read(self, name: str) -> memoryview:
        """Give what is in an object."""
        with self._errors(name):
            answer = self._client.get_object(Bucket=self._bucket, Key=self._prefix + name)
            data, at = memoryview(bytearray(answer["ContentLength"])), 0
            while at < len(data):
                count = answer["Body"].readinto(data[at:])
                if not count:
                    raise OSError(f"s3://{self._bucket}/{self._prefix}{name} ended after {at} bytes")
                at += count
            return data

    def write(self, name: str, data: memoryview) -> None:
        """Write an object, instead of one of that name."""
        with self._errors(name):
            self._client.upload_fileobj(io.BufferedReader(View(data)), self._bucket, self._prefix + name)

    def create(self, name: str, data: bytes) -> bool:
        """Write an object unless there is one; S3 decides between two who try."""
        try:
            with self._errors(name):
                self._client.put_object(Bucket=self._bucket, Key=self._prefix + name, Body=data, IfNoneMatch="*")
        except FileExistsError:
            return False
        return True

    def remove(self, name: str) -> None:
        """Remove an object, and all below it."""
        with self._errors(name):
            pages = self._client.get_paginator("list_objects_v2")
            keys = [{"Key": self._prefix + name}]
            for page in pages.paginate(Bucket=self._bucket, Prefix=f"{self._prefix}{name}/"):
                keys += [{"Key": item["Key"]} for item in page.get("Contents", ())]
            for first in range(0, len(keys), 1000):  # as many as one call takes
                part = {"Objects": keys[first : first + 1000], "Quiet": True}
                self._client.delete_objects(Bucket=self._bucket, Delete=part)

    @contextmanager
    def _errors(self, name: str) -> Iterator[None]:
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            words = f"s3://{self._bucket}/{self._prefix}{name}: {code}: {error.response['Error'].get('Message', '')}"
            if code in FOUND_BEFORE:
                raise FileExistsError(words) from error
            raise (FileNotFoundError if code in NOT_THERE else OSError)(words) from error
        except (BotoCoreError, Boto3Error) as error:
            raise OSError(f"s3://{self._bucket}/{self._prefix}{name}: {error}") from error
