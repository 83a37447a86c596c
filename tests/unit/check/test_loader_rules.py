"""The rules about search paths, stacks, relocations, twins, cores, requirements, other people's."""

import dataclasses
import struct

import make_corpus
import pytest
from jetship.check.rules_vendored import plain_name
from jetship.check.wheel import Member
from jetship.elf import ElfError, parse_elf
from jetship.instructions import Instructions, instructions_of
from jetship.targets.cores import cores_of
from jetship.targets.resolve import resolve
from wheelspec import EXT, WheelSpec

NAME = f"pkg/_C{EXT}"
GNU_STACK, LOAD = 0x6474E551, 1


def program_headers(data: bytes) -> dict[int, int]:
    """Return the place of the first program header of each type."""
    (start,) = struct.unpack_from("<Q", data, 32)
    (count,) = struct.unpack_from("<H", data, 56)
    places = [start + 56 * index for index in range(count)]
    return {struct.unpack_from("<I", data, place)[0]: place for place in reversed(places)}


def patched(data: bytes, place: int, layout: str, value: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into(layout, changed, place, value)
    return bytes(changed)


def on(target, **changes):
    """Return the target with other facts of its platform: glibc="2.41"."""
    abi = target.platform.abi.model_copy(update=changes)
    return dataclasses.replace(target, platform=target.platform.model_copy(update={"abi": abi}))


class TestStack:
    @pytest.fixture
    def executable(self, member) -> bytes:
        data = member("good.so")
        return patched(data, program_headers(data)[GNU_STACK] + 4, "<I", 7)

    def test_older_glibc_loads_it(self, check, of, executable):
        report = check(executable)
        (finding,) = of(report, "stack")
        assert (finding.outcome, report.outcome) == ("unknown", "pass")
        assert "glibc 2.36 of the target loads it" in finding.accepted

    def test_newer_glibc_refuses_it(self, check, of, executable, target):
        report = check(executable, target=on(target, glibc="2.41"))
        (finding,) = of(report, "stack")
        assert (finding.outcome, report.outcome) == ("fail", "fail")
        assert "glibc 2.41 of the target refuses" in finding.reason

    def test_a_file_that_does_not_say(self, check, of, member):
        data = member("good.so")
        silent = patched(data, program_headers(data)[GNU_STACK], "<I", 0)
        assert parse_elf(silent).executable_stack is None
        (finding,) = of(check(silent), "stack")
        assert finding.outcome == "pass"  # aarch64's glibc takes that for no

    def test_a_plain_one(self, check, of):
        (finding,) = of(check("good.so"), "stack")
        assert finding.outcome == "pass"


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        (48, 1024, "less than a page"),
        (48, 0x1001, "less than a page"),
        (16, 0x10, "does not fit its place"),
        (40, 0, "smaller in memory"),
    ],
)
def test_segments_that_no_loader_maps(member, field, value, reason):
    data = member("good.so")
    with pytest.raises(ElfError, match=reason):
        parse_elf(patched(data, program_headers(data)[LOAD] + field, "<Q", value))


@pytest.mark.parametrize(("place", "value"), [(6, 0), (20, 2), (9, 1), (15, 255)])
def test_headers_that_no_loader_takes(check, of, member, place, value):
    (finding,) = of(check(patched(member("good.so"), place, "<B", value)), "elf")
    assert finding.outcome == "fail"
    assert "not one of ELF version 1" in finding.reason


@pytest.mark.parametrize(
    ("abi", "outcome"),
    [
        ((0, 0), "pass"),
        ((3, 0), "pass"),
        ((3, 1), "pass"),
        ((0, 1), "fail"),
        ((9, 0), "fail"),
        ((3, 9), "fail"),
    ],
)
def test_os_abi(check, of, member, abi, outcome):
    data = patched(member("good.so"), 7, "<H", abi[0] + 256 * abi[1])
    (finding,) = of(check(data), "elf")
    assert finding.outcome == outcome


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (b"/home/me/x", "/home/me/x, a folder of the machine that built it"),
        (b"/opt/conda/lib", "a folder of the machine that built it"),
        (b"/usr/local/cuda-12.6/lib64", "and the target has CUDA 11.8"),
        (b"/usr/lib/../../tmp/x", "a folder of the machine that built it"),
        (b"pkg.libs", "relative to whatever folder is current"),
        (b"$ORIGIN/../pkg.libs:", "an empty entry"),
        (b"/usr/local/cuda/lib64", ""),
        (b"/usr/local/cuda-11.8/lib64", ""),
        (b"/usr/local/cuda-11/lib64", ""),
        (b"/usr/lib/aarch64-linux-gnu", ""),
        (b"${ORIGIN}/x:$ORIGIN", ""),
    ],
)
def test_search_path(check, of, member, path, says):
    room = make_corpus.ROOM.encode()
    report = check(member("pathed.so").replace(room, path.ljust(len(room), b"\0")))
    (finding,) = of(report, "search-path")
    assert finding.outcome == ("unknown" if says else "pass")
    assert says in finding.reason
    assert bool(finding.accepted) == bool(says)


