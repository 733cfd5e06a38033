"""Kernel mechanisms, one a module: they act and report, and decide nothing."""
