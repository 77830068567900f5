"""Sweeps that others published, as data: where to look first, never evidence."""
