#!/usr/bin/env bash
# Installs the foreign clients that `make interop` talks to: Debian packages, npm, Go and Maven, all by package name.
# What is there already is left alone. Run as root, or with sudo available, on Debian or Ubuntu.
set -euo pipefail
cd "$(dirname "$0")"

twice() { # a download that failed is tried once more
  "$@" || { echo "trying again: $*" >&2; "$@"; }
}

apt=()
command -v kcat >/dev/null || apt+=(kcat)
command -v mvn  >/dev/null || apt+=(maven)
command -v javac >/dev/null || apt+=(openjdk-17-jdk-headless)
command -v node >/dev/null || apt+=(nodejs)
command -v npm  >/dev/null || apt+=(npm)
command -v go   >/dev/null || apt+=(golang-go)
[ -e /usr/share/java/zookeeper.jar ] || apt+=(zookeeper)
if ((${#apt[@]})); then
  echo "installing ${apt[*]}"
  sudo=$([ "$(id -u)" = 0 ] || echo sudo)
  twice $sudo apt-get update -qq
  twice $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${apt[@]}" >/dev/null
fi

if [ ! -d node/node_modules/kafkajs ]; then
  echo "installing kafkajs"
  (cd node && twice npm ci --no-audit --no-fund --no-update-notifier --loglevel warn)
fi

cache="${XDG_CACHE_HOME:-$HOME/.cache}/barnabas-interop"
mkdir -p "$cache"
if [ ! "$cache/franz" -nt go/main.go ]; then
  echo "building the Go client"
  (cd go && twice go build -o "$cache/franz" .)
fi
