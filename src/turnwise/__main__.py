"""`python -m turnwise` is the command line."""

from __future__ import annotations

from turnwise.cli import main

if __name__ == "__main__":
    main()
