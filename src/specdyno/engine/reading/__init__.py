"""Acceptance as engines print it: logs, result files, answers, server pages. One module a kind; see `detect.read`."""
