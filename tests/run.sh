#!/bin/sh
# The test suite, as documented in README.md and CONTRIBUTING.md.
#
# It needs Rust (see rust-version in Cargo.toml), a linker, and the few programs listed below. On a Debian-like machine,
# as root, missing ones are installed, and said; elsewhere the script stops and says what to install. A test never
# passes by not running.
set -eu
cd "$(dirname "$0")/.."

PATH=$PATH:/usr/sbin:/sbin
missing=
need() { # need PROGRAM PACKAGE
    command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}
need cargo rust
need cc gcc
need mkfifo coreutils
need ssh openssh-client
need sshd openssh-server
need unshare util-linux
need readelf binutils
need python3 python3
python3 -c 'import ensurepip, venv' >/dev/null 2>&1 || missing="$missing python3-venv"

case $missing in
'') ;;
*rust*)
    echo "tests/run.sh: cargo is missing: install Rust (rust-version in Cargo.toml or newer)" >&2
    exit 2
    ;;
*)
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "tests/run.sh: installing Debian packages:$missing libc6-dev" >&2
        apt-get update -qq
        # shellcheck disable=SC2086 # a list of words
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing libc6-dev
    else
        echo "tests/run.sh: please install:$missing libc6-dev" >&2
        exit 2
    fi
    ;;
esac

scripts/build_agent
exec cargo test --locked "$@"
