#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what building and testing memshim needs and this machine lacks; fast when nothing is
# missing. The other scripts source it for its functions; run by itself it sets up and says so.
set -euo pipefail

MEMSHIM_ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
MEMSHIM_BUILD=${MEMSHIM_BUILD:-$MEMSHIM_ROOT/build}
MEMSHIM_VENV=${MEMSHIM_VENV:-$MEMSHIM_ROOT/.venv}
case $MEMSHIM_BUILD in /*) ;; *) MEMSHIM_BUILD=$PWD/$MEMSHIM_BUILD ;; esac
case $MEMSHIM_VENV in /*) ;; *) MEMSHIM_VENV=$PWD/$MEMSHIM_VENV ;; esac
CUDA_HEADERS=$MEMSHIM_BUILD/cuda-headers
OLDEST_CUDA=12040

BUILD_PACKAGES=(gcc g++ libc6-dev binutils cmake ninja-build pkg-config uthash-dev libunwind-dev
    libdw-dev libelf-dev libcriterion-dev zlib1g-dev node-d3 python3 python3-dev python3-venv
    valgrind git)
LINT_PACKAGES=(clang clang-format clang-tidy shellcheck)
# The page's browser; and protoc, which reads the profile that a report writes.
BROWSER_PACKAGES=(chromium protobuf-compiler)
# What makes packages (scripts/package.sh), and the tests of them and of scripts/clusters; Prometheus
# for its promtool, sshfs for a network file system. Who completes a command line and who shows a
# manual page are the shells and mandoc.
PACKAGING_PACKAGES=(patchelf prometheus prometheus-node-exporter slurmctld slurmd slurm-client munge
    libslurm-dev sshfs openssh-sftp-server zsh fish mandoc)
BENCH_PACKAGES=(libmimalloc-dev)
# The versions that the tests were written against. cuda.h, crt/, the profiler's header and NVTX come
# apart.
CUDA_WHEELS=('nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-crt==13.0.*'
    'nvidia-cuda-profiler-api==13.0.*' 'nvidia-nvtx==13.0.*')
# greenlet: its stacks are among those that must be survived (tests/process/call_sites/test_survive.py).
TORCH_WHEELS=('torch==2.15.*' numpy greenlet)
TORCH_WHEELS_ELSE=('torch>=2.6' numpy greenlet)
# Whose training loops are among the jobs of tests/verdicts.
LOOP_WHEELS=('accelerate==1.15.*' 'transformers==5.*' 'lightning==2.6.*')
# Without what they ask for: NVIDIA's libraries are those that PyTorch brought, and doubles.
JAX_WHEELS=('jax==0.10.2' 'jaxlib==0.10.2' 'jax-cuda13-plugin==0.10.2' 'jax-cuda13-pjrt==0.10.2'
    ml_dtypes opt_einsum scipy)
# With what they ask for: other versions of it than PyTorch's.
TENSORFLOW_WHEELS=('tensorflow==2.21.*')
TENSORFLOW_LIBRARIES=('nvidia-cublas-cu12<13' 'nvidia-cuda-cupti-cu12<13' 'nvidia-cuda-nvcc-cu12<13'
    'nvidia-cuda-nvrtc-cu12<13' 'nvidia-cuda-runtime-cu12<13' 'nvidia-cudnn-cu12<10'
    'nvidia-cufft-cu12<12' 'nvidia-curand-cu12<11' 'nvidia-cusolver-cu12<12'
    'nvidia-cusparse-cu12<13' 'nvidia-nccl-cu12<3' 'nvidia-nvjitlink-cu12<13')
ONNXRUNTIME_WHEELS=('onnxruntime-gpu==1.31.*' onnx)
NUMBA_WHEELS=(numba 'numba-cuda[cu13]' cuda-core cuda-bindings)
# Beside PyTorch's.
TRAINER_WHEELS=(deepspeed bitsandbytes hjson msgpack py-cpuinfo ninja einops)
SAVER_WHEELS=('torch-memory-saver==0.0.*')
LINT_WHEELS=('ruff==0.17.5' 'mypy==2.4.1')
# A viewer of flame graphs; Debian has none.
FLAME_WHEELS=('flamegraph-textual==0.1.2')

say() { printf 'memshim: %s\n' "$*"; }
die() {
    printf 'memshim: %s\n' "$*" >&2
    exit 1
}

# retry COMMAND...: mirrors and registries fail now and then; three attempts, then give up.
retry() {
    local attempt
    for attempt in 1 2 3; do
        if "$@"; then return 0; fi
        if [[ $attempt -lt 3 ]]; then
            say "this failed (attempt $attempt of 3), trying again: $*"
            sleep $((attempt * 3))
        fi
    done
    return 1
}

# quietly COMMAND...: what it says is shown only where it fails.
quietly() {
    local log status=0
    log=$(mktemp)
    "$@" >"$log" 2>&1 || status=$?
    if [[ $status -ne 0 ]]; then cat "$log" >&2; fi
    rm -f "$log"
    return "$status"
}

# install_packages PACKAGE...: those of the distribution's packages that are missing.
install_packages() {
    local missing=() package
    if ! command -v dpkg-query >/dev/null; then
        say "this is not Debian or Ubuntu; the build needs the equivalents of: $*"
        return 0
    fi
    for package in "$@"; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed ||
            missing+=("$package")
    done
    [[ ${#missing[@]} -gt 0 ]] || return 0
    local as_root=()
    if [[ $(id -u) -ne 0 ]]; then
        command -v sudo >/dev/null ||
            die "these packages are missing, and there is neither root nor sudo to install them." \
                "As root: apt-get install ${missing[*]}"
        as_root=(sudo)
    fi
    say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    retry quietly "${as_root[@]}" apt-get -q -o Acquire::Retries=3 update ||
        die "apt-get update failed; is there a network and a mirror in /etc/apt?"
    retry quietly "${as_root[@]}" apt-get -q -o Acquire::Retries=3 install -y --no-install-recommends \
        "${missing[@]}" ||
        die "apt-get could not install: ${missing[*]}"
}

# The version in a cuda.h, 0 where there is none.
cuda_version() {
    local version
    version=$(sed -n 's/^#define CUDA_VERSION \([0-9]*\).*/\1/p' "$1/cuda.h" 2>/dev/null || true)
    printf '%s' "${version:-0}"
}

