# Needs only Python >= 3.11, git and make: each target makes the environment it needs on first use.
PYTHON ?= python3
PYTEST_ARGS ?=
BENCH_ARGS ?=
# without byte code each process of a test compiles all modules anew
unexport PYTHONDONTWRITEBYTECODE
# $(call in_env,NAME) starts a shell line in which $$python is the interpreter of that environment
in_env = python=$$(PYTHONPATH="$(CURDIR)/scripts" $(PYTHON) -m npu_upgrade.environments $(1)) &&

.PHONY: help demo test test-all test-install lint format bench bench-replay bench-audit bench-port bench-lineage bench-emulator bench-pipelines bench-runners bench-gates bench-wrong-weights docs validate validate-npu bench-analyze tutorials bench-walk bench-adapt bench-signoff bench-watch
help: ## show this list
	@echo "make targets (PYTHON=... chooses the interpreter):"
	@sed -n 's/^\([a-z-]*\):.*## /  \1\t/p' $(MAKEFILE_LIST) | expand -t 18

demo: ## show an upgrade end to end on real releases
	@$(call in_env,tools) PYTHONPATH=scripts "$$python" lab/demo.py

# tests of servers and processes wait for half of their time
WORKERS := $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) * 3 / 2 )))

test: lint ## lint, types, contracts and the unit tests without a network, minutes (PYTEST_ARGS="-k name" to choose)
	@$(call in_env,test) "$$python" -m pytest -n $(WORKERS) --dist worksteal -m "not network" tests/unit $(PYTEST_ARGS)
	@echo "make test: lint, format, types, contracts and unit tests passed"

test-all: lint ## that, and releases, incidents, emulator, runners, serving (PYTEST_ARGS=--keep goes on after a cut)
	@$(call in_env,test) ALL_EXAMPLES=1 "$$python" -m pytest -n auto --dist loadgroup tests $(PYTEST_ARGS)
	@echo "make test-all: all tests passed; a skip says what this machine lacks"

test-install: ## install the skill with two installers, and the wheels; run documented commands (needs Node 20)
	@$(call in_env,install) "$$python" -m pytest -m install -p no:cacheprovider tests/install $(PYTEST_ARGS)
	@echo "make test-install: what was not skipped passed; a skip says what is BLOCKED here"

lint: ## ruff (lint and format), ty, and import-linter (which room may import which), changing nothing
	@$(call in_env,test) bin=$$(dirname "$$python") && \
	  "$$bin/ruff" check . && "$$bin/ruff" format --check . && "$$bin/ty" check --python "$$bin/.." scripts lab/bench lab/incident_notes.py && \
	  PYTHONPATH=scripts:lab "$$bin/lint-imports" --no-logo --no-cache

format: ## put the code into ruff's format, with the safe fixes of its linter
	@$(call in_env,test) bin=$$(dirname "$$python") && "$$bin/ruff" check --fix . ; "$$bin/ruff" format .

bench: bench-replay bench-audit bench-port ## three benchmarks of minutes; each bench-*: BENCH_ARGS=--whole for every case

bench-replay: ## replay past upgrades and compare with what the maintainers did
	@$(call in_env,tools) PYTHONPATH=scripts:lab "$$python" -m bench.replay $(BENCH_ARGS)

bench-audit: ## incident cases, gaps of releases, precision and time of the audit (BENCH_ARGS="--case ID")
	@$(call in_env,tools) PYTHONPATH=scripts:lab "$$python" -m bench.audit $(BENCH_ARGS)

bench-port: ## measure the port list on past releases (BENCH_ARGS="--held-out --cases")
	@$(call in_env,test) PYTHONPATH=scripts:lab "$$python" -m bench.port $(BENCH_ARGS)

bench-lineage: ## time base inference over releases, or a full clone (BENCH_ARGS="--ascend git:PATH")
	@$(call in_env,tools) PYTHONPATH=scripts:lab "$$python" -m bench.lineage $(BENCH_ARGS)

bench-emulator: ## released pairs, seeded defects and natural upgrades on emulated CANN (BENCH_ARGS="--pair 0.24.0")
	@$(call in_env,tools) PYTHONPATH=scripts:lab "$$python" -m bench.emulator $(BENCH_ARGS)

