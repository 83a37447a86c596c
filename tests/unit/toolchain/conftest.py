import functools
import struct
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from jetship import proc
from jetship.targets.model import Platform

MakeDeb = Callable[..., Path]
Answer = Callable[[list[str], dict], proc.Finished]


@dataclass(frozen=True)
class Link:
    """A symbolic link in a package."""

    target: str


@dataclass
class FakePrograms:
    """Stands at the edge to the outside: answers for programs, and remembers what was asked."""

    answer: Answer
    calls: list[list[str]] = field(default_factory=list)
    options: list[dict] = field(default_factory=list)

    def run(self, argv, **options) -> proc.Finished:
        words = [str(word) for word in argv]
        self.calls.append(words)
        self.options.append(options)
        return self.answer(words, options)


@pytest.fixture
def programs(monkeypatch):
    """Replace all programs by one answer, or by a function of their argv and options."""

    def install(answer: Answer | None = None, *, status=0, stdout="", stderr="") -> FakePrograms:
        def same(argv: list[str], _options: dict) -> proc.Finished:
            return proc.Finished(tuple(argv), status, stdout, stderr)

        fake = FakePrograms(answer or same)
        monkeypatch.setattr(proc, "run", fake.run)
        return fake

    return install


@pytest.fixture
def on_path(monkeypatch):
    """Say that every program is, or that none is, on PATH."""

    def say(*, there: bool) -> None:
        monkeypatch.setattr(proc, "find", lambda program, *_: Path(program) if there else None)

    return say


@pytest.fixture
def make_deb(tmp_path) -> MakeDeb:
    """Make a real Debian package out of file contents and links."""

    def make(
        name: str,
        files: Mapping[str, str | Link],
        *,
        version: str = "1.0",
        architecture: str = "arm64",
    ) -> Path:
        root = tmp_path / "debs" / f"{name}.tree"
        control = f"Package: {name}\nVersion: {version}\nArchitecture: {architecture}\n"
        control += "Maintainer: Nobody <nobody@example.invalid>\nDescription: a test\n"
        for path, content in {"DEBIAN/control": control, **files}.items():
            place = root / path
            place.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Link):
                place.symlink_to(content.target)
            else:
                place.write_text(content)
                place.chmod(0o755 if content.startswith("#!") else 0o644)
        package = root.parent / f"{name}_{version.replace(':', '%3a')}_{architecture}.deb"
        done = proc.run(["dpkg-deb", "--build", "--root-owner-group", "-Znone", root, package])
        assert done.ok, done.stderr
        return package

    return make


@pytest.fixture
def link() -> type[Link]:
    return Link


@pytest.fixture(scope="session")
def make_libc(tmp_path_factory) -> Callable[..., bytes]:
    """Make a shared library that defines GLIBC_ versions as a libc does, for any machine."""

    @functools.cache
    def make(glibc: str = "2.27", machine: str = "aarch64") -> bytes:
        folder = tmp_path_factory.mktemp("libc")
        (folder / "libc.c").write_text("int answer(void) { return 42; }\n")
        (folder / "libc.map").write_text(
            f"GLIBC_2.17 {{ global: answer; }};\nGLIBC_{glibc} {{}} GLIBC_2.17;\n"
            "GLIBC_PRIVATE {} GLIBC_2.17;\n"
        )
        words = ["-shared", "-fPIC", "-nostdlib", f"-Wl,--version-script={folder}/libc.map"]
        done = proc.run(["gcc", *words, "-o", folder / "libc.so.6", folder / "libc.c"])
        assert done.ok, done.stderr
        data = bytearray((folder / "libc.so.6").read_bytes())
        struct.pack_into("<H", data, 18, {"aarch64": 183, "x86_64": 62}[machine])
        return bytes(data)

    return make


@pytest.fixture
def make_torch(make_wheel_file) -> Callable[..., Path]:
    """Make a file that is a wheel of a torch, as far as it says of itself."""

    def make(
        platform: Platform, *, version: str = "", tag: str = "", name: str = "torch", text: str = ""
    ) -> Path:
        python = platform.python
        version = version or platform.torch.version
        tag = tag or f"{python.tag}-{python.abi}-linux_{platform.machine}"
        info = f"torch-{version}.dist-info"
        members = {
            "torch/version.py": text or f"__version__ = '{version}'\n",
            "torch/lib/libc10.so": "",
            "torch/lib/libtorch.so": "",
            "torch/include/ATen/ATen.h": "",
            f"{info}/METADATA": f"Name: torch\nVersion: {version}\n",
            f"{info}/WHEEL": f"Wheel-Version: 1.0\nTag: {tag}\n",
        }
        return make_wheel_file(name, members)

    return make


def python_headers(version: str, config: str = "#define SIZEOF_LONG 8\n") -> dict[str, str]:
    """Return the files that show which Python a folder has the headers of."""
    major, minor = version.split(".")
    level = f"#define PY_MAJOR_VERSION\t{major}\n#define PY_MINOR_VERSION\t{minor}\n"
    folder = f"include/python{version}"
    return {f"{folder}/patchlevel.h": level, f"{folder}/pyconfig.h": config}


@pytest.fixture
def headers() -> Callable[..., dict[str, str]]:
    return python_headers


@pytest.fixture
def make_wheel_file(tmp_path) -> Callable[[str, Mapping[str, str]], Path]:
    """Make a zip file that can be unpacked as a wheel."""

    def make(name: str, members: Mapping[str, str]) -> Path:
        path = tmp_path / f"{name}.whl"
        with zipfile.ZipFile(path, "w") as archive:
            for member, text in members.items():
                archive.writestr(member, text)
        return path

    return make


@pytest.fixture
def grow() -> Callable[[Path, Mapping[str, str | bytes | Link]], Path]:
    """Write a tree of files, programs and links."""

    def grow(folder: Path, files: Mapping[str, str | bytes | Link]) -> Path:
        for name, content in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Link):
                path.symlink_to(content.target)
            elif isinstance(content, bytes):
                path.write_bytes(content)
            else:
                path.write_text(content)
                path.chmod(0o755 if content.startswith("#!") else 0o644)
        return folder

    return grow