# The toolkit's headers where they are new enough, else those of NVIDIA's Python packages, kept in
# the build folder. Sets CUDA_INCLUDE, empty where CMake finds the toolkit by itself.
find_cuda_headers() {
    local place toolkits=(/usr/local/cuda/include) nvcc
    CUDA_INCLUDE=
    if [[ -n ${CUDAToolkit_ROOT:-} ]]; then toolkits+=("$CUDAToolkit_ROOT/include"); fi
    if nvcc=$(command -v nvcc); then
        toolkits+=("$(dirname "$(dirname "$(readlink -f "$nvcc")")")/include")
    fi
    for place in "${toolkits[@]}"; do
        if [[ $(cuda_version "$place") -ge $OLDEST_CUDA ]]; then
            CUDA_INCLUDE=$place
            return 0
        fi
    done
    CUDA_INCLUDE=$CUDA_HEADERS/include
    [[ $(cuda_version "$CUDA_INCLUDE") -ge $OLDEST_CUDA ]] && return 0
    say "no CUDA toolkit here: taking its headers from NVIDIA's Python packages"
    local work=$CUDA_HEADERS/download
    rm -rf "$CUDA_HEADERS"
    mkdir -p "$work"
    python3 -m venv "$work/venv"
    retry "$work/venv/bin/pip" --disable-pip-version-check -q download --no-deps -d "$work" \
        "${CUDA_WHEELS[@]}" || die "the packages ${CUDA_WHEELS[*]} could not be downloaded"
    python3 - "$work" "$CUDA_HEADERS" <<'PYTHON'
import pathlib, sys, zipfile
work, target = map(pathlib.Path, sys.argv[1:])
for wheel in work.glob("*.whl"):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            inside = name.partition("/include/")[2]
            if name.startswith("nvidia/") and inside and not name.endswith("/"):
                path = target / "include" / inside
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(archive.read(name))
PYTHON
    rm -rf "$work"
    [[ $(cuda_version "$CUDA_INCLUDE") -ge $OLDEST_CUDA ]] ||
        die "the packages ${CUDA_WHEELS[*]} brought no cuda.h of 12.4 or newer"
}

