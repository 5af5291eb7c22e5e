# The daily commands. `make` or `make help` lists them.
.DEFAULT_GOAL := help
.PHONY: $(shell sed -nE 's/^([a-z-]+):.*/\1/p' $(firstword $(MAKEFILE_LIST)))
.NOTPARALLEL:

JOBS ?= $(shell nproc)
DEPS ?= tools/install-deps
export TORCH_PYTHON ?= python3
export TORCH ?= 1
sources = $(shell find src include nccl tests examples bench backends python -name '*.cpp' -o -name '*.hpp' -o -name '*.c' -o -name '*.h')

help:  ## list these commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 17

deps:
	@$(DEPS) library test

# $(call configured,set of packages,with tests)
configured = $(DEPS) $(1) && mkdir -p build && { cmake --preset release -DTUTTI_TESTS=$(2) >build/configure.log 2>&1 || { \
  cat build/configure.log; \
  echo "tutti: configuring failed; the lines above say what is missing; type: tools/install-deps $(1)"; exit 1; }; }
configure:
	@$(call configured,library test,ON)
configure-library:  # for users: without what only tests need, if it is not there
	@$(call configured,library,$$(pkg-config --exists gtest 2>/dev/null && echo ON || echo OFF))

build: configure  ## install what is missing (Debian packages), build the library (build/lib) and everything else
	@echo "tutti: building (release) in build/"
	@cmake --build build -j $(JOBS) || { \
	  echo "tutti: the build failed; mend the first error above and type: make build"; exit 1; }

demo: configure-library  ## install what is missing, build what it takes (minutes), then watch processes work together (under a minute)
	@echo "tutti: building the library, the program and two examples in build/"
	@cmake --build build -j $(JOBS) --target demo || { \
	  echo "tutti: the build failed; mend the first error above and type: make demo"; exit 1; }
	@tools/demo build

installed: configure-library
	@echo "tutti: building what is installed in build/"
	@cmake --build build -j $(JOBS) --target installed || { \
	  echo "tutti: the build failed; mend the first error above and type the same again"; exit 1; }

PREFIX ?= /usr/local
install: installed  ## build the library, the program and the backends, and install them; PREFIX=/folder (default /usr/local)
	@cmake --install build --prefix "$(PREFIX)" >build/install.log || { \
	  echo "tutti: $(PREFIX) cannot be written to; type: make install PREFIX=/a/folder/of/yours, or type it as root"; exit 1; }
	@echo "tutti: installed in $(PREFIX); build/install.log has the list"

uninstall:  ## remove what the last `make install` installed: the files of build/install_manifest.txt
	@tools/uninstall build

bench:  ## install the peers, measure tutti beside them; the targets' table, build/bench/targets.json and a report
	@$(DEPS) library test bench
	@$(MAKE) --no-print-directory build DEPS=true
	@echo "tutti: building the benches and the peers' programs in build/bench"
	@cmake --build build -j $(JOBS) --target benches peers >build/benches.log 2>&1 || { tail -n 30 build/benches.log; \
	  echo "tutti: a bench or a peer's program does not build; see build/benches.log"; exit 1; }
	@build/bin/tutti bench all -n 2 -b 8 -e 64M -f 8 --seconds 0.05 --against openmpi,mpich,gloo --rounds 1 \
	  --report build/bench/report
	@python3 bench/targets.py --build build $(BENCH)

check: build  ## build, then run the tests that take less than a minute in all
	@pids=; for half in 0 1; do GTEST_TOTAL_SHARDS=2 GTEST_SHARD_INDEX=$$half build/tests/conformance --gtest_brief=1 \
	  --gtest_filter='*/threads*' & pids="$$pids $$!"; done; \
	ctest --test-dir build --output-on-failure -j $(JOBS) -L unit -E "$$(paste -sd '|' tests/long)" || failed=1; \
	for pid in $$pids; do wait $$pid || failed=1; done; [ -z "$$failed" ]

test: configure  ## build, then run all tests, here and under the sanitizers; the last lines are the sum. LANES="core ranks sanitizers python torch packages": some of them, and only what these need is built
	@echo "tutti: running $(if $(LANES),the tests of $(LANES),all tests); logs go to build/test-logs"
	@tools/test $(JOBS) $(LANES)

test-gpu: build  ## what only a GPU can show, on those of this machine: build/test-gpu/table.md
	@tools/test-gpu build

test-engines: python  ## tutti on the engines that people have, with their own packages: pip installs them in build/engines
	@tools/test-engines build $(ENGINES)

python: build  ## the Python package in build/python/venv, with its tests and types; pip installs what it needs there
	@tools/python build

wheel: build  ## wheels of the Python package and its backends, tried, that need nothing of this machine: build/python/wheels
	@tools/python build wheel

wheels: deps  ## wheels of the package and its backend for PyTorch, for all CPythons and glibc from 2.28 on, tried: build/manylinux/dist (an hour; TORCHES="": none for PyTorch)
	@$(DEPS) library test deb
	@JOBS=$(JOBS) tools/wheels

