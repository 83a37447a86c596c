#!/bin/sh
# Run commands on a machine that has nothing: a Debian 12 root with python3, git and
# certificates alone, in namespaces of its own, with a fresh clone of this repository.
#
#     sudo tests/fresh_machine/fresh_machine.sh './run build --arch 6.2' './run test'
#
# Needs root, mmdebstrap and git. ROOT=DIR keeps the root (default: a temporary folder). What
# belongs to this network comes along: resolv.conf, and the CA bundle that PIP_CERT names.
set -eu

repository=$(cd "$(dirname "$0")/../.." && pwd)
root=${ROOT:-$(mktemp -d /var/tmp/fresh-machine.XXXXXX)}
[ -n "${ROOT:-}" ] || trap 'rm -rf "$root"' EXIT

if [ ! -e "$root/etc/os-release" ]; then
    mkdir -p "$root"
    mmdebstrap --variant=minbase --include=python3,git,ca-certificates bookworm - | tar -x -C "$root"
fi
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
if [ -n "${PIP_CERT:-}" ]; then
    mkdir -p "$root$(dirname "$PIP_CERT")"
    cp -L "$PIP_CERT" "$root$PIP_CERT"
fi
rm -rf "$root/root/clone"
git clone --quiet "$repository" "$root/root/clone"

for command in "$@"; do
    printf '\n$ %s\n' "$command"
    started=$(date +%s)
    # A real root of its own (pivot_root, not chroot): container engines need one.
    status=0
    unshare --mount --pid --ipc --uts --fork sh -ec '
        mount --make-rprivate /
        mount --bind "$1" "$1"
        cd "$1"
        mount -t proc proc proc
        mount --rbind /sys sys
        mount --rbind /dev dev
        mount -t tmpfs tmpfs run
        mkdir -p .old-root
        pivot_root . .old-root
        exec env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
            LANG=C.UTF-8 ${3:+PIP_CERT="$3"} \
            sh -c "umount -l /.old-root && cd /root/clone && exec sh -c \"\$1\"" sh "$2"
    ' sh "$root" "$command" "${PIP_CERT:-}" || status=$?
    echo "exit status $status after $(($(date +%s) - started)) s"
    [ "$status" = 0 ] || exit "$status"
done
