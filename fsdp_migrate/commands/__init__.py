"""What each command of the command line does, from options to exit code."""
