#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes the packages that people install, and tries them where they will be installed.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

# The oldest Debian that debootstrap still finds. What is built there asks for no symbol that is
# newer than glibc 2.28; auditwheel says so of each wheel.
BUILD_SUITE=bullseye
BUILD_ROOT_PACKAGES=("${BUILD_PACKAGES[@]/python3-venv/}")
PLATFORM=manylinux_2_28_x86_64
WHEEL_TOOLS=('auditwheel==6.8.*')
SUITES=(bullseye bookworm trixie forky jammy noble)
WORK=$MEMSHIM_BUILD/package

usage() {
    cat <<'USAGE'
Usage: scripts/package.sh wheel [--host]
       scripts/package.sh deb
       scripts/package.sh rpm
       scripts/package.sh try [--torch] [WHEEL] [SUITE...]

  wheel   a wheel for every Linux with glibc 2.28 or newer, built in a fresh Debian 11 (as root, with
          debootstrap) and checked by auditwheel
  --host  built here, by this machine's compiler, for systems as new as this one
  deb     memshim and libmemshim-dev for this machine's Debian or Ubuntu, checked by lintian
  rpm     memshim and memshim-devel, built here; rpmbuild's spec files stay beside them
  try     installs the wheel in fresh roots that debootstrap makes, as root, and runs a job there on
          the simulated GPU to its report. Suites: bullseye bookworm trixie forky jammy noble
  --torch a PyTorch job, with the newest PyTorch for that system's Python (from its registry; up to
          7 GB on disk while it runs), by the two lines that the README has
Results go to build/package; MEMSHIM_BUILD names another build folder than build.
USAGE
}

version() { sed -n 's/^project(memshim VERSION \([0-9.]*\).*/\1/p' "$MEMSHIM_ROOT/CMakeLists.txt"; }

# The same commit gives the same bytes.
source_date() { git -C "$MEMSHIM_ROOT" log -1 --format=%ct 2>/dev/null || date +%s; }

# auditwheel in an environment of its own.
need_wheel_tools() {
    install_packages patchelf
    if ! [[ -x $WORK/tools/bin/auditwheel ]]; then
        python3 -m venv "$WORK/tools"
        retry "$WORK/tools/bin/pip" --disable-pip-version-check -q install "${WHEEL_TOOLS[@]}" ||
            die "these could not be installed: ${WHEEL_TOOLS[*]}"
    fi
}

need_root() {
    [[ $(id -u) -eq 0 ]] || die "$1 needs root: it makes a root folder with debootstrap"
    install_packages debootstrap eatmydata util-linux
}

# make_root NAME SUITE PACKAGE...: the root folder $WORK/roots/NAME, made once.
make_root() {
    local root=$WORK/roots/$1 suite=$2 options=(--variant=minbase) packages
    shift 2
    [[ -e $root/.complete ]] && return 0
    say "making $root ($suite)"
    rm -rf "$root"
    mkdir -p "$WORK/roots"
    if [[ $suite == jammy || $suite == noble ]]; then
        options+=("--components=main,universe")
        # Debian has no keys of Ubuntu's archive.
        [[ -e /usr/share/keyrings/ubuntu-archive-keyring.gpg ]] || options+=(--no-check-gpg)
    fi
    packages=$(tr -s ' ' ',' <<<"$*")
    # Suites that are younger than this debootstrap: Ubuntu's have one script.
    local scripts=/usr/share/debootstrap
    if ! [[ -e $scripts/scripts/$suite ]]; then
        rm -rf "$WORK/debootstrap"
        cp -r "$scripts" "$WORK/debootstrap"
        scripts=$WORK/debootstrap
        ln -s gutsy "$scripts/scripts/$suite"
    fi
    DEBOOTSTRAP_DIR=$scripts quietly eatmydata debootstrap "${options[@]}" "--include=$packages" "$suite" "$root" || return 1
    touch "$root/.complete"
}

