"""Runs a function on many hosts and brings its results back."""
