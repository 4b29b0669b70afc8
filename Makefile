# `make bench` runs the suite in minutes and says how many, `make test` its tests; each sets up .venv when needed.
# ARGS goes to pytest: ARGS=--fwbench-profile=paper measures by the paper's protocol, for over an hour on a GPU.
# The newest Python that all lanes run on and that is here and works; PYTHON=/path/to/it names another.
PYTHON ?= $(shell for python in python3.13 python3.12 python3.11 python3; do \
	if $$python -c 'import ensurepip' 2>/dev/null; then echo $$python; break; fi; done)
VENV := .venv
RUN := $(VENV)/bin/python -m
# JAX's default build has no CUDA; PyTorch's has.
CUDA := $(if $(shell command -v nvidia-smi 2>/dev/null),$(comma)cuda)
comma := ,
ARGS ?=

.PHONY: bench test check clean

bench: $(VENV)/.installed
	$(RUN) pytest tests/benchmarks --benchmark-only --benchmark-autosave --benchmark-save-data $(ARGS)

test: $(VENV)/.installed
	$(RUN) pytest tests/strangers tests/unit -n 2 $(ARGS)
	$(RUN) pytest tests/correctness -n 2 $(ARGS)
	$(RUN) pytest tests/training -n 2 $(ARGS)

check: $(VENV)/.installed
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy

clean:
	rm -rf $(VENV) $(VENV)-other build *.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.installed: pyproject.toml constraints.txt
	@$(or $(PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "fwbench needs Python 3.11 or newer: make PYTHON=/path/to/it" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(RUN) pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[all,dev$(CUDA)]"
	touch $@