# in_root ROOT [--bind FOLDER INSIDE]... -- COMMAND...: in mounts of its own, read-only but the root.
in_root() {
    # shellcheck disable=SC2016
    unshare --mount --pid --fork bash -euc '
        root=$1
        shift
        # As a container has it: a root that is a mount of its own.
        mount --bind "$root" "$root"
        mount -t proc proc "$root/proc"
        while [[ $1 == --bind ]]; do
            mkdir -p "$root$3"
            mount --bind -o ro "$2" "$root$3"
            shift 3
        done
        shift
        exec chroot "$root" /usr/bin/env -i HOME=/root LC_ALL=C.UTF-8 \
            PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin "$@"' in_root "$@"
}

# The tracked files, as they are here, into the root where packages are built.
need_build_root() {
    BUILD_ROOT=$WORK/roots/build
    need_root "$1"
    make_root build "$BUILD_SUITE" "${BUILD_ROOT_PACKAGES[@]}" ||
        die "debootstrap could not make $BUILD_SUITE"
    find_cuda_headers
    rm -rf "$BUILD_ROOT/source"
    mkdir -p "$BUILD_ROOT/source"
    git -C "$MEMSHIM_ROOT" ls-files -z | tar -C "$MEMSHIM_ROOT" --null -T - -c |
        tar -x -C "$BUILD_ROOT/source"
}

in_build_root() {
    in_root "$BUILD_ROOT" --bind "${CUDA_INCLUDE:-/usr/local/cuda/include}" /cuda -- "$@"
}

# Configures, builds and installs into /built of that root.
build_in_root() {
    rm -rf "$BUILD_ROOT/built" "$BUILD_ROOT/work"
    quietly in_build_root cmake -S /source -B /work -G Ninja -DMEMSHIM_TESTS=OFF \
        "-DMEMSHIM_COMMIT=$(git -C "$MEMSHIM_ROOT" describe --always --abbrev=12 '--exclude=*')" \
        -DMEMSHIM_CUDA_INCLUDE=/cuda -DCMAKE_INSTALL_PREFIX=/built -DCMAKE_INSTALL_LIBDIR=lib ||
        die "CMake could not configure in $BUILD_ROOT"
    quietly in_build_root cmake --build /work || die "the build in $BUILD_ROOT failed"
    quietly in_build_root cmake --install /work || die "the installation in $BUILD_ROOT failed"
}

# pack_wheel PREFIX PLATFORM [SYSTEM]: prints the wheel's path.
pack_wheel() {
    SOURCE_DATE_EPOCH=$(source_date) python3 "$MEMSHIM_ROOT/scripts/package/wheel.py" "$1" \
        --version "$(version)" --platform "$2" --system "${3:-/}" --output "$WORK"
}

# What the wheel asks for is no newer than its tag says.
audit() {
    local wheel=$1 said fits
    said=$("$WORK/tools/bin/auditwheel" show "$wheel" 2>&1 | tr '\n' ' ')
    fits=$(sed -n 's/.*platform tag: "\([^"]*\)".*/\1/p' <<<"$said")
    say "auditwheel: $fits"
    [[ $fits =~ ^manylinux_2_([0-9]+)_x86_64$ && ${BASH_REMATCH[1]} -le 28 ]] ||
        die "the wheel does not fit $PLATFORM: $said"
}

make_wheel() {
    local host=${1:-} wheel prefix=$WORK/prefix
    need_wheel_tools
    if [[ $host == --host ]]; then
        build_memshim "$WORK/host" -DMEMSHIM_TESTS=OFF -DCMAKE_INSTALL_LIBDIR=lib
        rm -rf "$prefix"
        quietly cmake --install "$WORK/host" --prefix "$prefix"
        wheel=$(pack_wheel "$prefix" linux_x86_64)
    else
        need_build_root wheel
        build_in_root
        wheel=$(pack_wheel "$BUILD_ROOT/built" "$PLATFORM" "$BUILD_ROOT")
        audit "$wheel"
    fi
    say "$(du -h --apparent-size "$wheel" | tr '\t' ' ')"
}