sdist: deps  ## the sources as pip takes them: build/python/sdist; pip installs them in a fresh environment (ten minutes)
	@tools/sdist build

arm:  ## the library on 64-bit Arm: cross compiled, tests under QEMU (half an hour; 60 MB of Debian packages into build/arm)
	@$(DEPS) arm
	@JOBS=$(JOBS) tools/arm build/arm

arm-wheel:  ## a wheel of the Python package for 64-bit Arm, tried under QEMU: build/arm/wheels (a quarter of an hour)
	@$(DEPS) arm
	@JOBS=$(JOBS) tools/arm build/arm wheel

torch: deps  ## build tutti.torch, the backend for PyTorch, in build/python; TORCH_PYTHON=/path names the Python that has PyTorch
	@echo "tutti: building tutti.torch for the PyTorch of $(TORCH_PYTHON)"
	@mkdir -p build
	@cmake --preset release -DTUTTI_TORCH=ON -DTUTTI_TORCH_PYTHON="$(TORCH_PYTHON)" >build/configure.log 2>&1 || \
	  { cat build/configure.log; echo "tutti: configuring failed; the lines above say what is missing"; exit 1; }
	@cmake --build build -j $(JOBS) --target tutti-torch tutti-cli || { \
	  echo "tutti: the build failed; mend the first error above and type: make torch"; exit 1; }
	@echo 'tutti: use it by: export PYTHONPATH=$(CURDIR)/build/python PATH=$(CURDIR)/build/bin:$$PATH'
	@echo 'tutti: then, for example: tutti run -n 2 train.py'

test-torch: build  ## PyTorch's own distributed tests on tutti, on gloo, and with gloo replaced; writes docs/pytorch-tests.md (20 minutes). TORCH_VERSION=2.14.1: ours, on that one (6 GB)
	@tools/torch-tests $(if $(TORCH_VERSION),version $(TORCH_VERSION),pytorch)

test-frameworks: build  ## small trainings of accelerate, DeepSpeed, Megatron-Core, Ray and others on tutti, NCCL programs of others on libtutti-nccl; writes docs/frameworks.md (40 minutes; 3 GB)
	@tools/torch-tests frameworks $(FRAMEWORKS)

deb: deps  ## Debian packages in build/deb, checked by lintian (10 minutes with an empty cache)
	@$(DEPS) deb
	@tools/deb

test-deb: deb  ## install the packages into a clean system made by debootstrap, use them there, remove them (5 minutes more)
	@tests/deb/packages_test

test-newcomer: deps  ## type what docs/getting-started.md says for C++ in a clean system made by debootstrap (a quarter of an hour)
	@$(DEPS) deb
	@tests/newcomer/newcomer_test

test-platforms: deps  ## build and test on other distributions with other compilers, by debootstrap; writes docs/platforms.md (10 minutes each)
	@$(DEPS) deb
	@tools/platforms

drill: build  ## 500,000 simulated worlds (a minute), then 200 jobs in network namespaces with random faults and checked results (20 minutes; DRILL="--seed 7 --jobs 1 --worlds 0": one); then 80 trainings that lose and gain ranks (20 minutes; MEMBERS="--seed 7 --jobs 1")
	@tests/drill/drill --build build --seconds 1200 --worlds 500000 $(DRILL)
	@tests/drill/members --build build $(MEMBERS)

fuzz: deps  ## parsers of bytes from outside under libFuzzer, a minute each (FUZZ="120 object": seconds, targets); needs clang
	@tools/fuzz $(FUZZ)

sanitizers:  ## only the tests that share memory or run threads, under asan+ubsan and tsan
	@$(MAKE) --no-print-directory test LANES=sanitizers

coverage: deps  ## which branches of src/ the tests of core and the collectives take: a table by rooms, none may fall below tests/coverage.tsv (20 minutes; UPDATE=1 writes it)
	@$(DEPS) coverage
	@tools/coverage $(JOBS) $(UPDATE)

spec:  ## every row of the inventory: pass, open or no-device, and how many are shown in Python (runs the tests first if they have not run)
	@if [ ! -d build/spec.d ]; then \
	  echo "tutti: no test has run yet, so the tests run first (output: build/spec-tests.log)"; \
	  $(MAKE) --no-print-directory build && ctest --test-dir build -j $(JOBS) -L unit >build/spec-tests.log 2>&1 || \
	    echo "tutti: some tests failed, their rows stay open; type: make test"; \
	fi
	@tools/spec build

docs:  ## the manual and the references of the public headers, by Doxygen, and of the Python package, by pdoc: build/docs/html/index.html
	@echo "tutti: writing the reference to build/docs/html"
	@tools/docs

format:  ## lay the code out
	@echo "tutti: laying out $(words $(sources)) files"
	@clang-format -i $(sources) || { echo "tutti: clang-format failed; type: tools/install-deps"; exit 1; }

format-check:  ## say whether the layout is right
	@clang-format --dry-run -Werror $(sources) || { echo "tutti: the layout differs; type: make format"; exit 1; }

clean:  ## remove everything that was built
	@echo "tutti: removing build/"
	@rm -rf build
