#!/bin/sh
# Writes requirements-dev.lock: exact pins of the core dependencies and of the group "dev".
set -eu
python=${1:-python3}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/venv"
pip="$folder/venv/bin/python -m pip --disable-pip-version-check"
$pip install --quiet --upgrade "pip>=25.1"      # the first that reads dependency groups
core=$("$folder/venv/bin/python" -c '
import tomllib
print("\n".join(tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]))')
echo "$core" > "$folder/core.txt"
$pip install --quiet --group dev -r "$folder/core.txt"
{
    echo "# Written by 'make lock'; installed by 'make setup'."
    $pip freeze --exclude pip --exclude outlive
} > requirements-dev.lock
