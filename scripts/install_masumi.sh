#!/bin/sh
# The jobs face is tested beside the real masumi package. Without its dependencies: what it needs to
# be imported is in the lock; the others would change how every interpreter here starts.
python=${1:-.venv/bin/python}
"$python" -c 'import importlib.metadata as m; assert m.version("masumi") == "1.2.0"' 2>/dev/null && exit 0
"$python" -m pip install --quiet --disable-pip-version-check --no-deps masumi==1.2.0 2>/dev/null ||
    echo "masumi 1.2.0 can't be installed: the tests of outlive.jobs that use it fail" >&2
exit 0
