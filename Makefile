# Everything happens in .venv; nothing is installed on the machine itself.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMPS := $(VENV)/.stamps
PROTOS := src/horae/wire/horae/v1 src/horae/wire/cis
PYTEST ?= $(BIN)/python -m pytest
# Of what tests invent and of their order: the same every time, unless another is asked for.
SEED   ?= 1
# Of two cores, two workers leave a fifth idle, and three a tenth: many tests wait for real processes.
WORKERS ?= 4
# Where bytecode is not kept, each of the hundreds of programs that tests start compiles what it imports: half as dear again.
unexport PYTHONDONTWRITEBYTECODE
SUITE   = $(PYTEST) -n $(WORKERS) --dist loadgroup --randomly-seed=$(SEED)

.PHONY: help setup up wire test test-random test-engines lint check format docs demo screenshots bench peers audit campaign simulate clean

help:            ## list these targets
	@grep -hE '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(BIN)/uv:
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "uv==$$(sed -n 's/^uv==//p' constraints.txt)"

$(STAMPS)/base: pyproject.toml constraints.txt | $(BIN)/uv
	@echo "horae: installing into $(VENV)"
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet -c constraints.txt -e .
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/dev: $(STAMPS)/base
	@echo "horae: installing what the tests need"
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

setup: $(STAMPS)/base   ## make .venv/bin/horae

up: setup               ## run Horae on its embedded default, http://127.0.0.1:8080
	@exec $(BIN)/horae up

test: $(STAMPS)/dev     ## all tests: unit, both stores, the API, real processes
	$(SUITE) -m "not long" --ignore=tests/engines

# A failure says how to repeat it: with the seed that is printed first.
test-random: SEED := $(shell $(PYTHON) -c 'import random; print(random.getrandbits(32))')
test-random: $(STAMPS)/dev   ## tests that invent what they try, from a seed of chance (SEED=n repeats one)
	@echo "horae: make test-random SEED=$(SEED) repeats this"
	$(SUITE) --hypothesis-profile=random --hypothesis-seed=$(SEED) $(shell grep -rlE "hypothesis|schemathesis" tests --include="test_*.py")

# Debian packages, where we may install them; what is missing afterwards the tests say.
$(STAMPS)/engines: tests/engines/packages.txt pyproject.toml constraints.txt | $(STAMPS)/dev
	@echo "horae: installing the libraries of the engines"
	@VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet -c constraints.txt -e '.[dev,engines]'
	@if [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; then \
	  echo "horae: installing the Debian packages of tests/engines/packages.txt"; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	    $$(grep -v '^#' $<) $$(command -v npm > /dev/null || echo nodejs npm) > /dev/null; \
	else echo "horae: not root on Debian: the engines of tests/engines/packages.txt are taken as they are"; fi
	@touch $@

# Three daemons of Docker get in each other's way.
test-engines: WORKERS := 2
test-engines: $(STAMPS)/dev $(STAMPS)/engines   ## tests that need engines of the machine (sandboxes, toolchains), or long
	$(SUITE) -m "engine or long" tests

lint: $(STAMPS)/dev     ## format, lint, strict types, spelling
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/codespell src docs bench campaign simulation README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md

check: lint             ## lint, and import rules, docs freshness, fast tests
	exec $(SUITE) -q -m "not slow and not long" tests/unit tests/test_architecture.py tests/test_docs.py tests/test_contract_rows.py \
	  tests/test_policy_rows.py

format: $(STAMPS)/dev   ## format and fix what can be fixed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

wire: $(STAMPS)/dev     ## make the messages of gRPC from their .proto files
	$(BIN)/python -m grpc_tools.protoc $(patsubst %,-Ihorae/wire/generated=%,$(PROTOS)) --python_out=src --pyi_out=src \
	  $(addprefix horae/wire/generated/,$(notdir $(wildcard $(addsuffix /*.proto,$(PROTOS)))))

docs: $(STAMPS)/dev     ## write the generated reference pages
	$(BIN)/python docs/generate.py

demo: $(STAMPS)/dev    ## a server with believable jobs and a week of history, on port 8080
	@test -e .demo/horae.db || $(BIN)/python -m demo .demo
	$(BIN)/horae up --data .demo

screenshots: $(STAMPS)/dev $(STAMPS)/engines   ## a picture of every page, light and dark, at three widths, into .screenshots
	@test -e .demo/horae.db || $(BIN)/python -m demo .demo
	$(BIN)/python -m demo.screenshots .demo .screenshots

bench: $(STAMPS)/dev    ## every figure, one JSON line each (see bench/README.md)
	$(BIN)/python -m bench all

# Programs of others, to be measured beside: for `python -m bench peers`.
peers: bench/peers/package.json bench/peers/requirements.txt | $(STAMPS)/dev   ## install other schedulers, to be measured beside ours
	@mkdir -p $(VENV)/peers && cp $< $(VENV)/peers/
	@$(BIN)/uv venv --quiet --allow-existing $(VENV)/peers
	@VIRTUAL_ENV=$(VENV)/peers $(BIN)/uv pip install --quiet -r bench/peers/requirements.txt
	@cd $(VENV)/peers && npm install --no-audit --no-fund --no-package-lock --loglevel=error

audit: $(STAMPS)/dev    ## known vulnerabilities of what we install, secrets in the repository, licences
	$(BIN)/python -m tests.audit

campaign: $(STAMPS)/dev ## break a real cluster for SECONDS (600), judge what it promised: SEED=n STORE=postgres|patroni|sqlite QUEUE=nats FILES=s3
	$(BIN)/python -m campaign --seconds $(or $(SECONDS),600) --seed $(or $(SEED),1) --store $(or $(STORE),postgres) \
	  --queue $(or $(QUEUE),database) --files $(or $(FILES),directory) \
	  --nodes 3 --agents 2

simulate: $(STAMPS)/dev ## live through SEEDS (1000) of a simulated cluster, from SEED on; the first that fails is replayed
	$(BIN)/python -m simulation --seeds $(or $(SEEDS),1000) --seed $(SEED)

clean:                  ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