# make_packages deb|rpm: by cpack, in a build of their own.
make_packages() {
    local kind=$1 folder=$WORK/$1 made others libraries=lib64
    if [[ $kind == deb ]]; then
        install_packages dpkg-dev lintian
        libraries=lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
    else
        install_packages rpm
    fi
    build_memshim "$folder" -DMEMSHIM_TESTS=OFF -DCMAKE_INSTALL_PREFIX=/usr \
        "-DCMAKE_INSTALL_LIBDIR=$libraries" "-DMEMSHIM_PACKAGE=$kind"
    rm -f "$folder"/*."$kind"
    (cd "$folder" && quietly cpack) || die "cpack could not make the packages"
    for made in "$folder"/*."$kind"; do
        say "$(du -h --apparent-size "$made" | tr '\t' ' ')"
    done
    if [[ $kind == deb ]]; then
        lintian --allow-root --fail-on error,warning "$folder"/*.deb || die "lintian found something"
        say "lintian: clean"
    else
        find "$folder/_CPack_Packages" -name '*.spec' -exec cp {} "$folder" \;
        for made in "$folder"/*.rpm; do
            others=$(rpm -qplv "$made" | awk '/^d/ && $NF !~ /memshim|\.build-id/ { printf " %s", $NF }')
            [[ -z $others ]] || die "$(basename "$made") has folders of other packages:$others"
        done
    fi
}

# The simulated GPU and a job for it, into /simulated of the build root: they load where the wheel does.
build_simulated() {
    local folder
    quietly in_build_root cmake -S /source -B /simulated -G Ninja -DMEMSHIM_CUDA_INCLUDE=/cuda ||
        die "CMake could not configure the simulated GPU"
    quietly in_build_root cmake --build /simulated --target simgpu_cuda simgpu_nvml trainer ||
        die "the simulated GPU could not be built"
    for folder in simgpu tests/process; do
        [[ -d $BUILD_ROOT/simulated/$folder ]] || die "the build left no $folder"
    done
}

# Installs the wheel in a root, runs a job, and looks at its report; then no file of the package has
# changed.
try_in_root() {
    local name=$1 wheel=$2 root=$WORK/roots/$1
    # shellcheck disable=SC2016
    in_root "$root" --bind "$(dirname "$wheel")" /wheels --bind "$BUILD_ROOT/simulated" /simulated -- \
        bash -euc '
            . /etc/os-release
            now() { date +%s%N; }
            took() { printf "%s ms" $((($(now) - $1) / 1000000)); }
            rm -rf /try && mkdir /try && cd /try
            python3 -m venv env
            start=$(now)
            env/bin/pip --disable-pip-version-check -q install --no-index "/wheels/$1"
            installed=$(took "$start")
            sums() { find env/lib -name "*memshim*" -prune -exec find {} -type f -not -name "*.pyc" \; |
                sort | xargs sha256sum; }
            before=$(sums)
            env/bin/memshim --version >version.txt
            start=$(now)
            LD_LIBRARY_PATH=/simulated/simgpu env/bin/memshim run --output out -- \
                /simulated/tests/process/trainer >said.txt 2>&1
            ran=$(took "$start")
            env/bin/python -m memshim report --format json --output report.json out
            # The line of code that asked, as libdw names it; and the page was written.
            grep -q "trainer.c:" report.json
            ls out/latest/*/report.html >/dev/null
            [[ $before == "$(sums)" ]]
            printf "%-28s Python %s, glibc %s: %s; installed in %s, job and reports in %s\n" \
                "$PRETTY_NAME" "$(python3 -c "import platform; print(platform.python_version())")" \
                "$(ldd --version | sed -n "1s/.* //p")" "$(head -n 1 version.txt)" "$installed" "$ran"
        ' try "$(basename "$wheel")" || {
        tail -n 20 "$root/try/said.txt" 2>/dev/null || true
        return 1
    }
}

