#!/usr/bin/env bash
# Installs systemd-analyze, with which the tests of deploy/systemd check the units. What is there already is left alone.
# Run as root, or with sudo available, on Debian or Ubuntu. No service is started.
set -euo pipefail

command -v systemd-analyze >/dev/null && exit 0

echo "installing systemd-analyze"
sudo=$([ "$(id -u)" = 0 ] || echo sudo)
install() { $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends systemd >/dev/null; }
$sudo apt-get update -qq
install || { echo "trying again" >&2; install; }
