"""
Scenes with expected lines: each file in transcripts/ is one.

A line that begins with ``$`` is a command of :class:`~tests.core.story.Story`, what follows is what everybody says and
does about it. After a wanted change of the protocol run with LATTICE_REWRITE=1 and read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.core.story import Story

SCENES = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.stem)
def test_transcript(scene: Path) -> None:
    expected = scene.read_text()
    story, played = Story(), []
    for line in expected.splitlines():
        if line.startswith("$ "):
            played += [line, *story.play(line[2:])]
        elif line.startswith("#") or not line:
            played.append(line)
    text = "\n".join(played) + "\n"
    if os.environ.get("LATTICE_REWRITE"):
        scene.write_text(text)
    assert text == expected
