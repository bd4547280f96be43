"""How the documentation is built: Markdown pages by hand, API pages from the docstrings."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "src"))

from lattice import __version__  # noqa: E402

project = "Lattice"
author = "The Lattice authors"
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.apidoc", "sphinx.ext.viewcode"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

apidoc_modules = [
    {
        "path": str(HERE.parent / "src" / "lattice"),
        "destination": "api",
        "separate_modules": False,
        "module_first": True,
        # The zygote is a program, not a package: it expects to be imported by Python itself.
        "exclude_patterns": ["**/__main__.py", str(HERE.parent / "src" / "lattice" / "process" / "zygote")],
    }
]
autodoc_member_order = "bysource"
# A name is documented where it is defined, not again where it is offered.
autodoc_default_options = {"ignore-module-all": True}
autodoc_typehints = "signature"
# Standard types are named, not linked: no page of another project has to be fetched to build this one.
nitpicky = False
# Classes and functions stay out of the tree of contents: every page has the whole tree, and was mostly made of them.
toc_object_entries = False

html_theme = "furo"
html_title = f"Lattice {release}"
html_static_path: list[str] = []
