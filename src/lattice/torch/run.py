"""``python -m lattice.torch.run`` is ``lattice run``."""

import sys

from lattice.cli import run

__all__ = ["run"]

if __name__ == "__main__":
    sys.exit(run())
