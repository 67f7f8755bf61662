"""The subcommands, one module for each noun; the root command loads them when they are called."""
