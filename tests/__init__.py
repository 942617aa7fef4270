"""Tests of the three packages, written as specifications."""
