"""Serve a model, and open the playground in a browser as soon as it answers: `make serve MODEL=folder`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
import webbrowser
from collections.abc import Callable

POLL_SECONDS = 0.2


def run(words: list[str], open_page: Callable[[str], object]) -> int:
    """Start the server, open its page when it is ready, and return the server's exit code."""
    command = [sys.executable, "-m", "turnwise", "serve", *words, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        try:
            assert server.stdout is not None
            told = json.loads(server.stdout.readline() or "{}")  # the address, or the error
            if "url" in told:
                for text in (f"playground: {told['url']} (Ctrl-C stops)", *told["notes"]):
                    print(text, file=sys.stderr)
                if wait_until_ready(server, told["url"]):
                    open_page(told["url"])
            return server.wait()
        except KeyboardInterrupt:  # the terminal sends it to the server, too
            return server.wait()


def wait_until_ready(server: subprocess.Popen[bytes], url: str) -> bool:
    """Wait for a server that listens; return False if it ended instead."""
    while server.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=5):
                return True
        except OSError:
            time.sleep(POLL_SECONDS)
    return False


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], webbrowser.open))
