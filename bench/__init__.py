"""Benchmarks against what else there is, in one run: `python -m bench [--quick] [--only NAME] [--json FILE]`.

Each measurement is made in a process of its own, the contestants take turns, and the table shows medians and ratios:
absolute numbers belong to the machine, ratios within one run to the programs.
"""
