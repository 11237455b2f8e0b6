# Everything a newcomer needs: `make demo` shows the tool at work, `make test` checks it.
# Only Python >= 3.11 and make are assumed; `make setup` puts the rest into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ENGINES := .venv-engines
ENGINES_STAMP := $(ENGINES)/.installed

.PHONY: help setup test lint types tests test-slow test-engines test-package docs demo bench clean

help:  ## show what can be made
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: $(STAMP)  ## make .venv and install the package with all its extras

$(STAMP): pyproject.toml constraints.txt src/daes/native/kernels.c $(wildcard src/daes/native/kernels/*.h)
	@echo "==> setting up $(VENV)"
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else f"daes needs Python >= 3.11, this is {v.major}.{v.minor}: set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

test: setup lint types tests  ## check format, lint, types, and run the tests

lint: setup
	@echo "==> ruff"
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: setup
	@echo "==> mypy --strict"
	$(BIN)/mypy

tests: setup
	@echo "==> pytest"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto  # one process per core, so one thread per process

test-slow: setup  ## run the tests that take longer
	@echo "==> pytest -m slow"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow -n auto

# Other people's packages, large and with needs of their own, in an environment of their own. What cannot be installed
# is left out, and its tests are skipped and say so. TorchRec's own requirements ask for CUDA: it is installed without.
$(ENGINES_STAMP): pyproject.toml constraints.txt
	@echo "==> setting up $(ENGINES)"
	$(PYTHON) -m venv $(ENGINES)
	$(ENGINES)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[test]' 'polars<2'
	@for packages in "-e '.[ray]'" "-e '.[spark]'" "'moto[server]'" "pytorch-frame" "river" "huggingface-hub" "fuxictr 'polars<2'" \
		"fbgemm-gpu-cpu==1.8.0 tensordict torchmetrics iopath pyre-extensions tqdm" "--no-deps torchrec==1.8.0"; do \
		eval "$(ENGINES)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt $$packages" || \
			echo "$$packages cannot be installed: the tests that need it will be skipped"; \
	done
	@touch $(ENGINES_STAMP)

test-engines: $(ENGINES_STAMP)  ## run the tests with Ray, Spark, TorchRec, an S3 server and other libraries
	@echo "==> pytest -m engines"
	OMP_NUM_THREADS=1 $(ENGINES)/bin/python -m pytest -m engines -rs tests/engines tests/adapters tests/experiments tests/stream tests/test_package.py

test-package: setup  ## build the wheel, install it in empty environments and use it there
	@echo "==> pytest tests/test_package.py"
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m package -rs tests/test_package.py

docs: setup  ## build the documentation: build/site/index.html
	@echo "==> mkdocs build"
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "wrote build/site; search works where it is served: $(BIN)/mkdocs serve"

demo: setup  ## run the main job on an embedded default
	@echo "==> daes demo"
	$(BIN)/daes demo

bench: setup  ## measure the estimators against their peers
	$(BIN)/python benchmarks/estimators.py

clean:  ## remove .venv and caches
	rm -rf $(VENV) $(ENGINES) .mypy_cache .ruff_cache .pytest_cache
