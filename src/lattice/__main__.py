"""``python -m lattice`` is the ``lattice`` command."""

import sys

from lattice.cli import main

if __name__ == "__main__":
    sys.exit(main())
