# Everything from a clean clone with Python >= 3.10 and a C++17 compiler:
#
#   make serve    build, install into .venv and start the server      PORT= MODEL= DEVICE= ARGS=
#   make test     the tests                                           ARGS=  (pytest's)
#   make native-test  those in C++ alone
#   make lint     ruff, mypy, clang-format
#   make eval     40 agent chats: are the tool calls right?           URL= MODEL= DEVICE=
#   make clients  real SDKs and coding agents change a file through the server   ARGS="--only aider"
#   make fuzz     ten thousand bad requests: no internal error, no hang, no leak      ARGS="--requests 1000 --seed 2"
#   make kl       KL divergence of the CPU backend to llama.cpp
#   make greedy   greedy answers of the CPU backend beside llama.cpp's     ARGS="--model FILE"
#   make compat   llama-server's own test suite                       ARGS="--model pyjet-tiny"
#   make bench    tokens per second beside llama.cpp                  MODEL= DEVICE=
#   make gpu-check  on a GPU machine: tests, compute-sanitizer, benchmarks  SECTIONS="tests step"
#   make clean    remove .venv, build and .cache
#
# CUDA=1 builds the CUDA backend where nvcc is but no GPU, CUDA=0 leaves it out; ARCHS="86;90" are the GPU
# architectures to compile for (default: those of the GPUs that are there).
# eval, kl, greedy, compat, bench and gpu-check print a short table last and fail when a recorded bound is missed.

PYTHON ?= python3
VENV   ?= .venv
PORT   ?= 8080
MODEL  ?=
DEVICE ?=
URL    ?=
ARGS   ?=
CUDA   ?=
ARCHS  ?=
SECTIONS ?=

PY      := $(VENV)/bin/python
BUILD   := build/release
SOURCES := CMakeLists.txt $(shell find native -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh')
OPTIONS := $(if $(MODEL),--model $(MODEL)) $(if $(DEVICE),--device $(DEVICE))

# The CUDA backend is built where its sources, nvcc and an NVIDIA GPU are, for the GPUs that are there.
NVCC := $(or $(shell command -v nvcc 2>/dev/null),$(wildcard /usr/local/cuda/bin/nvcc))
GPUS := $(shell nvidia-smi -L 2>/dev/null | grep '^GPU ')
ifeq ($(CUDA),0)
    NO_CUDA := CUDA=0 was given
else ifeq ($(wildcard native/cuda/*.cu),)
    NO_CUDA := its sources are not here
else ifeq ($(NVCC),)
    NO_CUDA := nvcc was not found
else ifeq ($(GPUS)$(filter 1,$(CUDA)),)
    NO_CUDA := no NVIDIA GPU was found
endif
ifeq ($(if $(NO_CUDA),$(CUDA)),1)
    $(error CUDA=1 was given, but there can be no CUDA backend: $(NO_CUDA))
endif
ifeq ($(ARCHS),)
    CAPABILITIES := $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | grep -x '[0-9]*' | sort -u)
    ARCHS := $(or $(shell echo $(CAPABILITIES) | tr ' ' ';'),86;90)
endif
DEFINES := $(if $(NO_CUDA),PJ_CUDA=OFF,PJ_CUDA=ON PJ_ARCHS=$(ARCHS))

.DELETE_ON_ERROR:
.PHONY: serve test native-test lint eval clients fuzz kl greedy compat bench gpu-check clean FORCE

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
	@find native -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' | xargs $(VENV)/bin/clang-format --dry-run -Werror

eval: $(VENV)/.package
	$(PY) -m compat_tests.eval $(if $(URL),--url $(URL)) $(OPTIONS) $(ARGS)

# The clients are installed below .cache, apart from pyjet's own environment.
clients: $(VENV)/.package $(VENV)/.test
	$(PY) -m compat_tests.clients $(ARGS)

fuzz: $(VENV)/.package $(VENV)/.test
	$(PY) -m compat_tests.fuzz $(ARGS)

kl: $(VENV)/.package $(VENV)/.test
	$(PY) -m compat_tests.kl $(ARGS)

greedy: $(VENV)/.package $(VENV)/.test
	$(PY) -m compat_tests.greedy $(ARGS)

compat: $(VENV)/.package $(VENV)/.test
	$(PY) -m compat_tests.llama_server $(ARGS)

bench: $(VENV)/.package $(VENV)/.test
	$(VENV)/bin/pyjet bench --compare-llama --min-ratio 0.7 --out bench/results/bench-cpu.json $(OPTIONS) $(ARGS)

# Its library is built apart, with the tests of the CUDA backend.
gpu-check: $(VENV)/.package $(VENV)/.test
	PYTHON=$(PY) CMAKE=$(VENV)/bin/cmake PATH="$(CURDIR)/$(VENV)/bin:$$PATH" $(if $(MODEL),MODEL=$(MODEL)) \
	    $(if $(DEVICE),DEVICE=$(DEVICE)) bench/gpu_check.sh $(SECTIONS)

clean:
	rm -rf $(VENV) build .cache

# ------------------------------------------------------------------------------------------ set-up
# Each step leaves a stamp in the virtual environment, so the second run starts at once.

$(VENV)/.build-tools:
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --disable-pip-version-check "scikit-build-core>=0.11" cmake ninja
	@touch $@

# Changes only when the settings do, so that CUDA=0 after a build with CUDA builds again.
$(VENV)/.settings: FORCE | $(VENV)/.build-tools
	@echo '$(DEFINES)' | cmp -s - $@ || echo '$(DEFINES)' >$@

$(VENV)/.package: pyproject.toml $(SOURCES) $(VENV)/.build-tools $(VENV)/.settings
	@echo '$(if $(NO_CUDA),no CUDA backend in this build: $(NO_CUDA),building the CUDA backend for: $(ARCHS))'
	CMAKE_BUILD_PARALLEL_LEVEL=$$(nproc) $(PY) -m pip install --quiet --disable-pip-version-check \
	    --no-build-isolation $(foreach define,$(DEFINES),--config-settings='cmake.define.$(define)') --editable .
	@touch $@

$(VENV)/.test: pyproject.toml $(VENV)/.package
	$(PY) .ci/extras.py test kl | xargs -d '\n' $(PY) -m pip install --quiet --disable-pip-version-check
	@touch $@

$(VENV)/.lint: pyproject.toml $(VENV)/.test
	$(PY) .ci/extras.py lint | xargs -d '\n' $(PY) -m pip install --quiet --disable-pip-version-check
	@touch $@
