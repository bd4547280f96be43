"""The specs file: which instances a job gets. Pure, but for reading the file."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lattice.errors import UsageError

GPU_FAMILIES = re.compile(r"(p|g|gr)\d")
"""with GPUs of NVIDIA, whose drivers the image for ``gpu`` has"""
ARM_FAMILIES = re.compile(r"(a1|[a-z]+\d+g[a-z]*)(-flex)?\.")
PLACEHOLDER = re.compile(r"<YOUR\b[^>]*>|<[A-Z][A-Z0-9 _-]*>")


@dataclass(frozen=True, slots=True)
class InstanceSpec:
    """What both kinds of instances have."""

    instance_type: str
    accelerator: str
    """none or gpu: which image of the operating system"""
    instance_role: str
    """name of the instance profile"""
    subnets: tuple[str, ...]
    security_groups: tuple[str, ...]
    ebs_volume_gb: int = 128
    max_spot_price: str = ""
    """dollars an hour; empty for on-demand instances"""
    key_pair: str = ""


@dataclass(frozen=True, slots=True)
class WorkerSpec(InstanceSpec):
    """What workers have besides."""

    docker_image: str = ""
    s3_bucket: str = ""
    s3_prefix: str = ""
    efs_file_system_id: str = ""


@dataclass(frozen=True, slots=True)
class Specs:
    """A specs file."""

    rdzv: InstanceSpec
    worker: WorkerSpec
    region: str = ""
    """empty for what the user's AWS configuration says"""
    ignored: tuple[str, ...] = ()
    """fields of petctl's own files that have no purpose here"""

    def notices(self) -> tuple[str, ...]:
        """Tell what is allowed, and perhaps not meant."""
        told = [f"{name} of the specs file has no purpose here" for name in self.ignored]
        for section, spec in (("rdzv", self.rdzv), ("worker", self.worker)):
            has_gpus = bool(GPU_FAMILIES.match(spec.instance_type))
            if has_gpus and spec.accelerator == "none":
                told.append(f"{section}: {spec.instance_type} has GPUs, but accelerator is none: it gets no drivers")
            if not has_gpus and spec.accelerator == "gpu":
                told.append(f"{section}: accelerator is gpu, but {spec.instance_type} is not known to have GPUs")
        return tuple(told)


Reader = Callable[[Any], Any]
"""gives a value its meaning; a ValueError says what is accepted"""


def architecture(instance_type: str) -> str:
    """Tell for which processors an instance of a type needs its programs."""
    return "arm64" if ARM_FAMILIES.match(instance_type) else "x86_64"


