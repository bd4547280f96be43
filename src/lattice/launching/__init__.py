"""Runs a function on many hosts: agents started through a transport, and a payload."""
