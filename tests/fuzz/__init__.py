"""Faults on purpose: random operations, bad input, damaged states and files."""
