# The daily commands. `make help` lists them.
.DEFAULT_GOAL := help
.PHONY: help build test sanitizers spec format format-check clean

JOBS ?= $(shell nproc)

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:.*## /\t/' | expand -t 14

deps:
	@tools/install-deps

build: deps  ## build the library (build/lib)
	@echo "tutti: building (release) in build/"
	@cmake --preset release >build-configure.log 2>&1 || { cat build-configure.log; rm -f build-configure.log; \
	  echo "tutti: configuring failed; the lines above say what is missing (tools/install-deps installs it)"; exit 1; }
	@rm -f build-configure.log
	@cmake --build build -j $(JOBS) || { echo "tutti: the build failed; the first error above is the one to mend"; exit 1; }

test: build  ## build and run all tests
	@echo "tutti: running the tests (release)"
	@rm -rf build/spec.d
	@ctest --test-dir build --output-on-failure -j $(JOBS)
	@$(MAKE) --no-print-directory spec | tail -n 1

sanitizers: deps  ## run the tests that touch memory sharing and threads under asan+ubsan and tsan
	@for preset in asan tsan; do \
	  echo "tutti: building and running the tests under $$preset"; \
	  cmake --preset $$preset >/dev/null && cmake --build build/$$preset -j $(JOBS) --target sanitizer_tests >/dev/null && \
	  ctest --test-dir build/$$preset --output-on-failure -L memory || exit 1; \
	done

spec:  ## print every row of the inventory: pass, open or no-device (after make test)
	@tools/spec build

format:  ## lay the code out
	@git ls-files '*.cpp' '*.hpp' | xargs clang-format -i

format-check:
	@git ls-files '*.cpp' '*.hpp' | xargs clang-format --dry-run -Werror || \
	  { echo "tutti: the layout differs; type: make format"; exit 1; }

clean:  ## remove everything that was built
	@rm -rf build
