# Every command that CI and people use. Each recipe sets up what it needs first.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
HETERO := $(BIN)/hetero

.DEFAULT_GOAL := help

help:  ## List the recipes
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(STAMP): pyproject.toml constraints.txt
	scripts/install_debian.sh $(PYTHON)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all,dev]'
	touch $@

setup: $(STAMP)  ## Create .venv with everything the recipes need

model: setup  ## Fetch the default target model into the cache
	$(HETERO) models pull SmolLM2-135M-Instruct

lint: setup  ## Lint, format check, types, import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo 2>/dev/null || $(BIN)/lint-imports
	$(BIN)/python scripts/gen_protos.py --check
	$(BIN)/python -m fpga.rtl.generate --check
	$(BIN)/python scripts/gen_settings.py --check

protos: setup  ## Regenerate hetero/rpc from proto/
	$(BIN)/python scripts/gen_protos.py

settings: setup  ## Regenerate docs/settings.md from the commands' options
	$(BIN)/python scripts/gen_settings.py

rtl-generate: setup  ## Regenerate what fpga/rtl includes from Python
	$(BIN)/python -m fpga.rtl.generate

check: lint  ## Lint and the fast tests
	$(BIN)/pytest tests/unit tests/golden

test: model  ## All tests
	$(BIN)/pytest -m "not exactness and not rtl_sweep"

rtl-lint: setup  ## Lint fpga/rtl with Verilator, Icarus and yosys
	$(BIN)/pytest tests/rtl/test_lint.py

rtl-test: setup  ## Every module of fpga/rtl against its golden function, and whole tokens
	$(BIN)/pytest tests/rtl -m "not rtl_sweep"

rtl-sweep: setup  ## The long sweep over fpga/rtl: all parameters, all planted bugs (long)
	$(BIN)/pytest tests/rtl -m rtl_sweep

rtl-resources: setup  ## Count what the kv260 and u55c builds take, with yosys (long)
	$(BIN)/python -m fpga.synth.report kv260 u55c

rtl-figures: setup  ## Measure what the RTL must reach: utilisation, lanes, prefill, speed (long)
	$(HETERO) card figures --prefill-lanes 8

rtl-calibrate: setup  ## Measure the RTL anew and fit the cycle model to it (half an hour)
	$(HETERO) sim calibrate --fit --write

demo: model  ## The main job on a real prompt: real model, simulated card, gRPC between
	$(HETERO) demo

exactness: model  ## The wide real-model matrix: speculative equals plain (long)
	$(BIN)/pytest -m exactness

extras: setup  ## Install each extra alone in its own environment and use it
	scripts/check_extras.sh

serve: model  ## The inference service on loopback with the default pair
	$(HETERO) serve --http 127.0.0.1:8000 --grpc 127.0.0.1:50051

.PHONY: help setup model lint protos settings rtl-generate check test demo exactness extras serve rtl-lint rtl-test rtl-sweep rtl-resources rtl-figures rtl-calibrate
