#!/usr/bin/env bash
# package.sh BUILD: type-checks and bundles the extension and writes BUILD/flagos-devtools.vsix with flagos-lsp in it.
set -euo pipefail
build=$(readlink -f "$1")
cd "$(dirname "$(readlink -f "$0")")"
mkdir -p bin
install -m 755 "$build/bin/flagos-lsp" bin/flagos-lsp
strip bin/flagos-lsp
cp ../LICENSE LICENSE
npm run --silent check
npm run --silent bundle
npx --no-install vsce package --no-dependencies --skip-license --out "$build/flagos-devtools.vsix"
rm -f LICENSE