class TestTwins:
    def test_different_ones(self, check, of, corpus, member):
        own = (corpus / "elsewhere/libown.so").read_bytes()
        other = (corpus / "target/libtorch_cpu.so").read_bytes()
        files = {NAME: member("own.so"), "pkg.libs/libown.so": own, "b/libown.so": other}
        (finding,) = of(check(WheelSpec(files)), "twins")
        assert (finding.outcome, finding.accepted) == ("unknown", None)
        assert finding.evidence == ("pkg.libs/libown.so", "b/libown.so")

    def test_copies(self, check, of, corpus, member):
        own = (corpus / "elsewhere/libown.so").read_bytes()
        files = {NAME: member("own.so"), "pkg.libs/libown.so": own, "b/libown.so": own}
        (finding,) = of(check(WheelSpec(files)), "twins")
        assert finding.outcome == "pass"


class TestInheritedSearchPath:
    """A library without a search path of its own is looked for along that of who needs it."""

    def spec(self, corpus, member, tag: int) -> WheelSpec:
        first = member("own.so")
        second = member("astray.so").replace(b"libown.so\0", b"libtwo.so\0")
        first = first.replace(b"libown.so\0", b"libmid.so\0")
        dynamic = first.index(struct.pack("<Q", 29)) if tag == 15 else 0
        if dynamic:
            first = patched(first, dynamic, "<Q", tag)
        files = {NAME: first, "pkg.libs/libmid.so": second}
        return WheelSpec(
            {**files, "pkg.libs/libtwo.so": (corpus / "elsewhere/libown.so").read_bytes()}
        )

    def test_rpath_is(self, check, of, corpus, member):
        findings = of(check(self.spec(corpus, member, 15)), "libraries")
        assert not [f for f in findings if f.subject.endswith("libmid.so") and f.outcome != "pass"]

    def test_runpath_is_not(self, check, of, corpus, member):
        findings = of(check(self.spec(corpus, member, 29)), "libraries")
        (finding,) = [f for f in findings if f.subject.endswith("libmid.so")]
        assert "no RPATH of it leads to libtwo.so" in finding.reason


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("libcudart-1b2c3d4e.so.11.0", "libcudart"),
        ("libcudart.41118559.so.12", "libcudart"),
        ("libtorchaudio.so", "libtorchaudio"),
        ("libc10.so", "libc10"),
        ("libstdc++-0a1b2c3d.so.6.0.30", "libstdc++"),
        ("ld-linux-aarch64.5cbc5e90.so.1", "ld-linux-aarch64"),
        ("_C.so", ""),
        ("libcuda.so.1", "libcuda"),
    ],
)
def test_plain_names(file, name):
    assert plain_name(Member(f"pkg.libs/{file}", None)) == name


class TestVendored:
    def outcome(self, check, of, file: str, **bent):
        (finding,) = of(check("good.so", file=f"pkg.libs/{file}", **bent), "vendored")
        return finding.outcome

    @pytest.mark.parametrize(
        ("file", "outcome"),
        [
            ("libtorch_cpu-0a1b2c3d.so", "fail"),
            ("libcudnn_ops_infer.so.8", "fail"),
            ("libnvinfer.so.8", "fail"),
            ("libcuda.so.1", "fail"),
            ("libgcc_s.so.1", "unknown"),
            ("libtorchaudio.so", "pass"),
            ("libcudaq.so", "pass"),
        ],
    )
    def test_what_belongs_to_others(self, check, of, file, outcome):
        assert self.outcome(check, of, file) == outcome

    def test_the_owners_own_wheel(self, check, of):
        assert self.outcome(check, of, "libc10.so", name="torch") == "pass"
        assert self.outcome(check, of, "libcudart.so.12", name="nvidia_cuda_runtime") == "pass"

    def test_cuda_where_it_comes_in_wheels(self, check, of, catalog):
        (server,) = resolve(catalog, arch="9.0", platform="debian-13")
        report = check("good.so", file="pkg.libs/libcudart.so.13", target=server)
        (finding,) = of(report, "vendored")
        assert (finding.outcome, bool(finding.accepted)) == ("unknown", True)


