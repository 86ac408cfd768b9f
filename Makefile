# make demo   masks of photos, then the whole job on generated images
# make test   every check: ruff, mypy --strict, pytest with coverage
# make lint   the first two alone
# make torture   crashes, full disks and lost processes, in minutes; make torture-long in hours
# make test-gpu   the tests of code for GPUs, on a machine that has one
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-gpu torture torture-long lint clean

demo: $(VENV)/.installed
	$(BIN)/tagseg demo

test: lint
	$(BIN)/pytest -n 2 --cov --cov-report=term --cov-fail-under=90

torture: $(VENV)/.installed
	TAGSEG_TORTURE=3 $(BIN)/pytest tests/torture

torture-long: $(VENV)/.installed
	TAGSEG_TORTURE=100 $(BIN)/pytest tests/torture

test-gpu: $(VENV)/.installed
	$(BIN)/pytest -m gpu

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# uv installs in a minute what pip takes several for. The stamp is written last, so an install that was cut starts again.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv
	$(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage demo
