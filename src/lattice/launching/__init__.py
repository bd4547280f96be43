"""Runs a function on many hosts: agents that are started through a transport, and what travels to and from them."""
