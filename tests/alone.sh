#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs a test with a home, a cache, and a place for temporary files that are its own, and takes them
# away afterwards: nothing that another test or a user left decides what it sees.
#
#   alone.sh COMMAND [ARGUMENT...]     exit status: the command's
set -u
# What a test reads of a Python program are whole lines, which without a buffer come in pieces.
unset PYTHONUNBUFFERED
# LD_PRELOAD cannot hold a path with a blank or a colon, nor a socket's name one of 108 bytes.
case ${TMPDIR:=/tmp} in *[[:space:]:]*) TMPDIR=/tmp ;; esac
[ ${#TMPDIR} -le 30 ] || TMPDIR=/tmp
folder=$(mktemp -d "$TMPDIR/memshim-alone.XXXXXX") || exit 1
trap 'rm -rf "$folder"' EXIT
trap 'exit 143' HUP INT TERM
mkdir "$folder/home" "$folder/cache" "$folder/tmp" || exit 1
# Some tests run as another user.
chmod 755 "$folder" && chmod 1777 "$folder/tmp" || exit 1
HOME=$folder/home XDG_CACHE_HOME=$folder/cache TMPDIR=$folder/tmp "$@"
