"""The `killpool` command: one file a command group."""
