"""The HTTP service: prompts, token ids and parsed replies for programs that have no Python engine of their own.

app.py             paths, middleware, the life of the process
settings.py        what a server allows: sizes, times, hosts
bodies.py          requests are read: size, JSON, fields; every refusal is one sentence
models.py          the models that one process serves
memory.py          conversations by prefix: what an earlier request has proven of a later one
rendering.py       a chat becomes a request of token ids: `/v1/chat/completions/render`, `/tokenize`
derendering.py     token ids of a reply become a message: `/v1/chat/completions/derender`
gateway.py         a chat becomes a reply, sampled by an upstream: `/v1/chat/completions`
operations.py      metrics, logs, and errors in OpenAI's shape
playground_api.py  the playground's calls, without HTTP

Bodies have vLLM's paths and names, since those are what programs call today. Only `app.py`, `gateway.py` and what they
need import starlette and httpx: install `turnwise[serve]`.
"""
