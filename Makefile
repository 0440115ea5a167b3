# Everything starts here and works from a clean clone with Python 3.11+, make and git: `make demo`, `make test`.
SHELL := /bin/sh
BIN := .venv/bin
TOOLS := .venv/tools/bin
PYTEST := $(BIN)/python -m pytest
ARGS ?=
SEEDS ?= 0-99999
# Every router and client of a test is a process: without bytecode each of them would compile all its modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test check unit sim sim-long chaos chaos-long compiled bench docs wheel image lock audit clean venv runtime tools fuzz interop

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

demo: runtime ## three routers, one killed in mid-stream, and the ledger
	@$(BIN)/onceway demo $(ARGS)

test: tools ## the whole test suite, and beside it make check and 1,000 random schedules
	@scripts/test.sh $(ARGS)

check: tools ## ruff, mypy --strict, import-linter, requirements.lock
	@echo "ruff" && $(BIN)/ruff check . && $(BIN)/ruff format --check .
	@echo "mypy --strict" && $(BIN)/mypy
	@echo "import-linter" && $(BIN)/lint-imports
	@echo "requirements.lock" && $(PYTEST) -q -k lock tests/onceway/test_packaging.py
	@scripts/audit.sh --if-reachable

unit: tools ## the tests that take a moment: no processes, no interop
	@$(PYTEST) tests/amqp10 tests/mqtt tests/router tests/interrouter tests/onceway -m "not slow and not long" $(ARGS)

sim: tools ## in virtual time: deliberate defects that must be caught, the smallest worlds, five minutes of random schedules
	@$(BIN)/python -m chaos.simulate --mutations
	@$(BIN)/python -m chaos.simulate --exhaustive
	@$(BIN)/python -m chaos.simulation.mqtt --seeds 0-999
	@$(BIN)/python -m chaos.simulate --seconds 300 --check-every 1 $(ARGS)

sim-long: tools ## all of the smallest worlds (an hour, 8 GiB), 100,000 schedules: SEEDS=0-99999
	@$(BIN)/python -m chaos.simulate --exhaustive --world all --limit-states 7500000 --seconds 1200 --jobs 2
	@$(BIN)/python -m chaos.simulate --seeds $(SEEDS) --jobs 2 $(ARGS)

chaos: tools ## live networks under faults: every short schedule of chaos/live/schedules, judged, in each mode of security; 100 deaths of a bus on each store; the long tests
	@for mode in plain tls mutual; do $(BIN)/onceway chaos all --security $$mode $(ARGS) || exit; done
	@$(PYTEST) -m long --timeout 600
	@BUS_KILLS=100 $(PYTEST) tests/edges/bus/test_several.py -m slow -s --timeout 3600

interop: tools ## clients of others (pip, npm and apt-get install them), and docs/interop.md from what they have shown
	@scripts/interop.sh $(ARGS)

chaos-long: tools ## 200 kills of routers under load in one run
	@$(BIN)/onceway chaos run two_hundred_kills $(ARGS)

fuzz: tools ## whatever strangers may send: what it costs, by structure, then by bytes (ARGS go to python -m chaos.fuzz)
	@$(BIN)/python -m chaos.fuzz --cost --seconds 3600
	@FUZZ=big FUZZ_EXAMPLES=$${FUZZ_EXAMPLES:-2000} $(PYTEST) tests/fuzz/test_structure.py --timeout 3600
	@$(BIN)/python -m chaos.fuzz --seconds 300 $(ARGS)

bench: tools ## CPU per delivery and latency beside other brokers, as tables (bench/README.md)
	@$(BIN)/python -m bench $(ARGS)

docs: tools ## the documentation as a site in site/, every link checked
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

wheel: venv $(TOOLS)/python ## dist: wheels with compiled modules (for this Python and machine) and of sources; what they need, as CycloneDX
	@rm -rf dist build/lib
	@why=$$($(BIN)/python -c 'import setup; print(setup.lacking())'); \
		if [ -n "$$why" ]; then echo "no compiled modules: $$why"; else \
		echo "compiling, some minutes (ONCEWAY_COMPILED=0 does without)" && $(BIN)/python -m pip wheel -q --no-deps -w dist .; fi
	@rm -rf build/lib && ONCEWAY_COMPILED=0 $(BIN)/python -m pip wheel -q --no-deps -w dist .
	@$(TOOLS)/python -m pip install -q cyclonedx-bom
	@$(TOOLS)/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml --mc-type application --output-reproducible --validate \
		-o $$(ls dist/onceway-*-py3-none-any.whl | sed 's/-py3.*/.cdx.json/') 2>/dev/null
	@ls dist

# Programs about packages, apart from what is tested.
$(TOOLS)/python: | venv
	@$(BIN)/python -m venv .venv/tools

# The lock holds for every Python and system that we run on.
lock: $(TOOLS)/python ## requirements.lock: what a wheel needs to run, each with its version and hashes
	@$(TOOLS)/python -m pip install -q uv
	@$(TOOLS)/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header \
		--extra postgresql --extra metadata --extra oauth pyproject.toml -o requirements.lock

audit: venv ## known vulnerabilities of what requirements.lock names (asks pypi.org)
	@scripts/audit.sh

compiled: tools ## the tests of the engine, routers and networks, and random schedules, with compiled modules
	@scripts/compiled.sh $(ARGS)

image: ## the image of a router, onceway:VERSION, with modules compiled for its Python (DOCKER=podman uses podman)
	@$${DOCKER:-docker} build --tag onceway:$$(sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml) .

clean: ## back to a clean clone
	@rm -rf .venv build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache tests/interop/node_modules
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

venv:
	@scripts/bootstrap.sh venv

runtime:
	@scripts/bootstrap.sh runtime

tools:
	@scripts/bootstrap.sh test
