"""A fleet on one machine: every device has its own network, processes, disk, sshd and dockerd.

    with running_fleet(2) as fleet:
        one, other = fleet.devices
        fleet.ssh(one, "uname", "-m")                       # what a deployer sees: aarch64
        image = make_image(tmp_path, "1.0")                 # see arm64images.py
        one.load(image)
        one.docker("run", "-d", "--name", "app", image.tag)
        one.cut()                                           # the cable is pulled out ...
        one.mend()                                          # ... and plugged in again
        one.restart_engine()
        one.power_off()                                     # all of its processes die at once
        one.power_on()                                      # its disk is as it was

A device is a set of namespaces whose first process ends when the tests' process does, however
that ends; with it go its processes, mounts and network. A folder and a bridge may be left, which
the next fleet removes. Fleets of several test runs live beside each other, each in its own
10.77.N.0/24. Needs root on a Debian or Ubuntu machine, whose other engines it leaves alone.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess  # noqa: TID251 - a device's servers have to stay in the background
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from arm64images import Image
from docker import DockerClient
from engine import ensure_emulation, install
from jetship import proc
from product import wait_until

FOLDER = Path("/var/tmp/jetship-fleets")
FLEETS = 200
BUILDER = 200
ORIN = "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64, DATE: Wed Jan  8 01:49:37 UTC 2025"  # fmt: skip # noqa: E501
REGISTRY_OPTION = "--insecure-registry=10.77.0.0/16"
FAKETIME = f"/usr/lib/{os.uname().machine}-linux-gnu/faketime/libfaketime.so.1"
_PACKAGES = {
    "ip": "iproute2",
    "unshare": "util-linux",
    "dockerd": "docker.io",
    "/usr/bin/python3": "python3-minimal",
    "/usr/sbin/sshd": "openssh-server",
    "ssh": "openssh-client",
}
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_START_SECONDS = 90

# Run as the first process of a device. Its own /etc and /usr/local lie in memory and are made
# anew at every start; its disk holds what a device keeps: docker's data and the homes.
_INIT = r"""
set -eu
read pid rest < /proc/self/stat
folder=$1 name=$2 address=$3 disk=$4
mount -t proc proc /proc
test "$disk" = 0 || mount -t tmpfs -o "size=${disk}m" tmpfs "$folder/disk"
mkdir -p "$folder/disk/docker" "$folder/disk/home/robot" "$folder/disk/root" "$folder/disk/tmp"
chmod 1777 "$folder/disk/tmp"
chmod 700 "$folder/disk/root"
chown 5000:5000 "$folder/disk/home/robot"
mount -t tmpfs -o mode=755 tmpfs "$folder/memory"
mkdir "$folder/memory/upper" "$folder/memory/work" "$folder/memory/local"
mount -t overlay -o "lowerdir=/etc,upperdir=$folder/memory/upper,workdir=$folder/memory/work" \
    overlay /etc
