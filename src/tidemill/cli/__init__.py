"""The command line: one file for each command, each with its arguments and what it does."""
