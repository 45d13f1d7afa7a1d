#!/bin/sh
# Builds the site of the docs into build/site; a dead link or anchor fails the build.
# Arguments go to mkdocs.
set -eu
cd "$(dirname "$0")/.."
pages=build/pages
rm -rf $pages
mkdir -p $pages/changelog.d
cp -R README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md docs examples $pages
cp changelog.d/README.md $pages/changelog.d
find $pages -name __pycache__ -prune -exec rm -rf {} +
export NO_MKDOCS_2_WARNING=1    # known, and written down: docs/decisions/0035-the-site.md
exec "${BIN:-.venv/bin}/mkdocs" build --strict --clean "$@"
