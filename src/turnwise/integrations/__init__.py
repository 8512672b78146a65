"""Plug-ins for the programs that people run, one module for each, imported only when used.

A host (a trainer, an engine) calls a module here through a hook of its own; the module translates that call to a
template's own verbs and decides nothing itself. Importing a module of this package never imports its host: what a
module needs of the host is imported in the function that needs it, so signatures can be tested without the host. The
exceptions are modules whose classes extend the host's (`vllm_parsers`, `vllm_renderer`, `sglang_detectors`): the host
itself imports them, by name, when one of them is asked for.
"""
