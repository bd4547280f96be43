"""Says whether a module was there before the script asked for it; fails in its first rounds, as many as it is told."""

import os
import sys

module, failures = sys.argv[1], int(sys.argv[2])
print(f"round {os.environ['LATTICE_ROUND']}: {module} {'warm' if module in sys.modules else 'cold'}", flush=True)

import decimal  # noqa: E402  # at the top level, so that workers wait until it has been imported for all of them

sys.exit(5 if int(os.environ["LATTICE_RESTART_COUNT"]) < decimal.Decimal(failures) else 0)
