#!/bin/sh
# What the tests need of the system: strace stops a process at its system calls, valgrind counts
# instructions, ip gives hosts addresses of their own, chromium shows a page.
install() { # COMMAND PACKAGE WHO
    command -v "$1" >/dev/null && return
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        echo "installing $2"
        apt-get install -qq -y "$2" >/dev/null 2>&1 ||
            { apt-get update -qq && apt-get install -qq -y "$2" >/dev/null; }
    fi
    command -v "$1" >/dev/null ||
        echo "$1 is missing: install it (apt-get install $2); $3" >&2
}

install strace strace "the crash-point tests fail without it"
install openssl openssl "the test of encrypted connections fails without it"
install valgrind valgrind "make bench-full and its test count no instructions without it"
install ip iproute2 "without it hosts that are cut off are loopback addresses behind a proxy"
install chromium chromium "the test of the page that streams to a browser fails without it"
exit 0
