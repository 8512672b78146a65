"""Untrusted templates in processes of their own: the last resort, where a budget is not enough.

A budget counts what the engine does, and a library below it may still do something that is not counted: an endless
search in C, a huge allocation, a crash. `isolated()` starts worker processes that have limits of the operating system.
A call runs in one of them; a worker that goes over a limit, or dies, is killed and replaced, and the call ends with a
`TemplateLimitError` whose budget is "isolation".

pool.py      the pool, one worker process as the caller sees it, and templates whose calls run in the pool
worker.py    what runs in the process: its limits, and the loop over requests
answers.py   the one way back: which objects a worker may answer with
"""

from turnwise.isolation.pool import IsolatedTemplate, WorkerPool, isolated

__all__ = ["IsolatedTemplate", "WorkerPool", "isolated"]
