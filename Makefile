# Everything from a clean clone with Python >= 3.10 and a C++17 compiler:
#
#   make serve    build, install into .venv and start the server      PORT= MODEL= DEVICE= ARGS=
#   make test     the unit tests                                      ARGS=  (pytest's)
#   make lint     ruff, mypy, clang-format
#   make eval     40 agent chats: are the tool calls right?           URL= MODEL= DEVICE=
#   make kl       KL divergence of the CPU backend to llama.cpp
#   make bench    tokens per second beside llama.cpp                  MODEL= DEVICE=
#   make clean    remove .venv and build
#
# eval, kl and bench print a short table last and fail when a recorded bound is missed.

PYTHON ?= python3
VENV   ?= .venv
PORT   ?= 8080
MODEL  ?=
DEVICE ?=
URL    ?=
ARGS   ?=

PY      := $(VENV)/bin/python
BUILD   := build/release
SOURCES := CMakeLists.txt $(shell find native -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh')
OPTIONS := $(if $(MODEL),--model $(MODEL)) $(if $(DEVICE),--device $(DEVICE))

# The CUDA backend is built where its sources and nvcc are.
HAS_CUDA := $(if $(wildcard native/cuda),yes)
HAS_NVCC := $(if $(or $(shell command -v nvcc 2>/dev/null),$(wildcard /usr/local/cuda/bin/nvcc)),yes)
CUDA     := $(if $(and $(HAS_CUDA),$(HAS_NVCC)),ON,OFF)
NO_CUDA  := $(if $(HAS_CUDA),$(if $(HAS_NVCC),,nvcc was not found),this version computes on the CPU)

.DELETE_ON_ERROR:
.PHONY: serve test native-test lint eval kl bench clean

serve: $(VENV)/.package
	$(VENV)/bin/pyjet serve --show-curl --port $(PORT) $(OPTIONS) $(ARGS)

test: $(VENV)/.package $(VENV)/.test native-test
	$(PY) -m pytest $(ARGS)

native-test: $(VENV)/.package
	@if ls native/tests/test_*.cc >/dev/null 2>&1; then \
	    $(VENV)/bin/cmake -S . -B $(BUILD) -DPJ_NATIVE_TESTS=ON >/dev/null && \
	    $(VENV)/bin/cmake --build $(BUILD) && \
	    $(VENV)/bin/ctest --test-dir $(BUILD) --output-on-failure; \
	fi

lint: $(VENV)/.lint
	$(PY) -m ruff check .
	$(PY) -m mypy
	@find native -name '*.cc' -o -name '*.h' | xargs $(VENV)/bin/clang-format --dry-run -Werror

eval: $(VENV)/.package
	$(PY) -m compat_tests.eval $(if $(URL),--url $(URL)) $(OPTIONS) $(ARGS)

kl: $(VENV)/.package $(VENV)/.test
	$(PY) -m compat_tests.kl $(ARGS)

bench: $(VENV)/.package $(VENV)/.test
	$(VENV)/bin/pyjet bench --compare-llama --min-ratio 0.7 --out bench/results/bench-cpu.json $(OPTIONS) $(ARGS)

clean:
	rm -rf $(VENV) build

# ------------------------------------------------------------------------------------------ set-up
# Each step leaves a stamp in the virtual environment, so the second run starts at once.

$(VENV)/.build-tools:
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check "scikit-build-core>=0.11" cmake ninja
	@touch $@

$(VENV)/.package: pyproject.toml $(SOURCES) $(VENV)/.build-tools
	@$(if $(NO_CUDA),echo "no CUDA backend in this build: $(NO_CUDA)")
	CMAKE_BUILD_PARALLEL_LEVEL=$$(nproc) $(PY) -m pip install --quiet --disable-pip-version-check \
	    --no-build-isolation $(if $(filter ON,$(CUDA)),--config-settings=cmake.define.PJ_CUDA=ON) --editable .
	@touch $@

$(VENV)/.test: pyproject.toml $(VENV)/.package
	$(PY) .ci/extras.py test kl | xargs -d '\n' $(PY) -m pip install --quiet --disable-pip-version-check
	@touch $@

$(VENV)/.lint: pyproject.toml $(VENV)/.test
	$(PY) .ci/extras.py lint | xargs -d '\n' $(PY) -m pip install --quiet --disable-pip-version-check
	@touch $@
