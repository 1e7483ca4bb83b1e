#!/usr/bin/env bash
# Everything that needs a GPU, in under ten minutes: tests, compute-sanitizer, benchmarks, and whether the bounds hold.
#
#   bench/gpu_check.sh                    all sections but agents and speculation
#   bench/gpu_check.sh tests step         some of them: tests sanitize step host http agents speculation
#
# agents takes four minutes: long conversations with pyjet-server, then with llama-server where LLAMA_SERVER names one.
# speculation takes as long: drafts accepted by lot beside llama-server's figures, recorded ones without LLAMA_SERVER;
# what drafts add to a step; the adaptive number of drafts beside fixed ones.
#
# Works without a network, with the packages that PYTHON finds. Results go to $OUT (bench/results/NAME-OF-THE-CARD),
# what the sections print to $OUT/gpu_check.log. Exit status 1 when a section fails or a bound is missed.
#
# OUT PYTHON CMAKE ARCHS    folder of results, programs to use, architectures to compile for
# TIME_LIMIT=540            seconds for all sections together
# MODEL=FILE                instead of a 27B file of random weights, which is written to /dev/shm and removed again
# KEEP_MODEL=1              leave that file there for the next time
# LLAMA_SERVER=FILE         llama.cpp's server for CUDA
# DEVICE=cpu                to try the script itself, with a small MODEL; STEP_ARGS="--positions 200,900 --prompt 900"
#                           AGENTS_ARGS="--context 600 --prefill 6000 --mixed-tokens 3000 --total-context 40000" and
#                           SPECULATION_ARGS="--quick --contexts 40,300 --context 600 --total-context 16384 --tokens 64"
# PYJET_LIBRARY=FILE        this library instead of building one
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
started=$SECONDS
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}"

sections=("$@")
[ $# -gt 0 ] || sections=(tests sanitize step host http)
for section in "${sections[@]}"; do
    case $section in
    tests | sanitize | step | host | http | agents | speculation) ;;
    *)
        echo "unknown section $section; there are: tests sanitize step host http agents speculation" >&2
        exit 2
        ;;
    esac
done

python=${PYTHON:-python3}
device=${DEVICE:-cuda}
time_limit=${TIME_LIMIT:-540}
build=build/gpu
name=cpu
if [ "$device" = cuda ]; then
    name=$(nvidia-smi --query-gpu=name --format=csv,noheader --id=0) || {
        echo "no NVIDIA GPU was found; DEVICE=cpu tries the script without one" >&2
        exit 1
    }
    name=$(tr 'A-Z ' 'a-z-' <<<"$name")
    archs=${ARCHS:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader --id=0 | tr -d .)}
fi
out=${OUT:-bench/results/$name}
mkdir -p "$out" "$build"
log=$out/gpu_check.log
: >"$log"
status=0
summary=()

wants() { [[ " ${sections[*]} " == *" $1 "* ]]; }

# section NAME SECONDS COMMAND...: runs it within its limit and what is left of the whole, and remembers how it went.
section() {
    local title=$1 limit=$2 begin=$SECONDS left=$((time_limit - SECONDS + started)) code verdict=ok
    shift 2
    [ "$limit" -le "$left" ] || limit=$left
    echo "== $title" >>"$log"
    if [ "$limit" -le 5 ]; then
        code=124
    else
        timeout --kill-after=5 "$limit" "$@" >>"$log" 2>&1
        code=$?
    fi
    if [ $code -eq 124 ] || [ $code -eq 137 ]; then
        verdict="OUT OF TIME"
    elif [ $code -ne 0 ]; then
        verdict=FAILED
    fi
    if [ $code -ne 0 ]; then
        status=1
        echo "$title: $verdict (status $code); the end of its output:"
        tail -n 25 "$log"
    fi
    summary+=("$(printf '%-12s %-12s %4d s' "$title" "$verdict" $((SECONDS - begin)))")
    return $code
}

cuda_tests() { for file in native/tests/cuda/test_*.c*; do basename "${file%.*}"; done; }