def _text(form: str, accepts: str) -> Reader:
    def read(value: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(form, value):
            raise ValueError(accepts)
        return value

    return read


def _perhaps(reader: Reader) -> Reader:
    return lambda value: "" if value in (None, "") else reader(value)


def _ids(kind: str) -> Reader:
    def read(value: Any) -> tuple[str, ...]:
        if (
            not isinstance(value, list)
            or not value
            or not all(re.fullmatch(f"{kind}-[0-9a-z]+", str(v)) for v in value)
        ):
            raise ValueError(f'a list of ids, such as ["{kind}-0a1b2c3d"]')
        return tuple(value)

    return read


def _accelerator(value: Any) -> str:
    if value not in ("none", "gpu"):
        raise ValueError("none or gpu")
    return str(value)


def _size(value: Any) -> int:
    # System images take 30.
    if isinstance(value, bool) or not isinstance(value, int) or not 30 <= value <= 65536:
        raise ValueError("a number of GB from 30 to 65536")
    return value


def _price(value: Any) -> str:
    if isinstance(value, bool) or not re.fullmatch(r"\d+(\.\d+)?", str(value)) or float(value) == 0:
        raise ValueError("dollars an hour, such as 0.50")
    return str(value)


COMMON: Mapping[str, tuple[Reader, bool]] = {
    "instance_type": (_text(r"[a-z0-9-]+\.[a-z0-9-]+", "a type of instance, such as c5.large"), True),
    "accelerator": (_accelerator, True),
    "instance_role": (_text(r"[\w+=,.@-]+", "the name of an instance profile, not its ARN"), True),
    "subnets": (_ids("subnet"), True),
    "security_groups": (_ids("sg"), True),
    "ebs_volume_gb": (_size, False),
    "max_spot_price": (_perhaps(_price), False),
    "key_pair": (_perhaps(_text(r"[ -~]+", "the name of a key pair")), False),
}
"""fields of both sections: how each is read, and whether it must be there"""
OF_WORKERS: Mapping[str, tuple[Reader, bool]] = {
    **COMMON,
    "docker_image": (_text(r"[\w.:/@-]+", "the name of an image, such as me/train:1"), True),
    "s3_bucket": (_text(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", "the name of a bucket, without s3://"), True),
    "s3_prefix": (_perhaps(_text(r"(?!s3:)[\w!.*'()/-]+", "the beginning of keys, such as jobs/me")), False),
    "efs_file_system_id": (_perhaps(_text("fs-[0-9a-z]+", "an id such as fs-0a1b2c3d")), False),
}
OPTIONS = ("specs_file", "instance_type", "region")
"""options of a job that say which instances it gets"""
RDZV, WORKER = "rdzv", "worker"
"""sections of the file"""
DESIRED = "desired"
"""option of a place: how many workers to begin with, if not as many as there may be"""
OBSOLETE = ("user_data_template",)
"""fields of petctl that have no purpose here"""
_region = _perhaps(_text(r"[a-z]{2}(-[a-z]+)+-\d", "a region, such as us-west-2"))


def read(path: str) -> Any:
    """
    Read a specs file, and see that it makes sense.

    :return: what it holds
    :raises UsageError: it cannot be read, or what is wrong in it: all of it, by name
    """
    try:
        content = json.loads(Path(path).expanduser().read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--specs_file is {path!r}: {error.strerror}; copy aws/config/sample_specs.json") from None
    except ValueError as error:
        raise UsageError(f"--specs_file is {path!r}, which is no JSON: {error}") from None  # with its line
    parse(content, path)
    return content


def of(options: Mapping[str, str]) -> Any:
    """
    Read the specs file that a job names, with what its other options say.

    :param options: by name, as in :data:`OPTIONS`
    :raises UsageError: as of :func:`read`
    """
    content = read(options["specs_file"])
    content["region"] = content.get("region") or options.get("region", "")
    if options.get("instance_type"):
        content["worker"]["instance_type"] = options["instance_type"]
    parse(content, options["specs_file"])
    return content


def of_type(spec: WorkerSpec, instance_type: str, role: str) -> WorkerSpec:
    """
    Give the workers of a role another type of instance, with drivers if it has GPUs.

    :param instance_type: empty for what the specs file says
    :raises UsageError: it is none
    """
    if instance_type in ("", spec.instance_type):
        return spec
    wrong: list[str] = []
    gpu = "gpu" if GPU_FAMILIES.match(instance_type) else "none"
    content = {"instance_type": instance_type, "accelerator": gpu}
    for name, value in content.items():
        _field(f"{name} of role {role}", value, COMMON[name][0], wrong)
    _check_image(f"role {role}:", content, wrong)
    if wrong:
        raise UsageError("\n".join(wrong))
    return replace(spec, instance_type=instance_type, accelerator=gpu)


def parse(content: Any, path: str = "specs") -> Specs:
    """
    Give the content of a specs file its meaning.

    :param content: what JSON holds
    :param path: named in errors
    :raises UsageError: all that is wrong
    """
    wrong: list[str] = []
    if not isinstance(content, dict):
        raise UsageError(f"{path}: an object with the sections rdzv and worker is wanted")
    for name in sorted(content.keys() - {"rdzv", "worker", "region"}):
        wrong.append(f"unknown section {name!r}")
    found = {}
    for section, fields in (("rdzv", COMMON), ("worker", OF_WORKERS)):
        if not isinstance(content.get(section), dict):
            wrong.append(f"the section {section} is missing")
            continue
        found[section] = _section(section, content[section], fields, wrong)
    region = _field("region", content.get("region"), _region, wrong)
    if wrong:
        raise UsageError(f"{path}:\n" + "\n".join(f"  {one}" for one in wrong))
    ignored = [f"{section}.{name}" for section in found for name in OBSOLETE if name in content[section]]
    return Specs(InstanceSpec(**found["rdzv"]), WorkerSpec(**found["worker"]), region, tuple(ignored))


def _section(section: str, content: dict[str, Any], fields: Mapping[str, tuple[Reader, bool]], wrong: list[str]) -> Any:
    for name in sorted(content.keys() - fields.keys() - set(OBSOLETE)):
        wrong.append(f"{section}.{name}: unknown field; there are {', '.join(fields)}")
    for name in (name for name, (_, needed) in fields.items() if needed and name not in content):
        wrong.append(f"{section}.{name} is missing")
    found = {
        name: _field(f"{section}.{name}", content[name], reader, wrong)
        for name, (reader, _) in fields.items()
        if name in content
    }
    _check_image(f"{section}.accelerator", found, wrong)
    return found


def _check_image(whose: str, found: Mapping[str, Any], wrong: list[str]) -> None:
    kind = found.get("instance_type")
    if found.get("accelerator") == "gpu" and kind and architecture(kind) == "arm64":
        wrong.append(f"{whose} is gpu, and for {kind} (arm64) there is no system image with its drivers")


def _field(name: str, value: Any, reader: Reader, wrong: list[str]) -> Any:
    left = PLACEHOLDER.search(json.dumps(value))
    if left:
        wrong.append(f"{name} is still {left[0]}: fill it in")
        return None
    try:
        return reader(value)
    except ValueError as error:
        wrong.append(f"{name} is {json.dumps(value)}; accepted: {error}")
        return None
