#!/usr/bin/env bash
# Installs the browser that the tests of the console's pages drive. What is there already is left alone. Run as root, or
# with sudo available, on Debian or Ubuntu.
set -euo pipefail

command -v chromium >/dev/null && exit 0
echo "installing chromium"
sudo=$([ "$(id -u)" = 0 ] || echo sudo)
install() { $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; }
$sudo apt-get update -qq
install || { echo "trying again" >&2; install; }