@pytest.mark.parametrize(
    ("machine", "requirement", "outcome"),
    [
        ("debian-12/6.2", "nvidia-cublas-cu11", "fail"),
        ("debian-12/6.2", "nvidia-cuda-runtime-cu12>=12; platform_machine == 'x86_64'", "pass"),
        ("debian-12/6.2", "nvidia-ml-py", "pass"),
        ("debian-12/6.2", "tensorrt-cu12", "fail"),
        ("debian-12/6.2", "numpy>=2", "pass"),
        ("jetpack-7.2/11.0", "nvidia-cublas-cu12", "fail"),
        ("jetpack-7.2/11.0", "nvidia-cublas-cu13", "pass"),
        ("jetpack-7.2/11.0", "nvidia-cublas", "pass"),
        ("jetpack-5.1/8.7", "numpy>=2", "fail"),
        ("jetpack-5.1/8.7", "numpy>=1.22", "pass"),
        ("jetpack-5.1/8.7", "numpy>=2; python_version >= '3.9'", "pass"),
        ("jetpack-5.1/8.7", "numpy<3,!=2.0", "pass"),
        ("jetpack-5.1/8.7", "numpy~=1.26.0", "fail"),
        ("jetpack-6.2/8.7", "numpy==2.2.*", "pass"),
        ("jetpack-6.2/8.7", "numpy>=2.3", "fail"),
    ],
)
def test_requires(check, catalog, machine, requirement, outcome):
    platform, arch = machine.split("/")
    (target,) = resolve(catalog, arch=arch, platform=platform)
    report = check("good.so", target=target, headers=(f"Requires-Dist: {requirement}",))
    (finding,) = [finding for finding in report.findings if finding.rule == "requires"]
    assert finding.outcome == outcome


def test_numpy_2_with_a_torch_for_numpy_1(check, of, target):
    torch = target.platform.torch.model_copy(update={"version": "2.1.0"})
    platform = target.platform.model_copy(update={"torch": torch})
    report = check(
        "good.so",
        target=dataclasses.replace(target, platform=platform),
        headers=("Requires-Dist: numpy>=2",),
    )
    (finding,) = of(report, "requires")
    assert "was compiled for numpy 1" in finding.reason


def test_torch_of_another_cuda_is_named(check, of):
    report = check("good.so", headers=("Requires-Dist: torch==2.7.1+cu126",))
    (finding,) = of(report, "requires-torch")
    assert finding.evidence == (
        "torch==2.7.1+cu126 (a build for CUDA 12.6; the target's is for the CPU alone)",
    )


class TestCpu:
    """What the rule makes of the instructions; the instructions themselves are tested apart."""

    @pytest.fixture
    def with_instructions(self, check, of, monkeypatch):
        def run(found: Instructions, **options):
            monkeypatch.setattr("jetship.check.wheel.instructions_of", lambda _data, _elf: found)
            (finding,) = of(check("good.so", **options), "cpu")
            return finding

        return run

    @pytest.mark.parametrize(
        ("arch", "feature", "outcome"),
        [
            ("5.3", "lse", "fail"), ("6.2", "lse", "fail"), ("7.2", "lse", "pass"),
            ("7.2", "dotprod", "fail"), ("8.7", "dotprod", "pass"), ("8.7", "sve", "fail"),
            ("8.7", "i8mm", "fail"),
        ],
    )  # fmt: skip
    def test_boards(self, with_instructions, catalog, arch, feature, outcome):
        (target,) = resolve(catalog, arch=arch, platform="debian-12")
        finding = with_instructions(Instructions({feature: 3}), target=target)
        assert finding.outcome == outcome
        assert (f"{feature}: 3",) == finding.evidence

    def test_thor_has_vectors_of_any_length(self, with_instructions, catalog):
        (thor,) = resolve(catalog, arch="11.0", platform="jetpack-7.2")
        assert with_instructions(Instructions({"sve": 3}), target=thor).outcome == "pass"

    def test_asking_the_cores_is_noted(self, with_instructions):
        finding = with_instructions(Instructions({"sve": 3}, ("it calls getauxval",)))
        assert finding.outcome == "unknown"
        assert "it calls getauxval" in finding.accepted

    def test_servers_may_have_any_cpu(self, with_instructions, catalog):
        (server,) = resolve(catalog, arch="9.0", platform="debian-13")
        finding = with_instructions(Instructions({"sve": 3}), target=server)
        assert (finding.outcome, bool(finding.accepted)) == ("unknown", True)

    def test_code_that_cannot_be_told_from_data(self, with_instructions):
        finding = with_instructions(Instructions(known=False))
        assert (finding.outcome, bool(finding.accepted)) == ("unknown", True)

    def test_without_device_code_all_boards_of_the_platform_count(self, target):
        cpu_only = dataclasses.replace(target, code=())
        assert {one.name for one in cores_of(cpu_only)} >= {"Cortex-A57", "Cortex-A78AE"}


def test_a_library_without_a_section_table_has_unknown_code(member):
    data = bytearray(member("good.so"))
    data[40:48] = bytes(8)
    assert not instructions_of(bytes(data), parse_elf(bytes(data))).known
