"""``lattice image``: build the image of a job, and push it to where a cluster pulls it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from lattice.errors import UsageError
from lattice.jobs import images
from lattice.jobs.telling import Teller
from lattice.options import values
from lattice.options.help import plain_rows
from lattice.options.option import Option
from lattice.options.parsing import Dialect, HelpAsked, parse

GROUP = "The image"
USAGE = """\
usage: lattice image build [-n NAME] [-d DOCKERFILE] [--base IMAGE] [FOLDER]
       lattice image push IMAGE REGISTRY

Builds an image from a folder, as git has it, with docker or podman: Lattice,
etcd, what requirements.txt names, and the folder as /app; with -d from a
Dockerfile of yours. Prints what it is called: its tag is made of what is in
it, so that the same folder gives the same name. push logs in to a registry of
AWS (ECR) by itself, and prints what the image is called there.
"""
NAME = Option(
    "name",
    values.text,
    "node",
    "what the image is called; with a tag it has that one",
    "a name",
    GROUP,
    "NAME",
    short="n",
)
DOCKERFILE = Option("dockerfile", values.text, "", "a Dockerfile in place of ours", "a file", GROUP, "FILE", short="d")
BASE = Option(
    "base",
    values.text,
    "",
    f"what the image stands on; with -d the argument BASE of that file, without {images.BASE}",
    "an image",
    GROUP,
    "IMAGE",
)
BUILDER = Option(
    "builder", values.text, "", "what builds: docker or podman, whichever is there", "a program", GROUP, "PROGRAM"
)
IMAGE = Dialect("lattice image", (NAME, DOCKERFILE, BASE, BUILDER), environment=False, anywhere=True)


def image_command(words: Sequence[str]) -> int:
    """Build or push; prints what the image is called."""
    try:
        parsed = parse(words, {}, IMAGE)
    except HelpAsked:
        print(f"{USAGE}\noptions:\n{plain_rows(IMAGE)}", end="", flush=True)
        return 0
    match parsed.entry:
        case ("build", *folders) if len(folders) < 2:
            wanted = images.Wanted(parsed[NAME], parsed[DOCKERFILE], parsed[BASE])
            print(images.build(folders[0] if folders else ".", wanted, _say, parsed[BUILDER]), flush=True)
        case ("push", image, registry):
            print(images.push(image, registry, _say, parsed[BUILDER]), flush=True)
        case _:
            raise UsageError("lattice image takes build [FOLDER], or push IMAGE REGISTRY; see lattice image --help")
    return 0


_say = Teller(sys.stderr)
