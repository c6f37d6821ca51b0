#!/usr/bin/env bash
# Installs the foreign clients that `make interop` talks to: Debian packages, npm, Go and Maven, all by package name.
# What is there already is left alone. Run as root, or with sudo available, on Debian or Ubuntu.
set -euo pipefail
cd "$(dirname "$0")"

apt=()
command -v kcat >/dev/null || apt+=(kcat)
command -v mvn  >/dev/null || apt+=(maven)
command -v java >/dev/null || apt+=(openjdk-17-jdk-headless)
command -v node >/dev/null || apt+=(nodejs npm)
command -v go   >/dev/null || apt+=(golang-go)
if ((${#apt[@]})); then
  echo "installing ${apt[*]}"
  sudo=$([ "$(id -u)" = 0 ] || echo sudo)
  $sudo apt-get update -qq
  $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${apt[@]}" >/dev/null
fi

if [ -f node/package.json ] && [ ! -d node/node_modules/kafkajs ]; then
  echo "installing kafkajs"
  (cd node && npm install --silent --no-audit --no-fund)
fi

cache="${XDG_CACHE_HOME:-$HOME/.cache}/barnabas-interop"
mkdir -p "$cache"
if [ -f go/go.mod ] && [ ! "$cache/franz" -nt go/main.go ]; then
  echo "building the Go client"
  (cd go && go build -o "$cache/franz" .)
fi
