"""Cases that users of other pools reported, each made to work here.

A package, so that its `tasks` and test modules may have the names that modules of other test folders have too.
"""
