from __future__ import annotations

from pathlib import Path

import pytest

from lattice.options import document
from lattice.options.conf import IGNORED, KEYS
from lattice.options.help import WIDTH, run_help
from lattice.options.parsing import RUN, TORCHRUN, Dialect
from lattice.options.table import OPTIONS

ROOT = Path(__file__).parents[2]


def test_the_page_is_fresh() -> None:
    written = (ROOT / document.PAGE).read_text(encoding="utf-8")
    assert written == document.page(), "docs/options.md is stale: run python -m lattice.options.document"


def test_the_page_has_every_option_and_key() -> None:
    page = document.page()
    for option in OPTIONS:
        assert f"`{option.variable}`" in page
        assert not option.flag or f"--{option.name}" in page
    for name in (*(key.name for key in KEYS), *IGNORED):
        assert f"`{name}`" in page


@pytest.mark.parametrize("dialect", [RUN, TORCHRUN])
def test_the_help_has_every_option_and_fits(dialect: Dialect) -> None:
    text = run_help(dialect)
    for option in OPTIONS:
        assert (f"--{option.name}" if option.flag else option.variable) in text
        assert option.notice or option.variable in text
    assert max(map(len, text.splitlines())) <= WIDTH
    assert f"default {dialect.default(OPTIONS[2])}" in text.replace("\n      ", " ")
