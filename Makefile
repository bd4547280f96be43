# Everything a user, a contributor or CI runs. `make help` lists it.
#
# PYTHON      interpreter that .venv is made with (python3)
# TORCH       what is installed as torch (torch==2.13.0); a fixed version is looked for first where pip is told to look
# REPOSITORY  section of ~/.pypirc that `make release` uploads to (local)
# SOAK        rounds of `make soak` (300)
# JOBS        tests of `make test` at the same time (6 on two cores: most of them wait for something)
# LAB_JOBS    tests of `make lab` at the same time (4)
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
# Containers often set this. Every process of the tests would compile all of its modules again.
export PYTHONDONTWRITEBYTECODE :=

PYTHON ?= python3
TORCH ?= torch==2.13.0
REPOSITORY ?= local
SOAK ?= 300
JOBS ?= 6
LAB_JOBS ?= 4

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
DONE := $(VENV)/done
APT := etcd-server etcd-client iproute2 util-linux openssl procps make openssh-client openssh-server
LAB_APT := munge slurmctld slurmd slurm-client

.PHONY: help demo test lab test-all system lab-system check types lint docs-check docs soak bench wheel release build upload clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 18

demo: $(DONE)/package ## see a job survive a killed worker and a killed node (no root needed, about a minute)
	@$(BIN)/python -m scripts.demo

test: system $(DONE)/dev ## install what the tests need; checks, docs, and all tests that need no lab
	@$(MAKE) --no-print-directory check
	$(BIN)/python -m pytest tests -m "not lab and not long" -n $(JOBS)

# The first time Kubernetes is compiled, in the background: the tests that need it wait for it, the others do not.
lab: lab-system $(DONE)/dev ## the rest: network hosts, SLURM, Docker, Kubernetes, AWS hosts, TensorFlow, JAX, long tests, pages of docs
	@mkdir -p .cache
	@[ -n "$${LATTICE_TEST_KUBECONFIG:-}" ] || tests/lab/kubernetes/prepare.sh $(BIN)/python > .cache/kubernetes.log 2>&1 & \
	builder=$$!; trap "kill $$builder 2> /dev/null || true" EXIT; \
	$(MAKE) --no-print-directory docs; \
	$(BIN)/python -m scripts.run_lab $(if $(CI),--once_more) tests -m "lab or long" -n $(LAB_JOBS)

test-all: ## make test, then make lab
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory lab

system:
	@scripts/apt_install.sh $(APT)

lab-system: system
	@scripts/apt_install.sh $(LAB_APT)

check: $(DONE)/dev ## format, lint, types, import contracts, docs
	@$(MAKE) --no-print-directory -j2 --output-sync=target docs-check types lint

types: $(DONE)/dev
	$(BIN)/mypy

lint: $(DONE)/dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports

docs-check: $(DONE)/dev
	@$(MAKE) --no-print-directory -C docs check

docs: $(DONE)/dev ## build the documentation in docs/_build/html
	@$(MAKE) --no-print-directory -C docs html

soak: $(DONE)/dev ## hundreds of restarts and membership changes in a row
	LATTICE_SOAK_ROUNDS=$(SOAK) $(BIN)/python -m pytest tests -m soak --timeout 0 -v

bench: $(DONE)/torchrunx ## compare with torchrun of the installed torch, and with torchrunx, side by side; measure lattice.rl
	$(BIN)/python -m benchmarks
	$(BIN)/python -m benchmarks.checkpoints
	$(BIN)/python -m benchmarks.rl

wheel: $(DONE)/dev ## build the wheel and the source archive in dist/
	@$(MAKE) --no-print-directory build

release: $(DONE)/dev ## build, check and upload to the index REPOSITORY of ~/.pypirc
	@$(MAKE) --no-print-directory upload

# The same without the set-up, for an environment that has all of it.
build:
	rm -rf dist build
	$(BIN)/python -m build $(BUILD_OPTIONS) --outdir dist .
	$(BIN)/python -m twine check --strict dist/*

upload: build
	$(BIN)/python -m twine upload --non-interactive --disable-progress-bar --repository $(REPOSITORY) dist/*

clean: ## remove everything that make made
	rm -rf $(VENV) .cache build dist docs/_build docs/api .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -rf src/*.egg-info

# Each step leaves a file in .venv/done, so that a second make is instant and a changed requirement installs again.
$(DONE)/venv: scripts/venv.sh
	@scripts/venv.sh $(PYTHON) $(VENV)
	@mkdir -p $(DONE) && touch $@

# torch comes first and alone: a range among other requirements makes pip look at far larger builds of it.
$(DONE)/torch: $(DONE)/venv
	$(PIP) install "$(TORCH)" numpy
	@touch $@

$(DONE)/package: $(DONE)/torch pyproject.toml requirements/common.txt
	$(PIP) install -e .
	@touch $@

$(DONE)/dev: $(DONE)/package requirements/dev.txt
	$(PIP) install -r requirements/dev.txt
	@touch $@

# torchrunx is GPL and no part of the project: it gets an environment of its own, inside of this one.
$(DONE)/torchrunx: $(DONE)/dev requirements/torchrunx.txt benchmarks/peer.py
	$(BIN)/python -m benchmarks.peer
	@touch $@
