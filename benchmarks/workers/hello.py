"""Prints one line and ends: what a command costs before the user's own code begins."""

import os

os.write(1, b"hello\n")
