#!/usr/bin/env bash
# Installs Prometheus and promtool, which the tests of deploy/monitoring start for themselves. What is there already is
# left alone. Run as root, or with sudo available, on Debian or Ubuntu.
set -euo pipefail

PATH=$PATH:/usr/sbin
command -v prometheus >/dev/null && command -v promtool >/dev/null && exit 0

echo "installing prometheus"
sudo=$([ "$(id -u)" = 0 ] || echo sudo)
# The package's service would listen on port 9090. It is not needed, and there may be no systemd to stop it.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  printf '#!/bin/sh\nexit 101\n' | $sudo tee $policy >/dev/null
  $sudo chmod +x $policy
  trap '$sudo rm -f $policy' EXIT
fi
install() { $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus >/dev/null; }
$sudo apt-get update -qq
install || { echo "trying again" >&2; install; }