build_library() {
    set -e
    local cmake=${CMAKE:-cmake} options=(-DPJ_CUDA=OFF) targets=(pyjet)
    if [ "$device" = cuda ]; then
        options=(-DPJ_CUDA=ON "-DPJ_ARCHS=$archs" -DPJ_NATIVE_TESTS=ON)
        mapfile -t -O 1 targets < <(cuda_tests)
    fi
    "$cmake" -S . -B $build -G Ninja "${options[@]}"
    "$cmake" --build $build --parallel --target "${targets[@]}"
}

build_ceilings() {
    local nvcc
    nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
    "$nvcc" -O3 -std=c++17 -gencode="arch=compute_$archs,code=sm_$archs" -o $build/ceilings bench/native/ceilings.cu
}

native_tests() {
    local test
    for test in $(cuda_tests); do
        echo "-- $test"
        $build/"$test" || [ $? -eq 77 ] || return 1 # 77: skipped
    done
}

write_model() {
    local part=$model.part
    "$python" -m bench.make_synthetic_gguf "$part" && mv "$part" "$model"
}

export -f build_library build_ceilings native_tests write_model cuda_tests
export python device build archs model

if [ -z "${PYJET_LIBRARY:-}" ]; then
    section build 300 bash -c build_library || exit 1
    export PYJET_LIBRARY=$PWD/$build/libpyjet.so
fi

if wants tests; then
    [ "$device" = cuda ] && [ -f $build/build.ninja ] && section native 120 bash -c native_tests
    section pytest 300 "$python" -m pytest -q -p no:cacheprovider tests/native/cuda
fi

if wants sanitize; then
    sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
    for tool in memcheck racecheck; do
        if [ -z "$sanitizer" ]; then
            summary+=("$(printf '%-12s %s' $tool "compute-sanitizer was not found")")
        else
            section $tool 120 "$sanitizer" --tool $tool --error-exitcode 9 "$python" -m bench.short_run --device "$device"
        fi
    done
fi

figures=$out/step.json
agents=$out/agents.json
speculation=$out/speculation.json
model=${MODEL:-/dev/shm/pyjet-27b.gguf}
if wants step || wants host || wants http || wants agents || wants speculation; then
    if [ ! -f "$model" ]; then
        [ "${KEEP_MODEL:-0}" = 1 ] || trap 'rm -f "$model" "$model.part"' EXIT
        section model 120 bash -c write_model || exit 1
    fi
fi
if wants step; then
    read -ra step_args <<<"${STEP_ARGS:-}"
    if [ "$device" = cuda ]; then
        section ceilings 60 bash -c build_ceilings && step_args+=(--ceilings $build/ceilings)
    fi
    section width 60 "$python" -m bench.width_error --device "$device" --out "$out/width.json"
    section step 240 "$python" -m bench.step "$model" --device "$device" --out "$figures" ${step_args[@]+"${step_args[@]}"}
fi
wants host && section host 120 "$python" -m bench.host_gap "$model" --device "$device" --out "$figures"
wants http && section http 120 "$python" -m bench.http_rate "$model" --device "$device" --out "$figures"
if wants agents; then
    read -ra agents_args <<<"${AGENTS_ARGS:-}"
    [ -z "${LLAMA_SERVER:-}" ] || agents_args+=(--llama-server "$LLAMA_SERVER")
    left=$((time_limit - SECONDS + started - 15))
    agents_args+=(--time-limit $((left < 240 ? left : 240)))
    section agents 270 "$python" -m bench.agents_beside "$model" --device "$device" --out "$agents" "${agents_args[@]}"
fi
if wants speculation; then
    read -ra speculation_args <<<"${SPECULATION_ARGS:-}"
    [ -z "${LLAMA_SERVER:-}" ] || speculation_args+=(--llama-server "$LLAMA_SERVER")
    section speculation 420 "$python" -m bench.speculation "$model" --device "$device" --out "$speculation" \
        ${speculation_args[@]+"${speculation_args[@]}"}
fi

echo
printf '%s\n' "${summary[@]}"
results=()
for file in "$figures" "$agents" "$speculation"; do
    [ ! -f "$file" ] || results+=("$file")
done
if [ ${#results[@]} -gt 0 ]; then
    echo
    "$python" -m bench.bounds "${results[@]}" || status=1
fi
exit $status