# The venv of the project, or the one that MEMSHIM_VENV names, which is used as it is found.
need_venv() {
    [[ -x $MEMSHIM_VENV/bin/python ]] && return 0
    say "making the Python environment $MEMSHIM_VENV"
    python3 -m venv "$MEMSHIM_VENV"
}

venv_pip() {
    need_venv
    retry "$MEMSHIM_VENV/bin/python" -m pip --disable-pip-version-check -q install "$@"
}

# has_torch PYTHON: whether that interpreter can import PyTorch. Asking for the module's place
# instead of importing it takes a tenth of a second.
has_torch() {
    "$1" -c 'import importlib.util as u, sys; sys.exit(not u.find_spec("torch"))' 2>/dev/null
}

# Prints the interpreter that has PyTorch: the venv's, the active one's, or the system's.
find_torch_python() {
    local python
    for python in "$MEMSHIM_VENV/bin/python" "${VIRTUAL_ENV:-/nowhere}/bin/python" \
        "$(command -v python3 || true)"; do
        if [[ -x $python ]] && has_torch "$python"; then
            printf '%s' "$python"
            return 0
        fi
    done
    return 1
}

install_torch() {
    if [[ -x $MEMSHIM_VENV/bin/python ]] && has_torch "$MEMSHIM_VENV/bin/python"; then
        return 0
    fi
    say "installing PyTorch into $MEMSHIM_VENV (about 6 GB on disk, some minutes)"
    venv_pip "${TORCH_WHEELS[@]}" || venv_pip "${TORCH_WHEELS_ELSE[@]}"
}

# With PyTorch named, so that pip keeps it as it is.
install_loops() {
    need_venv
    if "$MEMSHIM_VENV/bin/python" -c 'import importlib.util as u, sys
sys.exit(not all(map(u.find_spec, ("accelerate", "transformers", "lightning"))))'; then
        return 0
    fi
    say "installing ${LOOP_WHEELS[*]} into $MEMSHIM_VENV"
    venv_pip "${LOOP_WHEELS[@]}" torch
}

# beside_torch VENV: a new venv that sees what PyTorch's has.
beside_torch() {
    local venv=$1 site
    need_venv
    "$MEMSHIM_VENV/bin/python" -m venv "$venv" || return 1
    site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    "$MEMSHIM_VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
        >"$site/beside.pth"
}

# pip_in VENV ARGUMENT...
pip_in() {
    local venv=$1
    shift
    retry "$venv/bin/python" -m pip --disable-pip-version-check -q install --no-cache-dir "$@"
}

# install_framework NAME VENV: one that tests/frameworks are run with, in a venv of its own.
install_framework() {
    local name=$1 venv=$2
    case $name in
    jax)
        say "installing JAX into $venv (about 0.9 GB on disk)"
        beside_torch "$venv" && pip_in "$venv" --no-deps "${JAX_WHEELS[@]}"
        ;;
    tensorflow)
        say "installing TensorFlow into $venv (about 6.3 GB on disk)"
        "$MEMSHIM_VENV/bin/python" -m venv "$venv" && pip_in "$venv" "${TENSORFLOW_WHEELS[@]}" &&
            pip_in "$venv" --no-deps "${TENSORFLOW_LIBRARIES[@]}"
        ;;
    onnxruntime)
        say "installing ONNX Runtime into $venv (about 0.6 GB on disk)"
        beside_torch "$venv" && pip_in "$venv" "${ONNXRUNTIME_WHEELS[@]}" &&
            pip_in "$venv" --no-deps nvidia-curand
        ;;
    numba)
        say "installing Numba and cuda.core into $venv (about 0.8 GB on disk)"
        "$MEMSHIM_VENV/bin/python" -m venv "$venv" && pip_in "$venv" "${NUMBA_WHEELS[@]}"
        ;;
    trainers)
        say "installing DeepSpeed and bitsandbytes into $venv (about 0.2 GB on disk)"
        beside_torch "$venv" && pip_in "$venv" --no-deps "${TRAINER_WHEELS[@]}"
        ;;
    saver)
        say "installing torch_memory_saver into $venv"
        beside_torch "$venv" && pip_in "$venv" --no-deps "${SAVER_WHEELS[@]}"
        ;;
    esac
}

