"""
What containers of Lattice run: ``python3 -m lattice.jobs.kubernetes.entry node``, or ``rdzv``, or ``code``.

The first process of a container hears only signals that it has asked for, and Kubernetes sends SIGTERM once. So this
asks before it loads anything that takes time.
"""

import signal
import sys


def main(words: list[str]) -> int:
    """Be one of them; end at once if that is wanted before it has begun."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(143))
    what, *more = words
    if what == "node":
        from lattice.jobs.kubernetes import node

        return node.main()
    if what == "rdzv":
        from lattice.jobs.kubernetes import rdzv

        return rdzv.main()
    from lattice.jobs.kubernetes import code

    return code.main(more)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
