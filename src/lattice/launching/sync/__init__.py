"""Brings the caller's project folder to hosts that do not share it: by digest, so that only what changed travels."""
