"""A template becomes a program; a program writes text that knows where it came from."""
