# `make bench` runs the suite in minutes and says how many, `make test` its tests, `make test-all` the slow ones, too; each
# sets up .venv when needed.
# ARGS goes to pytest: ARGS=--fwbench-profile=paper measures by the paper's protocol, for over an hour on a GPU.
# FRAMEWORKS names the lanes that are measured, as --fwbench-lanes does: FRAMEWORKS=torch,jax,tensorflow installs
# TensorFlow, too, which otherwise only `make test` needs.
# The newest Python that all lanes run on (TensorFlow has no wheels for 3.14), that is here and works, also in pyenv and
# uv; PYTHON=/path/to/it names another.
PYTHON ?= $(shell .ci/python 3.13 3.12 3.11 3)
VENV := .venv
RUN := $(VENV)/bin/python -m
INSTALL := -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
comma := ,
# JAX's default build has no CUDA; PyTorch's has.
CUDA := $(if $(shell command -v nvidia-smi 2>/dev/null),$(comma)cuda)
FRAMEWORKS ?=
ARGS ?=
SELECTED := $(if $(FRAMEWORKS),--fwbench-lanes=$(FRAMEWORKS))
ifneq ($(findstring tensorflow,$(FRAMEWORKS)),)
# Its CUDA is another than PyTorch's and JAX's, so that on a GPU it has an environment of its own.
TENSORFLOW := $(if $(CUDA),$(VENV)-tensorflow/.installed,$(VENV)/.tensorflow)
SELECTED += $(if $(CUDA),--fwbench-python=tensorflow=$(VENV)-tensorflow/bin/python)
endif
# Lanes in packages of their own: FRAMEWORKS=torch,onnxruntime installs those that it names, `make test` all. The
# package lanes/keras has keras-jax and keras-torch.
LANES := $(patsubst lanes/%/pyproject.toml,%,$(wildcard lanes/*/pyproject.toml))
CHOSEN := $(foreach lane,$(LANES),$(if $(filter $(lane) $(lane)-%,$(subst $(comma), ,$(FRAMEWORKS))),$(lane)))

.PHONY: bench test test-all gpu check docs clean

bench: $(VENV)/.installed $(TENSORFLOW) $(CHOSEN:%=$(VENV)/.lane-%)
	$(RUN) pytest tests/benchmarks --benchmark-only --benchmark-autosave --benchmark-save-data $(SELECTED) $(ARGS)

# Tests of extensions that import the frameworks.
WITH_FRAMEWORKS := tests/ext/tensorflow tests/ext/derived tests/ext/epochs/frameworks tests/ext/sizes tests/ext/whole_step

# Four runs, so that no process grows beyond 3 GiB, as frameworks, lanes' runtimes and compiled programs add up. The
# lanes' few fast tests are over before two processes have started.
test: $(VENV)/.tensorflow $(LANES:%=$(VENV)/.lane-%)
	$(RUN) pytest tests/strangers tests/unit tests/ext engines $(WITH_FRAMEWORKS:%=--ignore=%) -n 2 --dist worksteal $(ARGS)
	$(RUN) pytest lanes $(if $(findstring slow,$(ARGS)),-n 2) $(ARGS)
	$(RUN) pytest tests/training $(WITH_FRAMEWORKS) -n 2 $(ARGS)
	$(RUN) pytest tests/correctness -n 2 $(ARGS)

# The slow tests, too; CONTRIBUTING.md says what they cover.
test-all: override ARGS += -m "slow or not slow"
test-all: test

# The first ten minutes on a GPU: lanes against themselves, a run, a duet with a planted slowdown; then its page.
gpu: $(VENV)/.installed
	$(VENV)/bin/python docs/evidence/gpu.py build/gpu
	$(VENV)/bin/python docs/evidence/gpu.py --page build/gpu

check: $(VENV)/.installed
	$(RUN) ruff check .
	$(RUN) ruff format --check .
	$(RUN) mypy
	$(VENV)/bin/lint-imports --no-cache

# One site of docs/ in build/docs; a link that leads nowhere is an error.
docs: $(VENV)/.docs
	$(RUN) sphinx --quiet --fail-on-warning --builder html docs build/docs

clean:
	rm -rf $(VENV) $(VENV)-other $(VENV)-tensorflow build engines/*/build lanes/*/build *.egg-info engines/*/*.egg-info lanes/*/*.egg-info .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.installed: EXTRAS := all,dev$(CUDA)
# After fwbench, which pip 23 and older would otherwise look for in a registry.
$(VENV)/.installed: ENGINES := --editable engines/ray
$(VENV)-tensorflow/.installed: EXTRAS := data,tensorflow-cuda

$(VENV)/.installed $(VENV)-tensorflow/.installed: pyproject.toml engines/ray/pyproject.toml constraints.txt
	@$(or $(PYTHON),false) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "fwbench needs Python 3.11 or newer: make PYTHON=/path/to/it" >&2; exit 1; }
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python $(INSTALL) --editable ".[$(EXTRAS)]" $(ENGINES)
	touch $@

$(VENV)/.tensorflow: $(VENV)/.installed
	$(VENV)/bin/python $(INSTALL) --editable ".[tensorflow]"
	touch $@

$(VENV)/.docs: $(VENV)/.installed
	$(VENV)/bin/python $(INSTALL) --editable ".[docs]"
	touch $@

$(VENV)/.lane-%: lanes/%/pyproject.toml $(VENV)/.installed
	$(VENV)/bin/python $(INSTALL) --editable lanes/$*
	touch $@
