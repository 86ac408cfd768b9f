# make demo   masks of photos, then the whole job on generated images
# make test   every check: ruff, mypy --strict, pytest
# make coverage   the tests with their coverage of lines and branches
# make lint   the first two alone
# make test-oldest   the tests on the lowest versions that pyproject.toml admits
# make torture   crashes, full disks, lost processes and damaged files, in minutes; make torture-long in hours
# make test-app   the page of tagseg app in Chromium, which it installs where apt is, and its figures in a minute
# make test-formats   the tests that read exported masks with ultralytics, datumaro and label-studio-sdk
# make test-gpu   the tests of code for GPUs, on a machine that has one
# make docs   the documentation as a site in build/site/
# make figures   figures, screenshots and notebooks of the documentation
# make audit   known vulnerabilities of the pinned versions
# make release   wheel, source distribution and bill of materials in dist/, built twice and tried in a bare environment
PYTHON ?= python3
VENV := .venv
OLDEST := .venv-oldest
# Annotation tools need other versions of packages; tests start them in this environment.
FORMATS := .venv-formats
BIN := $(VENV)/bin
# What a release is tried in; nothing in it is published.
TRIAL := build/release
# Finds violations of accessibility in the page; only its tests load it.
AXE := 4.14.1
# Empty installs the newest versions in place of the pinned ones: make test CONSTRAINTS=
CONSTRAINTS := -c constraints.txt
INSTALL_UV := -m pip install --quiet --disable-pip-version-check $(CONSTRAINTS) uv

.PHONY: demo test coverage test-oldest test-app test-gpu torture torture-long lint docs figures audit release test-formats clean

demo: $(VENV)/.installed
	$(BIN)/tagseg demo

test: lint
	$(BIN)/pytest -n 2 --dist worksteal -rs

coverage: $(VENV)/.installed
	$(BIN)/pytest -n 2 --cov --cov-report=term --cov-fail-under=90

test-oldest: $(OLDEST)/.installed
	$(OLDEST)/bin/pytest -n 2 -m "not gpu"

test-formats: $(VENV)/.installed $(FORMATS)/.installed
	$(BIN)/pytest tests/export -rs

torture: $(VENV)/.installed
	TAGSEG_TORTURE=3 $(BIN)/pytest tests/torture

torture-long: $(VENV)/.installed
	TAGSEG_TORTURE=100 $(BIN)/pytest tests/torture

test-app: $(VENV)/.installed
	@if ! command -v chromium >/dev/null && command -v apt-get >/dev/null && test "$$(id -u)" = 0; \
	then apt-get update && apt-get install -y --no-install-recommends chromium; fi
	npm install --no-save --no-package-lock --silent axe-core@$(AXE)
	$(BIN)/pytest tests/app
	$(BIN)/python -m tests.app.measure

test-gpu: $(VENV)/.installed
	$(BIN)/pytest -m gpu

lint: $(VENV)/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: export NO_MKDOCS_2_WARNING = 1
docs: $(VENV)/.installed
	$(BIN)/mkdocs build --strict

figures: $(VENV)/.installed
	$(BIN)/python -m tools.figures docs
	$(BIN)/python -m tools.notebooks docs/notebooks

audit: $(VENV)/.installed
	@if $(BIN)/python -c "from urllib.request import urlopen; urlopen('https://pypi.org/pypi/pip/24.0/json', timeout=20)" 2>/dev/null; \
	then $(BIN)/uv tool run pip-audit --strict --no-deps --disable-pip -r constraints.txt; \
	else echo "pip-audit: skipped, because PyPI's vulnerability service is out of reach"; fi

# The wheel is built from the source distribution. Times in both are the commit's, so that another build has the same bytes.
release: export SOURCE_DATE_EPOCH = $(shell git log -1 --format=%ct)
release: audit
	@test -z "$$(git status --porcelain)" || { echo "release: commit or remove these files first:"; git status --short; exit 1; }
	rm -rf dist $(TRIAL)
	$(BIN)/uv build --quiet --out-dir dist
	$(BIN)/uv build --quiet --out-dir $(TRIAL)/again
	for file in dist/tagseg-*; do cmp $$file $(TRIAL)/again/$${file##*/} || exit 1; done
	$(BIN)/uv tool run twine check --strict dist/tagseg-*
	$(BIN)/uv pip compile --quiet --only-binary :all: --extra dev -c constraints.txt -o $(TRIAL)/wheels.txt pyproject.toml
	$(BIN)/uv venv --quiet --python $(BIN)/python $(TRIAL)/venv
	$(BIN)/uv pip install --quiet --python $(TRIAL)/venv --only-binary :all: -c constraints.txt dist/tagseg-*.whl
	$(TRIAL)/venv/bin/tagseg --version
	$(TRIAL)/venv/bin/tagseg predict src/tagseg/photos/chelsea.jpg -o $(TRIAL)/predictions
	$(TRIAL)/venv/bin/tagseg doctor
	PATH="$(CURDIR)/$(BIN):$$PATH" PYTHON=$(CURDIR)/$(BIN)/python sh docker/install.sh $(CURDIR)/$(TRIAL)/image
	rm $(TRIAL)/venv/lib/python*/site-packages/tagseg-*.dist-info/direct_url.json  # this machine's path to the wheel
	$(BIN)/uv tool run --from cyclonedx-bom cyclonedx-py environment --output-reproducible --of JSON \
		-o dist/tagseg.cdx.json $(TRIAL)/venv/bin/python

# uv installs in a minute what pip takes several for. The stamp is written last, so an install that was cut starts again.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python $(INSTALL_UV)
	$(BIN)/uv pip install --quiet --python $(BIN)/python $(CONSTRAINTS) -e ".[dev]"
	touch $@

$(OLDEST)/.installed: pyproject.toml
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python $(INSTALL_UV)
	$(OLDEST)/bin/uv pip install --quiet --python $(OLDEST)/bin/python --resolution lowest-direct -e ".[dev]"
	touch $@

$(FORMATS)/.installed: tests/export/real_tools/requirements.txt $(VENV)/.installed
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(FORMATS)
	$(BIN)/uv pip install --quiet --python $(FORMATS)/bin/python --only-binary :all: -r $<
	touch $@

clean:
	rm -rf $(VENV) $(OLDEST) $(FORMATS) .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage build demo dist
