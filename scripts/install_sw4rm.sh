#!/bin/sh
# The inbox is tested beside the real sw4rm package. Without its dependencies: what it needs to
# be imported is in the standard library; gRPC is only for its network clients.
python=${1:-.venv/bin/python}
"$python" -c 'import importlib.metadata as m; assert m.version("sw4rm-sdk") == "0.6.0"' 2>/dev/null && exit 0
"$python" -m pip install --quiet --disable-pip-version-check --no-deps sw4rm-sdk==0.6.0 2>/dev/null ||
    echo "sw4rm-sdk 0.6.0 can't be installed: the tests of outlive.inbox that use it fail" >&2
exit 0