bench-pipelines: ## vllm-omni's real pipelines on emulated CANN, judged (BENCH_ARGS="--pair 0.24.0")
	@$(call in_env,tools) PYTHONPATH=scripts:lab "$$python" -m bench.pipelines $(BENCH_ARGS)

bench-runners: ## throughput of our runners on real vLLM, and where they run (BENCH_ARGS="--only speed")
	@$(call in_env,tools) PYTHONPATH=scripts:lab "$$python" -m bench.runners $(BENCH_ARGS)

bench-gates: ## break servers on purpose: what the serve gate says of each fault (BENCH_ARGS="--case shard")
	@$(call in_env,tools) PYTHONPATH=scripts:lab "$$python" -m bench.gates $(BENCH_ARGS)

bench-wrong-weights: ## servers that compute wrongly, and right ones, against Transformers (BENCH_ARGS="--case rope")
	@$(call in_env,tools) PYTHONPATH=scripts:lab "$$python" -m bench.wrong_weights $(BENCH_ARGS)

# $(call given,OPTION,VALUE) is the option when the variable is set
given = $(if $(2),$(1) "$(2)")

# a recipe runs in the skill's folder: its paths and its evidence are those of the folder make was called from
from_there = cd "$(or $(PWD),$(CURDIR))" &&

validate: ## climb the ladder this machine can: static, emulated, CPU dummy, CPU real (VALIDATE_ARGS="--rungs static")
	@$(call in_env,tools) $(from_there) "$$python" "$(CURDIR)/scripts/upgrade.py" validate --format text $(VALIDATE_ARGS)

validate-npu: ## all gates on hardware (MODEL=, OMNI=1 or 0, GATES=, TP=, MATRIX=, BEFORE=, RAY=, WORKSPACE=, VALIDATE_ARGS=)
	@$(call in_env,tools) $(from_there) "$$python" "$(CURDIR)/scripts/upgrade.py" validate --npu --format text \
	  $(call given,--model,$(MODEL)) $(call given,--mode,$(if $(OMNI),$(if $(filter 0 no plain,$(OMNI)),plain,omni))) \
	  $(call given,--gates,$(GATES)) $(call given,--tp,$(TP)) $(call given,--matrix,$(MATRIX)) \
	  $(call given,--before,$(BEFORE)) $(call given,--ray,$(RAY)) $(call given,--workspace,$(WORKSPACE)) $(VALIDATE_ARGS)

bench-analyze: ## the analysis of models against vLLM's own view, and its plan of memory (BENCH_ARGS="--only configs")
	@$(call in_env,tools) PYTHONPATH=scripts:lab "$$python" -m bench.analyze $(BENCH_ARGS)

tutorials: ## tutorials and accuracy configs of tiny models from their evidence: WORKSPACE=DIR MODELS="NAME NAME"
	@$(call in_env,tools) for model in $(or $(MODELS),$(error name the models: MODELS="NAME NAME")); do \
	  "$$python" scripts/adapt.py artifacts "$$model" --workspace "$(or $(WORKSPACE),.)" --tree . \
	    --unpublished "checkpoints/$$model" || exit 1; done

bench-walk: ## walk two real upgrades through next and resolve alone (BENCH_ARGS="--only 0.20-0.22 --emulate skip")
	@$(call in_env,tools) PYTHONPATH=scripts:lab "$$python" -m bench.walk $(BENCH_ARGS)

bench-adapt: ## walk tiny models from their folder to a commit by next alone (BENCH_ARGS="--case dense")
	@$(call in_env,tools) PYTHONPATH=scripts:lab "$$python" -m bench.adapt $(BENCH_ARGS)

bench-signoff: ## try to get signed off what did not run, and deliver what did (BENCH_ARGS="--case pack")
	@$(call in_env,tools) PYTHONPATH=scripts:lab "$$python" -m bench.signoff $(BENCH_ARGS)

bench-watch: ## upstream's commits between releases as the watch saw them (BENCH_ARGS="--clone PATH")
	@$(call in_env,tools) PYTHONPATH=scripts:lab "$$python" -m bench.watch $(BENCH_ARGS)

docs: ## build the documentation into site/
	@$(call in_env,docs) NO_MKDOCS_2_WARNING=1 "$$python" -m mkdocs build --strict
