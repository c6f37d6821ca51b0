#!/usr/bin/env bash
# Installs MIT Kerberos: the KDC that the tests of GSSAPI start for themselves, and what the package gssapi is compiled with;
# and kcat with GSSAPI, which stands for librdkafka.
# What is there already is left alone. Run as root, or with sudo available, on Debian or Ubuntu.
set -euo pipefail

apt=()
PATH=$PATH:/usr/sbin command -v krb5kdc >/dev/null || apt+=(krb5-kdc)
PATH=$PATH:/usr/sbin command -v kadmin.local >/dev/null || apt+=(krb5-admin-server)
command -v kinit >/dev/null || apt+=(krb5-user)
command -v krb5-config >/dev/null || apt+=(libkrb5-dev)
command -v gcc >/dev/null || apt+=(gcc libc6-dev)
command -v kcat >/dev/null || apt+=(kcat)
ls /usr/lib/*/sasl2/libgssapiv2.so >/dev/null 2>&1 || apt+=(libsasl2-modules-gssapi-mit)
((${#apt[@]})) || exit 0

echo "installing ${apt[*]}"
sudo=$([ "$(id -u)" = 0 ] || echo sudo)
$sudo apt-get update -qq
$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${apt[@]}" >/dev/null
