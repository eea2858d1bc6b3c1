#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes a release: version, changelog, tag, and what is published, with checksums and a bill of
# materials. It works in a clone below the build folder; only the last step touches this repository.
set -euo pipefail
# shellcheck source=scripts/setup.sh
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

WORK=$MEMSHIM_BUILD/release

usage() {
    cat <<'USAGE'
Usage: scripts/release.sh VERSION [--dry] [--artefacts PART,...]

Writes VERSION into CMakeLists.txt and CHANGELOG.md, commits, tags it vVERSION, and makes the source
archive, the wheel and Debian's packages, SHA256SUMS and a CycloneDX bill in build/release/VERSION.
  --dry         all of it but the commit and the tag, which stay in a clone
  --artefacts   of source, wheel and deb, what is made (default: all; the wheel needs root)
Nothing is published: the last line says how.
USAGE
}

check() {
    local version=$1 newest
    [[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || die "a version is as in 0.2.0, not '$version'"
    [[ -z $(git -C "$MEMSHIM_ROOT" status --porcelain) ]] || die "there are changes; commit them first"
    ! git -C "$MEMSHIM_ROOT" rev-parse -q --verify "refs/tags/v$version" >/dev/null ||
        die "v$version is there already"
    newest=$(git -C "$MEMSHIM_ROOT" tag -l 'v*' | sort -V | tail -n 1)
    [[ -z $newest || $(printf '%s\n' "$newest" "v$version" | sort -V | tail -n 1) == "v$version" ]] ||
        die "$version is older than ${newest#v}"
    grep -q '^## \[Unreleased\]' "$MEMSHIM_ROOT/CHANGELOG.md" ||
        die "CHANGELOG.md has no section [Unreleased]"
}

# Version and changelog in the clone, with a commit and a tag.
write_version() {
    local version=$1 source=$2 today
    today=$(date -u +%Y-%m-%d)
    sed -i "s/^project(memshim VERSION [0-9.]*/project(memshim VERSION $version/" "$source/CMakeLists.txt"
    sed -i "s/^## \[Unreleased\].*/## [Unreleased]\n\n## [$version] - $today/" "$source/CHANGELOG.md"
    git -C "$source" commit -q -a -m "Release $version"
    git -C "$source" tag -a "v$version" -m "memshim $version"
}

make_artefacts() {
    local version=$1 source=$2 out=$3 parts=$4 made=$WORK/made wheel
    if [[ $parts == *source* ]]; then
        git -C "$source" archive --format=tar "--prefix=memshim-$version/" "v$version" |
            gzip -9n >"$out/memshim-$version.tar.gz"
    fi
    # The roots that were made for packages before serve here, too.
    rm -rf "$made"
    mkdir -p "$made/package" "$MEMSHIM_BUILD/package/roots"
    ln -s "$MEMSHIM_BUILD/package/roots" "$made/package/roots"
    if [[ $parts == *wheel* ]]; then
        MEMSHIM_BUILD=$made "$source/scripts/package.sh" wheel
        wheel=$(echo "$made"/package/*.whl)
        cp "$wheel" "$out"
        python3 "$source/scripts/package/sbom.py" "$wheel" >"$out/memshim-$version.cdx.json"
    fi
    if [[ $parts == *deb* ]]; then
        MEMSHIM_BUILD=$made quietly "$source/scripts/package.sh" deb
        cp "$made"/package/deb/*.deb "$out"
    fi
    (cd "$out" && sha256sum -- * >"$made/SHA256SUMS" && mv "$made/SHA256SUMS" .)
}

main() {
    local version='' dry=no parts=source,wheel,deb
    while [[ $# -gt 0 ]]; do
        case $1 in
        --dry) dry=yes ;;
        --artefacts)
            parts=${2:-}
            shift
            ;;
        -h | --help)
            usage
            return 0
            ;;
        -*) die "release.sh does not know '$1'; see scripts/release.sh --help" ;;
        *) version=$1 ;;
        esac
        shift
    done
    if [[ -z $version ]]; then
        usage >&2
        exit 2
    fi
    check "$version"
    local source=$WORK/source out=$WORK/$version
    rm -rf "$source" "$out"
    mkdir -p "$out"
    git clone -q "$MEMSHIM_ROOT" "$source"
    write_version "$version" "$source"
    make_artefacts "$version" "$source" "$out" "$parts"
    cat "$out/SHA256SUMS"
    if [[ $dry == yes ]]; then
        say "dry: the commit and the tag are in $source alone; the artefacts are in $out"
        return 0
    fi
    git -C "$MEMSHIM_ROOT" pull -q --ff-only "$source" HEAD
    git -C "$MEMSHIM_ROOT" fetch -q "$source" "refs/tags/v$version:refs/tags/v$version"
    say "v$version is here, and the artefacts in $out. To publish: git push --follow-tags, and upload them"
}

main "$@"