install_lint_tools() {
    install_packages "${LINT_PACKAGES[@]}"
    need_venv
    if ! [[ -x $MEMSHIM_VENV/bin/ruff && -x $MEMSHIM_VENV/bin/mypy ]]; then
        venv_pip "${LINT_WHEELS[@]}" || die "ruff and mypy could not be installed"
    fi
}

# Where tests open what a report writes.
install_viewers() {
    install_packages "${BROWSER_PACKAGES[@]}"
    need_venv
    if ! "$MEMSHIM_VENV/bin/python" -c 'import flamegraph_textual' 2>/dev/null; then
        venv_pip "${FLAME_WHEELS[@]}" || die "the viewer of flame graphs could not be installed"
    fi
}

# build_memshim FOLDER [CMAKE-ARGUMENT...]: configures and builds.
build_memshim() {
    local folder=$1
    shift
    find_cuda_headers
    quietly cmake -S "$MEMSHIM_ROOT" -B "$folder" -G Ninja "-DMEMSHIM_CUDA_INCLUDE=$CUDA_INCLUDE" "$@" \
        || die "CMake could not configure $folder"
    # A terminal gets ninja's one line that moves; a log gets what went wrong, and nothing else.
    if [[ -t 1 ]]; then
        cmake --build "$folder" || die "the build in $folder failed"
    else
        say "building in $folder"
        quietly cmake --build "$folder" || die "the build in $folder failed"
    fi
}

# part NAME COMMAND...: runs it and notes how long it took; the exit status is the command's.
PART_TIMES=()
part() {
    local name=$1 start=$SECONDS status=0
    shift
    "$@" || status=$?
    PART_TIMES+=("$(printf '%5d s  %s' $((SECONDS - start)) "$name")")
    return "$status"
}

print_part_times() {
    [[ ${#PART_TIMES[@]} -gt 0 ]] || return 0
    say "how long each part took"
    printf '  %s\n' "${PART_TIMES[@]}"
}

setup_usage() {
    cat <<'USAGE'
Usage: scripts/setup.sh [--torch] [--loops] [--lint] [--browser] [--bench]
                        [--package]

Installs what the build and the tests need and this machine lacks, as root or with sudo.
  --torch   PyTorch as well, into the project's venv
  --loops   and accelerate, Transformers and Lightning, for the jobs of tests/verdicts that use them
  --lint    the formatters and checkers that scripts/lint.sh runs
  --browser Chromium, protoc and a viewer of flame graphs: tests open in them what a report writes
  --bench   what scripts/bench.sh needs
  --package what scripts/package.sh needs beyond a build, and promtool
MEMSHIM_BUILD names another build folder than build, MEMSHIM_VENV another venv than .venv.
USAGE
}

setup_main() {
    local torch=no loops=no lint=no browser=no bench=no package=no option
    for option in "$@"; do
        case $option in
        --torch) torch=yes ;;
        --loops) loops=yes ;;
        --lint) lint=yes ;;
        --browser) browser=yes ;;
        --bench) bench=yes ;;
        --package) package=yes ;;
        -h | --help)
            setup_usage
            return 0
            ;;
        *) die "setup.sh does not know '$option'; see scripts/setup.sh --help" ;;
        esac
    done
    install_packages "${BUILD_PACKAGES[@]}"
    find_cuda_headers
    if [[ $lint == yes ]]; then install_lint_tools; fi
    if [[ $browser == yes ]]; then install_viewers; fi
    if [[ $bench == yes ]]; then install_packages "${BENCH_PACKAGES[@]}"; fi
    if [[ $package == yes ]]; then install_packages "${PACKAGING_PACKAGES[@]}"; fi
    if [[ $torch == yes ]]; then
        install_torch || die "PyTorch could not be installed into $MEMSHIM_VENV"
    fi
    if [[ $loops == yes ]]; then
        install_loops || die "${LOOP_WHEELS[*]} could not be installed into $MEMSHIM_VENV"
    fi
}

if [[ ${BASH_SOURCE[0]} == "$0" ]]; then
    setup_main "$@"
    say "everything is in place"
fi
