#!/bin/sh
# The PostgreSQL store is tested behind a pooler too. It is unpacked, not installed: no service.
folder=${1:-.venv}/pgbouncer
command -v pgbouncer >/dev/null && exit 0
[ -x "$folder/usr/sbin/pgbouncer" ] && exit 0
if command -v apt-get >/dev/null && command -v dpkg >/dev/null; then
    echo "unpacking pgbouncer"
    mkdir -p "$folder/packages"
    needed=$(apt-cache depends pgbouncer 2>/dev/null |
        sed -n 's/^ *Depends: \(libevent[^ ]*\|libc-ares[^ ]*\|libcares[^ ]*\)$/\1/p')
    # shellcheck disable=SC2086
    (cd "$folder/packages" && apt-get download -qq pgbouncer $needed >/dev/null 2>&1)
    for package in "$folder"/packages/*.deb; do
        [ -e "$package" ] && dpkg -x "$package" "$folder"
    done
fi
[ -x "$folder/usr/sbin/pgbouncer" ] ||
    echo "pgbouncer is missing: install it; the tests of the pooler fail without it" >&2
exit 0
