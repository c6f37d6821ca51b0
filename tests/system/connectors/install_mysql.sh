#!/usr/bin/env bash
# Puts MySQL's server into a directory of its own, for tests of the source and sink of MySQL. Nothing is installed in
# the system, and no rights are needed. Debian has MySQL in its unstable distribution only: apt downloads it from there,
# with every library that it needs, and checks the signatures. Ubuntu has a package, and this script does nothing there.
set -euo pipefail

home=${1:-/var/tmp/barnabas-mysql}
[ ! -x "$home/bin/mysqld" ] || exit 0
if found=$(PATH=$PATH:/usr/sbin command -v mysqld) && ! "$found" --version | grep -q MariaDB; then exit 0; fi

echo "downloading mysql-server-core into $home"
fresh=$(mktemp -d "$home.XXXXXX")
trap 'rm -rf "$fresh"' EXIT
chmod 755 "$fresh"
mkdir -p "$fresh"/apt/{state/lists/partial,cache/archives/partial}
touch "$fresh/apt/status"
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
echo "deb [signed-by=$keyring] http://deb.debian.org/debian unstable main" >"$fresh/apt/sources.list"
apt=(apt-get -qq -o Dir::Etc::SourceList="$fresh/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
  -o Dir::State="$fresh/apt/state" -o Dir::State::Status="$fresh/apt/status" -o Dir::Cache="$fresh/apt/cache"
  -o APT::Sandbox::User= -o Debug::NoLocking=1 -o Acquire::Retries=3)
"${apt[@]}" update
"${apt[@]}" install -y --no-install-recommends --download-only -o APT::Keep-Downloaded-Packages=true mysql-server-core >/dev/null
mkdir "$fresh/root" "$fresh/bin"
for package in "$fresh"/apt/cache/archives/*.deb; do dpkg-deb -x "$package" "$fresh/root"; done
rm -rf "$fresh/apt"

# The libraries are newer than those of the system, so that the server starts with their own loader.
cat >"$fresh/bin/mysqld" <<END
#!/bin/sh
root=$home/root
libraries=\$(dirname "\$(ls "\$root"/usr/lib/*/libc.so.6)")
exec "\$(ls "\$libraries"/ld-linux*.so.?)" --library-path "\$libraries" "\$root/usr/sbin/mysqld" "\$@" --basedir="\$root/usr"
END
chmod 755 "$fresh/bin/mysqld"
rm -rf "$home"
mv "$fresh" "$home"
trap - EXIT
"$home/bin/mysqld" --version
