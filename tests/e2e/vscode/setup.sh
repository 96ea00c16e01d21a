#!/usr/bin/env bash
# setup.sh FOLDER: a real VS Code (code-server, the web build) for the editor test, from npm alone. Takes about two
# minutes the first time; FOLDER is kept outside the source tree and reused.
set -euo pipefail
dir=$1
version=4.100.3                       # VS Code 1.100.3; later releases want Node 22
[ -f "$dir/ready-$version" ] && exit 0
mkdir -p "$dir"
cd "$dir"
# Native modules are built against the headers beside the running node; nothing else is downloaded for it.
node_home=$(dirname "$(dirname "$(readlink -f "$(command -v node)")")")
[ ! -d "$node_home/include/node" ] || export npm_config_nodedir=$node_home
[ -f package.json ] || echo '{"private": true}' >package.json
# The package's own install script fetches binaries from elsewhere: its steps are done here by hand, without them.
npm install --no-audit --no-fund --ignore-scripts "code-server@$version" playwright-core@1.54.1
cd node_modules/code-server/lib/vscode
npm install --no-audit --no-fund --omit=dev --ignore-scripts
ln -sfn node_modules node_modules.asar
# node-pty ends with an error after its module has been built; the check below decides.
npm rebuild @vscode/spdlog native-watchdog node-pty @parcel/watcher kerberos || true
test -f node_modules/node-pty/build/Release/pty.node
test -f node_modules/@vscode/spdlog/build/Release/spdlog.node
cd "$dir"
npm rebuild argon2 --build-from-source
node node_modules/code-server/out/node/entry.js --version
touch "ready-$version"