# The same with PyTorch and memshim dry-run, which takes the simulated GPU out of the wheel.
try_torch_in_root() {
    local name=$1 wheel=$2 root=$WORK/roots/$1 status=0 certificates=/etc/ssl/certs
    [[ -z ${PIP_CERT:-} ]] || certificates=$(dirname "$(readlink -f "$PIP_CERT")")
    # shellcheck disable=SC2016
    in_root "$root" --bind "$(dirname "$wheel")" /wheels --bind "$MEMSHIM_ROOT/tests/workloads" /jobs \
        --bind "$certificates" /etc/ssl/certs -- ${PIP_CERT:+"PIP_CERT=/etc/ssl/certs/$(basename "$PIP_CERT")"} \
        bash -euc '
            . /etc/os-release
            now() { date +%s%N; }
            took() { printf "%s ms" $((($(now) - $1) / 1000000)); }
            rm -rf /try && mkdir /try && cd /try
            python3 -m venv env
            . env/bin/activate
            pip --disable-pip-version-check -q install --no-cache-dir --no-compile \
                torch numpy >said.txt 2>&1
            start=$(now)
            pip --disable-pip-version-check -q install --no-index "/wheels/$1"
            installed=$(took "$start")
            start=$(now)
            memshim dry-run -- python /jobs/gpt.py >said.txt 2>&1
            ran=$(took "$start")
            grep -q "^Dry run on 1 simulated" said.txt
            grep -q "gpt.py:" memshim-out/*/*/*/report.txt
            ls memshim-out/*/*/*/report.html >/dev/null
            printf "%-28s Python %s, glibc %s, PyTorch %s: installed in %s, job and reports in %s\n" \
                "$PRETTY_NAME" "$(python -c "import platform; print(platform.python_version())")" \
                "$(ldd --version | sed -n "1s/.* //p")" \
                "$(sed -n "s/^__version__ = .\(.*\)./\1/p" env/lib/python3*/site-packages/torch/version.py)" \
                "$installed" "$ran"
        ' try "$(basename "$wheel")" || status=1
    [[ $status -eq 0 ]] || tail -n 20 "$root/try/said.txt" 2>/dev/null || true
    rm -rf "$root/try"
    return "$status"
}

try_wheel() {
    local wheel suite suites=() failed=() torch=no
    if [[ ${1:-} == --torch ]]; then
        torch=yes
        shift
    fi
    wheel=$WORK/memshim-$(version)-py3-none-$PLATFORM.whl
    if [[ ${1:-} == *.whl ]]; then
        wheel=$(realpath "$1")
        shift
    fi
    [[ -e $wheel ]] || die "there is no $wheel; scripts/package.sh wheel makes it"
    suites=("$@")
    [[ $# -gt 0 ]] || suites=("${SUITES[@]}")
    if [[ $torch == yes ]]; then
        need_root try
    else
        need_build_root try
        build_simulated
    fi
    for suite in "${suites[@]}"; do
        if [[ $torch == yes ]]; then
            # gcc: for the doubles of PyTorch's libraries.
            if ! make_root "$suite-torch" "$suite" python3 python3-venv gcc libc6-dev; then
                say "not tried: $suite (debootstrap could not make it)"
                continue
            fi
            try_torch_in_root "$suite-torch" "$wheel" || failed+=("$suite")
            continue
        fi
        if ! make_root "$suite" "$suite" python3 python3-venv; then
            say "not tried: $suite (debootstrap could not make it)"
            continue
        fi
        try_in_root "$suite" "$wheel" || failed+=("$suite")
    done
    [[ ${#failed[@]} -eq 0 ]] || die "the wheel does not work in: ${failed[*]}"
}

main() {
    local what=${1:-}
    [[ $# -eq 0 ]] || shift
    case $what in
    wheel) make_wheel "$@" ;;
    deb | rpm) make_packages "$what" ;;
    try) try_wheel "$@" ;;
    -h | --help) usage ;;
    *)
        usage >&2
        exit 2
        ;;
    esac
}

main "$@"
