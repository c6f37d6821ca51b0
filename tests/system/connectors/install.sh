#!/usr/bin/env bash
# Installs the database servers that the tests of the connectors start for themselves, each in a temporary directory.
# What is there already is left alone. Run as root, or with sudo available, on Debian or Ubuntu.
set -euo pipefail

apt=()
[ -n "$(compgen -G '/usr/lib/postgresql/*/bin/postgres')" ] || command -v postgres >/dev/null || apt+=(postgresql)
PATH=$PATH:/usr/sbin command -v mariadbd >/dev/null || apt+=(mariadb-server-core)
PATH=$PATH:/usr/sbin command -v mariadb-install-db >/dev/null || apt+=(mariadb-client-core mariadb-server-core)
((${#apt[@]})) || exit 0

echo "installing ${apt[*]}"
sudo=$([ "$(id -u)" = 0 ] || echo sudo)
# Without this file, the package creates a PostgreSQL cluster of its own and starts it.
if [ ! -e /etc/postgresql-common/createcluster.conf ]; then
  $sudo mkdir -p /etc/postgresql-common
  echo 'create_main_cluster = false' | $sudo tee /etc/postgresql-common/createcluster.conf >/dev/null
fi
install() { $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends -o Dpkg::Options::=--force-confold "${apt[@]}" >/dev/null; }
$sudo apt-get update -qq
install || { echo "trying again" >&2; install; }
