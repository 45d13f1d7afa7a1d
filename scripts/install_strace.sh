#!/bin/sh
# The crash-point tests stop a process at its system calls, which needs strace.
command -v strace >/dev/null && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "installing strace"
    apt-get install -qq -y strace >/dev/null 2>&1 ||
        { apt-get update -qq && apt-get install -qq -y strace >/dev/null; }
fi
command -v strace >/dev/null ||
    echo "strace is missing: install it (apt-get install strace); the crash-point tests fail without it" >&2
exit 0