cp -r "$folder/etc/." /etc
chmod 600 /etc/ssh/host_key
grep -q '^docker:' /etc/group || echo 'docker:x:5001:' >> /etc/group
sed -i 's/^docker:.*[^:]$/&,robot/; s/^docker:.*:$/&robot/' /etc/group
echo 'robot:x:5000:5000::/home/robot:/bin/sh' >> /etc/passwd
echo 'robot:x:5000:' >> /etc/group
echo 'robot:*:19000:0:99999:7:::' >> /etc/shadow
cp -r "$folder/local/." "$folder/memory/local"
mount --bind "$folder/memory/local" /usr/local
mkdir -p /var/lib/docker
mount --bind "$folder/disk/docker" /var/lib/docker
mount --bind "$folder/disk/home" /home
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/sshd /run/lock
hostname "$name"
echo "$pid"
read go
ip link set lo up
ip address add "$address/24" dev eth0
ip link set eth0 up
mount --bind "$folder/disk/root" /root
mount --bind "$folder/disk/tmp" /tmp
mount --bind "$folder/disk/tmp" /var/tmp
echo ready
cd /
exec docker-init -s -- cat
"""
_SSHD = """\
Port 22
ListenAddress {address}
HostKey /etc/ssh/host_key
AuthorizedKeysFile /etc/ssh/fleet_key.pub
PidFile none
UsePAM no
UseDNS no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
"""
_UNAME = """\
#!/bin/sh
# What a board's kernel says; the rest is this machine's.
case "$*" in -m|-p|-i) echo aarch64 ;; *) exec /usr/bin/uname "$@" ;; esac
"""


@dataclass
class Device:
    """One device, as its owner stands before it: what is done here needs no link to it."""

    name: str
    address: str
    folder: Path
    wire: str
    """The end of its cable that is on this machine."""
    disk_mb: int = 0
    release: str = ORIN
    skew_seconds: int = 0
    engine_options: tuple[str, ...] = ()
    _first: "subprocess.Popen[str] | None" = None
    _pid: int = 0
    _servers: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    # --- power ---

    def power_on(self) -> None:
        """Start it, with sshd and the engine; returns when both answer."""
        self.boot()
        self.start_sshd()
        self.start_engine()

    def boot(self) -> None:
        """Make its namespaces, without sshd and engine."""
        assert self._first is None, f"{self.name} is on"
        self._write_settings()
        namespaces = ("--mount", "--net", "--pid", "--ipc", "--uts")
        argv = [
            "unshare", *namespaces, "--fork", "--kill-child", "--propagation", "private",
            "sh", "-c", _INIT, "init", self.folder, self.name, self.address, self.disk_mb,
        ]  # fmt: skip
        with (self.folder / "init.log").open("wb") as log:
            self._first = subprocess.Popen(
                [str(word) for word in argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={"PATH": _PATH},
                text=True,
            )
        self._pid = int(self._told() or 0)
        # A device keeps its network card: neighbours have noted its address.
        card = "02:4a:{:02x}:{:02x}:{:02x}:{:02x}".format(*map(int, self.address.split(".")))
        peer = ("peer", "name", "eth0", "address", card, "netns", self._pid)
        _good("ip", "link", "add", self.wire, "type", "veth", *peer)
        bridge = self.wire.partition("-")[0]
        _good("ip", "link", "set", self.wire, "master", bridge, "up")
        self._tell("go\n")
        assert self._told() == "ready"

    def power_off(self) -> None:
        """Take the power away: every process dies at once, and the disk stays as it is.

        A small disk (`disk_mb`) lies in memory and is lost.
        """
        first, self._first = self._first, None
        if first is None:
            return
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert first.stdin is not None
        assert first.stdout is not None
        first.stdin.close()
        first.wait(_START_SECONDS)
        first.stdout.close()
        for server in self._servers.values():
            server.wait(_START_SECONDS)
        self._servers.clear()
        # It goes with the namespace, which the kernel takes apart in its own time.
        proc.run(["ip", "link", "delete", self.wire])

    def _tell(self, line: str) -> None:
        assert self._first is not None
        assert self._first.stdin is not None
        self._first.stdin.write(line)
        self._first.stdin.flush()

    def _told(self) -> str:
        assert self._first is not None
        assert self._first.stdout is not None
        line = self._first.stdout.readline().strip()
        assert line, f"{self.name} does not start: {(self.folder / 'init.log').read_text()}"
        return line

    def _write_settings(self) -> None:
        """Write what its /etc and /usr/local have beside this machine's."""
        for name in ("etc/ssh", "local/bin", "disk", "memory"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        config = _SSHD.format(address=self.address)
        if self.skew_seconds:
            config += f"SetEnv LD_PRELOAD={FAKETIME} FAKETIME={self.skew_seconds:+d}s\n"
        (self.folder / "etc/ssh/sshd_config").write_text(config)
        (self.folder / "etc/nv_tegra_release").unlink(missing_ok=True)
        if self.release:
            (self.folder / "etc/nv_tegra_release").write_text(self.release + "\n")
        uname = self.folder / "local/bin/uname"
        uname.write_text(_UNAME)
        uname.chmod(0o755)

    # --- what runs on it ---

    @property
    def root(self) -> Path:
        """Its file system, as seen from here."""
        return Path(f"/proc/{self._pid}/root")

    def inside(self, *words: str | Path, user: str = "root") -> proc.Finished:
        """Run a program on it, without a link."""
        home = "/root" if user == "root" else f"/home/{user}"
        become = () if user == "root" else ("setpriv", f"--reuid={user}", "--init-groups")
        become += () if user == "root" else (f"--regid={user}",)
        argv = [*self._enter, *become, *map(str, words)]
        return proc.run(argv, env={"PATH": _PATH, "HOME": home, "USER": user})

    def docker(self, *words: str | Path) -> str:
        """Run its `docker` and return what that writes; fails where it fails."""
        done = self.inside("docker", *words)
        assert done.ok, f"{self.name}: docker {' '.join(map(str, words))}: {done.stderr}"
        return done.stdout.strip()

    @contextlib.contextmanager
    def client(self) -> Iterator[DockerClient]:
        """Yield a client of its engine."""
        with contextlib.closing(DockerClient(f"unix://{self.socket}", timeout=60)) as one:
            yield one

    @property
    def socket(self) -> Path:
        """Its engine's socket, as seen from here: DOCKER_HOST=unix://…."""
        return self.root / "run/docker.sock"

    def containers(self, *, everything: bool = False) -> list[dict[str, Any]]:
        """Return what `docker inspect` says of its containers that run, or of all."""
        with self.client() as client:
            found = client.containers.list(all=everything, ignore_removed=True)
            return [one.attrs for one in found]

    def images(self) -> list[str]:
        """Return the ids of its images."""
        with self.client() as client:
            return sorted(str(one.id) for one in client.images.list())

    def load(self, image: Image) -> None:
        """Give an image to its engine, from a memory stick."""
        with self.client() as client, image.archive.open("rb") as stream:
            client.images.load(stream)

    def processes(self, name: str = "") -> list[int]:
        """Return the ids, as seen from here, of its processes, or of those with a name."""
        if not self._pid:
            return []
        found = []
        with contextlib.suppress(OSError):
            mine = Path(f"/proc/{self._pid}/ns/pid").readlink()
            for folder in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):  # it may end while it is looked at
                    comm = (folder / "comm").read_text().strip()
                    if (folder / "ns/pid").readlink() == mine and name in ("", comm):
                        found.append(int(folder.name))
        return found

    def kill(self, name: str, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal to all of its processes with a name; return how many there were."""
        found = self.processes(name)
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return len(found)

    @property
    def _enter(self) -> list[str]:
        assert self._first is not None, f"{self.name} is off"
        return ["nsenter", f"--target={self._pid}", "--mount", "--net", "--pid", "--ipc", "--uts"]

    def _serve(self, name: str, *argv: str) -> None:
        assert name not in self._servers, f"{name} of {self.name} runs"
        with (self.folder / f"{name}.log").open("ab") as log:
            self._servers[name] = subprocess.Popen(
                [*self._enter, *argv],
                env={"PATH": _PATH, "HOME": "/root"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def log(self, name: str) -> str:
        """Return the end of what "sshd" or "dockerd" has said."""
        text = (self.folder / f"{name}.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-20:])

    def _wait_for(self, name: str, answers: Any) -> None:
        end = time.monotonic() + _START_SECONDS
        while not answers():
            assert self._servers[name].poll() is None, f"{name} ended:\n{self.log(name)}"
            assert time.monotonic() < end, f"{name} does not start:\n{self.log(name)}"
            time.sleep(0.05)

    # --- sshd ---

    def start_sshd(self) -> None:
        """Start its sshd; returns when that answers."""
        self._serve("sshd", "/usr/sbin/sshd", "-D", "-e")
        self._wait_for("sshd", lambda: _listens(self.address, 22))

    def kill_sshd(self, *, sessions: bool = True) -> None:
        """Kill its sshd, and the sessions that it has."""
        if sessions:
            for name in ("sshd", "sshd-session", "sshd-auth"):
                self.kill(name)
        else:
            listener = self._servers["sshd"].pid
            os.kill(_only_child(listener), signal.SIGKILL)
        self._servers.pop("sshd").wait(_START_SECONDS)

    def change_host_key(self) -> None:
        """Give its sshd another host key, as a device set up anew would have."""
        key = self.folder / "etc/ssh/host_key"
        for file in (key, key.with_suffix(".pub")):
            file.unlink(missing_ok=True)
        _make_key(key)
        if self._first is not None:
            new = self.root / "etc/ssh/host_key"
            new.write_bytes(key.read_bytes())
            self.kill_sshd()
            self.start_sshd()

    @property
    def host_key(self) -> str:
        """The line of known_hosts for it."""
        public = (self.folder / "etc/ssh/host_key.pub").read_text().split()
        return f"{self.address} {public[0]} {public[1]}\n"

    # --- the engine ---

    def start_engine(self, *, wait: bool = True) -> None:
        """Start its dockerd, which starts its containers with a restart policy."""
        group = self.cgroup
        options = ("--iptables=false", "--bridge=none", f"--cgroup-parent={group}")
        # What a Jetson's package nvidia-container-toolkit adds; here it has no GPU to give.
        nvidia = (f"--add-runtime=nvidia={proc.find('runc')}",) if self.release else ()
        self._serve("dockerd", "dockerd", *options, *nvidia, *self.engine_options)
        if wait:
            self.wait_for_engine()

    def wait_for_engine(self) -> None:
        """Wait until its dockerd answers."""
        self._wait_for("dockerd", lambda: _engine_answers(self.socket))

    def stop_engine(self) -> None:
        """End its dockerd, which stops its containers."""
        self.kill("dockerd", signal.SIGTERM)
        self._servers.pop("dockerd").wait(_START_SECONDS)

    def kill_engine(self) -> None:
        """Kill its dockerd with -9; containers run on until it starts again."""
        self.kill("dockerd")
        self._servers.pop("dockerd").wait(_START_SECONDS)

    def restart_engine(self) -> None:
        """Do what `systemctl restart docker` does."""
        self.stop_engine()
        self.start_engine()

    @property
    def cgroup(self) -> str:
        return f"/jetship-{self.wire}"

    # --- the cable ---

    def cut(self) -> None:
        """Pull the cable out: nothing arrives, and nobody is told."""
        _good("ip", "link", "set", self.wire, "down")

    def mend(self) -> None:
        """Plug the cable in again."""
        _good("ip", "link", "set", self.wire, "up")

    def slow(self, kilobytes_per_second: int) -> None:
        """Let the link carry so much towards the device, and no more."""
        limit = ("rate", f"{kilobytes_per_second * 8}kbit", "burst", "16kb", "latency", "200ms")
        _good("tc", "qdisc", "replace", "dev", self.wire, "root", "tbf", *limit)

    def fast(self) -> None:
        """Let the link carry what it can."""
        _good("tc", "qdisc", "delete", "dev", self.wire, "root")

    def reset_links(self) -> None:
        """End its TCP connections as a router that restarts does: both ends are told."""
        _good("ss", "--kill", "state", "established", "dst", self.address)

    @property
    def received_bytes(self) -> int:
        """What the link has carried to it since it was switched on, with all headers."""
        return int(Path(f"/sys/class/net/{self.wire}/statistics/tx_bytes").read_text())

    # --- what it is ---

    def set_release(self, text: str) -> None:
        """Write /etc/nv_tegra_release; an empty text takes it away."""
        self.release = text
        self._write_settings()
        file = self.root / "etc/nv_tegra_release"
        file.unlink(missing_ok=True)
        if text:
            file.write_text(text + "\n")

    def set_clock(self, skew_seconds: int) -> None:
        """Let the programs of new sessions see a clock that is so far ahead (or behind, below 0).

        There is no clock of a namespace's own in Linux; libfaketime answers for it.
        """
        install("faketime", "faketime")
        self.skew_seconds = skew_seconds
        self._write_settings()
        config = (self.folder / "etc/ssh/sshd_config").read_text()
        (self.root / "etc/ssh/sshd_config").write_text(config)
        self.kill_sshd()
        self.start_sshd()

    def fill_disk(self, *, leave_mb: int) -> None:
        """Write a file that leaves so much of its disk free; its disk has to be a small one."""
        assert self.disk_mb, "this device shares this machine's disk"
        folder = self.root / "var/lib/docker"
        with (folder / "filler").open("wb") as file:
            size = 0
            while (more := _free_bytes(folder) - (leave_mb << 20)) > 0:
                # What else writes there may be quicker; then all of it is taken back.
                with contextlib.suppress(OSError):
                    os.posix_fallocate(file.fileno(), size, more)
                    size += more

    def free_disk(self) -> None:
        """Remove that file."""
        (self.root / "var/lib/docker/filler").unlink()


@dataclass(frozen=True)
class Fleet:
    """Devices behind one bridge, and the keys of who may log in to them.

    `builder` is another machine in that network, whose engine the deployer uses: so it has the
    images of a test alone, and may push to a registry of the test's.
    """

    folder: Path
    number: int
    devices: tuple[Device, ...]
    builder: Device

    @property
    def identity(self) -> Path:
        """The private key that every device takes, for root and robot."""
        return self.folder / "key"

    @property
    def known_hosts(self) -> Path:
        """A file with the host keys that the devices had in the beginning."""
        return self.folder / "known_hosts"

    @property
    def ssh_config(self) -> Path:
        """A configuration for `ssh -F`, by which every device is known and lets in."""
        return self.folder / "ssh_config"

    @property
    def address(self) -> str:
        """This machine, as the devices see it."""
        return f"10.77.{self.number}.1"

    def ssh(self, device: Device, *words: str, user: str = "root") -> proc.Finished:
        """Run a command on a device as a deployer does."""
        options = ["-F", self.ssh_config, "-o", "BatchMode=yes", "-o", "ConnectTimeout=3"]
        return proc.run(["ssh", *options, f"{user}@{device.address}", *words])

    def send(
        self, device: Device, data: bytes, command: str, user: str = "root"
    ) -> "subprocess.CompletedProcess[bytes]":
        """Run a command on a device that reads `data`."""
        argv = ["ssh", "-F", self.ssh_config, f"{user}@{device.address}", command]
        return subprocess.run(argv, input=data, capture_output=True, check=False)


@contextlib.contextmanager
def running_fleet(
    count: int,
    *,
    disk_mb: int = 0,
    release: str = ORIN,
    engine_options: Sequence[str] = (),
) -> Iterator[Fleet]:
    """Yield a fleet that lives as long as this context.

    Args:
        count: how many devices, which are called device1, device2, …
        disk_mb: the size of each device's disk (default: this machine's). It lies in memory.
        release: what /etc/nv_tegra_release says; "" for a machine that is no Jetson.
        engine_options: further options of every dockerd.
    """
    ensure_emulation()
    for program, package in _PACKAGES.items():
        install(program, package)
    with _own_number() as (number, folder):
        _make_key(folder / "key")
        devices = tuple(
            _device(folder, number, index, disk_mb, release, tuple(engine_options))
            for index in range(1, count + 1)
        )
        builder = _device(folder, number, BUILDER, 0, "", tuple(engine_options))
        fleet = Fleet(folder, number, devices, builder)
        fleet.known_hosts.write_text("".join(device.host_key for device in devices))
        fleet.ssh_config.write_text(
            f"Host 10.77.{number}.*\n  User root\n  IdentityFile {fleet.identity}\n"
            f"  IdentitiesOnly yes\n  IdentityAgent none\n  StrictHostKeyChecking yes\n"
            f"  UserKnownHostsFile {fleet.known_hosts}\n  GlobalKnownHostsFile none\n"
        )
        try:
            _start((*devices, builder))
            yield fleet
        finally:
            for device in (*devices, builder):
                device.power_off()


@contextlib.contextmanager
def running_registry(fleet: Fleet) -> Iterator[str]:
    """Yield the address, "10.77.N.1:5000", of a registry that the devices reach, over plain HTTP.

    Their engines, and the one that pushes, need the option `REGISTRY_OPTION`.
    """
    install("docker-registry", "docker-registry")
    folder, address = fleet.folder / "registry", f"{fleet.address}:5000"
    folder.mkdir()
    (folder / "config.yml").write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {folder}/data}}}}\n"
        f"http: {{addr: '{address}'}}\n"
    )
    argv = ["docker-registry", "serve", folder / "config.yml"]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log) as child,
    ):
        try:
            wait_until(
                lambda: _listens(fleet.address, 5000) or child.poll() is not None, "its start"
            )
            assert child.poll() is None, (folder / "log").read_text()
            yield address
        finally:
            child.terminate()


def _start(devices: Sequence[Device]) -> None:
    for device in devices:
        device.boot()
        device.start_engine(wait=False)
        device.start_sshd()
    for device in devices:
        device.wait_for_engine()


def _device(  # noqa: PLR0917
    folder: Path, number: int, index: int, disk_mb: int, release: str, options: tuple[str, ...]
) -> Device:
    own = folder / f"device{index}"
    (own / "etc/ssh").mkdir(parents=True)
    _make_key(own / "etc/ssh/host_key")
    shutil.copy(folder / "key.pub", own / "etc/ssh/fleet_key.pub")
    address = f"10.77.{number}.{index + 1}"
    wire = f"jsf{number}-{index}"
    name = "builder" if index == BUILDER else f"device{index}"
    return Device(name, address, own, wire, disk_mb, release, 0, options)


@contextlib.contextmanager
def _own_number() -> Iterator[tuple[int, Path]]:
    """Yield a number that no other fleet has, with its folder; the bridge of that number is up."""
    sweep_all()
    for number in range(FLEETS):
        with _locked(number) as mine:
            if not mine:
                continue
            folder = FOLDER / str(number)
            folder.mkdir()
            bridge = f"jsf{number}"
            _good("ip", "link", "add", bridge, "type", "bridge")
            _good("ip", "address", "add", f"10.77.{number}.1/24", "dev", bridge)
            _good("ip", "link", "set", bridge, "up")
            try:
                yield number, folder
            finally:
                _sweep(number)
            return
    raise AssertionError(f"{FLEETS} fleets run already")


@contextlib.contextmanager
def _locked(number: int) -> Iterator[bool]:
    """Yield whether nobody else has the number; nobody else gets it before the end."""
    with (FOLDER / f"{number}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def sweep_all() -> None:
    """Remove what killed test runs have left."""
    FOLDER.mkdir(exist_ok=True)
    for file in FOLDER.glob("*.lock"):
        number = int(file.stem)
        with _locked(number) as mine:
            if mine:
                _sweep(number)


def _sweep(number: int) -> None:
    """Remove what is left of a fleet: of this process's, or of one that was killed."""
    if Path(f"/sys/class/net/jsf{number}").exists():
        _good("ip", "link", "delete", f"jsf{number}")
    folder = FOLDER / str(number)
    if folder.exists():
        shutil.rmtree(folder)
    for found in Path("/sys/fs/cgroup").glob(f"**/jetship-jsf{number}-*"):
        wait_until(lambda found=found: _no_cgroup(found), f"the end of {found}")


def _no_cgroup(folder: Path) -> bool:
    """Remove a group with those below it; whether that went. It does not while processes end."""
    with contextlib.suppress(OSError):
        for below, _, _ in os.walk(folder, topdown=False):
            Path(below).rmdir()
    return not folder.exists()


def _make_key(path: Path) -> None:
    _good("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path)


def _good(*argv: str | Path | int) -> None:
    done = proc.run([str(word) for word in argv])
    assert done.ok, f"{' '.join(map(str, argv))}: {done.stderr}"


def _listens(address: str, port: int) -> bool:
    with socket.socket() as tried:
        tried.settimeout(1)
        return tried.connect_ex((address, port)) == 0


def _free_bytes(folder: Path) -> int:
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def _engine_answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as asked:
        asked.settimeout(10)
        try:
            asked.connect(str(path))
            asked.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 OK" in asked.recv(100)
        except OSError:
            return False


def _only_child(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)
