"""One pass and one fail a rule, on small real libraries."""

import dataclasses
import struct

import make_corpus
import pytest
from jetship.check.libraries import TargetLibraries
from jetship.pin import Pin, PinnedCuda, PinnedPython, PinnedTool, PinnedTorch
from jetship.targets.resolve import resolve
from wheelspec import EXT, WheelSpec


def test_a_good_wheel_passes_every_rule(check):
    report = check("good.so")
    assert report.outcome == "pass"
    assert {finding.outcome for finding in report.findings} == {"pass"}
    assert {finding.rule for finding in report.findings} == {
        "record", "metadata", "tags", "requires-torch", "pin", "elf", "machine", "suffix",
        "versions", "libraries", "symbols", "device-code", "requires", "vendored", "search-path",
        "twins", "stack", "text-relocations", "cpu",
    }  # fmt: skip


def test_a_pure_python_wheel_passes(check):
    assert check(WheelSpec({"pkg/a.py": b"x = 1\n"}, tag="py3-none-any")).outcome == "pass"


class TestRecord:
    def test_edited_file(self, check, of, member):
        name = f"pkg/_C{EXT}"
        spec = WheelSpec({name: member("good.so")}, edited={name: member("plain.so")})
        (finding,) = of(check(spec), "record")
        assert finding.outcome == "fail"
        assert name in finding.evidence[0]

    def test_file_not_listed(self, check, of, member):
        spec = WheelSpec({f"a{EXT}": member("good.so")}, unrecorded={"b.py": b"evil"})
        (finding,) = of(check(spec), "record")
        assert finding.evidence == ("b.py is not in RECORD",)

    def test_file_missing(self, check, of):
        lost = b"gone.py,sha256=AAAA,4\n"
        spec = WheelSpec(edited={"pkg-1.0.dist-info/RECORD": lost})
        (finding,) = of(check(spec), "record")
        assert "gone.py is in RECORD, but not in the wheel" in finding.evidence


@pytest.mark.parametrize(
    ("bent", "evidence"),
    [
        ({"metadata_version": "2.0"}, "METADATA has the version '2.0'"),
        ({"wheel_tag": "cp311-cp311-linux_x86_64"}, "WHEEL has cp311-cp311-linux_x86_64"),
        ({"headers": ("Requires-Python: <3.9",)}, "Requires-Python is '<3.9'"),
        ({"headers": ("Requires-Python: nonsense",)}, "Requires-Python is 'nonsense'"),
        ({"wheel_tag": "cp310-cp310-linux_aarch64"}, "WHEEL has cp310-cp310-linux_aarch64"),
        ({"edited": {"pkg-1.0.dist-info/WHEEL": b"Wheel-Version: 2.0\n"}}, "layout version '2.0'"),
    ],
)
def test_metadata(check, of, bent, evidence):
    (finding,) = of(check("good.so", **bent), "metadata")
    assert finding.outcome == "fail"
    assert evidence in "\n".join(finding.evidence)


def test_metadata_of_a_wheel_that_was_renamed_to_manylinux(check):
    tag = "cp311-cp311-manylinux_2_17_aarch64.manylinux2014_aarch64"
    assert check("good.so", tag=tag, wheel_tag="cp311-cp311-linux_aarch64").outcome == "pass"


@pytest.mark.parametrize(
    "tag",
    [
        "cp311-cp311-linux_aarch64",
        "cp311-abi3-linux_aarch64",
        "cp38-abi3-manylinux_2_17_aarch64.manylinux2014_aarch64",
        "cp311-none-manylinux_2_36_aarch64",
        "py3-none-linux_aarch64",
        "cp310.cp311-cp311-linux_aarch64",
    ],
)
def test_tags_that_fit(check, of, tag):
    (finding,) = of(check("good.so", tag=tag), "tags")
    assert finding.outcome == "pass"


@pytest.mark.parametrize(
    ("tag", "evidence"),
    [
        ("cp310-cp310-linux_aarch64", "Python: it is for cp310 with ABI cp310"),
        ("cp310-cp311-linux_aarch64", "Python: it is for cp310 with ABI cp311"),
        ("cp312-abi3-linux_aarch64", "Python: it is for cp312 with ABI abi3"),
        ("cp3-abi3-linux_aarch64", "Python: it is for cp3 with ABI abi3"),
        ("cp310-none-linux_aarch64", "Python: it is for cp310 with ABI none"),
        ("py2-none-linux_aarch64", "Python: it is for py2"),
        ("cp311-cp311-linux_x86_64", "machine: it is for x86_64, the target is aarch64"),
        ("cp311-cp311-manylinux_2_39_aarch64", "glibc: it wants 2.39, the target has 2.36"),
        ("cp311-cp311-musllinux_1_2_aarch64", "platform: musllinux_1_2_aarch64 is not Linux"),
        ("cp311-cp311-win_arm64", "platform: win_arm64 is not Linux"),
        ("py3-none-any", "platform: it says `any`, but it has machine code"),
    ],
)
def test_tags_that_do_not_fit(check, of, tag, evidence):
    (finding,) = of(check("good.so", tag=tag), "tags")
    assert finding.outcome == "fail"
    assert evidence in "\n".join(finding.evidence)


def test_no_python_installs_the_abi_of_another_release(check, of, target):
    python = target.platform.python.model_copy(update={"version": "3.10"})  # its ABI is cp311
    platform = target.platform.model_copy(update={"python": python})
    other = dataclasses.replace(target, platform=platform)
    for tag in ("cp310-cp311-linux_aarch64", "cp311-cp311-linux_aarch64"):
        (finding,) = of(check("good.so", tag=tag, target=other), "tags")
        assert finding.outcome == "fail", tag


@pytest.mark.parametrize(
    ("requirement", "outcome"),
    [
        ("torch==2.7.1", "pass"),
        ("torch>=2.5,<2.8", "pass"),
        ("numpy>=9", "pass"),
        ("torch==2.5.0; platform_machine == 'x86_64'", "pass"),
        ("torch==9; extra == 'test'", "pass"),
        ("torch==2.5.0", "fail"),
        ("torch>=2.8; platform_machine == 'aarch64'", "fail"),
        ("torch >>> 2", "fail"),
    ],
)
def test_requires_torch(check, of, requirement, outcome):
    report = check("good.so", headers=(f"Requires-Dist: {requirement}",))
    (finding,) = of(report, "requires-torch")
    assert finding.outcome == outcome


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "damaged: the file is empty"),
        (b"\x7fELF\x02\x01\x01" + bytes(40), "damaged: it is cut off"),
        (b"#!/bin/sh\n", "does not begin as an ELF file"),
        (b"\x7fELF\x01\x01\x01" + bytes(9) + struct.pack("<HH", 3, 40) + bytes(32), "32-bit"),
        (b"\x7fELF\x02\x02\x01" + bytes(9) + struct.pack(">HH", 3, 21) + bytes(44), "big-endian"),
    ],
)
def test_damaged_or_foreign_library(check, of, data, reason):
    report = check(data)
    (finding,) = of(report, "elf")
    assert finding.outcome == report.outcome == "fail"
    assert finding.subject == f"pkg/_C{EXT}"
    assert reason in finding.reason


def test_truncated_library_fails_and_is_named(check, of, member):
    data = member("good.so")
    for size in range(0, len(data), 97):
        report = check(data[:size])
        assert report.outcome == "fail", size
        assert any(f.outcome == "fail" and f.subject == f"pkg/_C{EXT}" for f in report.findings)


def test_object_file_named_as_library(check, of, member):
    data = bytearray(member("good.so"))
    data[16] = 1
    (finding,) = of(check(bytes(data)), "elf")
    assert finding.reason == "it is named as a shared library and is of type object"


def test_machine(check, of):
    report = check("x86.so")
    (finding,) = of(report, "machine")
    assert finding.outcome == report.outcome == "fail"
    assert finding.reason == "it is built for x86_64, and the target is aarch64"
    assert not of(report, "symbols")


@pytest.mark.parametrize("file", ["_C.so", "_C.abi3.so", f"_C{EXT}", "libx.so.1", "lib.x.so"])
def test_suffixes_that_fit(check, of, file):
    assert all(f.outcome == "pass" for f in of(check("good.so", file=file), "suffix"))


@pytest.mark.parametrize(
    ("tag", "reason"),
    [
        ("cpython-311-x86_64-linux-gnu", "machine x86_64 instead of aarch64"),
        ("cpython-310-aarch64-linux-gnu", "CPython 310 instead of 311"),
        ("cpython-38-x86_64-linux-gnu", "CPython 38 instead of 311 and machine x86_64"),
        ("cpython-311-aarch64-linux-musl", "system linux-musl instead of linux-gnu"),
        ("cpython-311d-aarch64-linux-gnu", "CPython 311d instead of 311"),
        ("pypy39-pp73-aarch64-linux-gnu", "not one that CPython 3.11 looks for"),
    ],
)
def test_suffixes_that_do_not_fit(check, of, tag, reason):
    (finding,) = of(check("good.so", file=f"pkg/_C.{tag}.so"), "suffix")
    assert finding.outcome == "fail"
    assert reason in finding.reason
    assert finding.fix.startswith(f"name it _C{EXT}")


class TestVersions:
    def test_too_new(self, check, of):
        (finding,) = of(check("newer.so"), "versions")
        assert finding.outcome == "fail"
        assert "GLIBC_2.38 (the target has GLIBC_2.36)" in finding.reason
        assert finding.evidence == ("newer@GLIBC_2.38",)

    def test_floor_is_compared_by_number(self, check, of, target):
        # As text, 2.36 is above 2.4 but 2.4 also above 2.36.
        low = target.platform.model_copy(
            update={"abi": target.platform.abi.model_copy(update={"glibc": "2.4"})}
        )
        report = check("fresh.so", target=dataclasses.replace(target, platform=low))
        assert [f.outcome for f in of(report, "versions")] == ["fail"]
        assert [f.outcome for f in of(check("fresh.so"), "versions")] == ["pass"]

    def test_version_that_the_library_itself_lacks(self, check, of, target):
        high = target.platform.model_copy(
            update={"abi": target.platform.abi.model_copy(update={"glibc": "2.99"})}
        )
        report = check("newer.so", target=dataclasses.replace(target, platform=high))
        (finding,) = of(report, "versions")
        assert "GLIBC_2.38 (the target's libc.so.6 does not define it)" in finding.reason

    @pytest.mark.parametrize("grade", ["derived", "exact"])
    def test_a_stand_in_that_is_older_than_the_platform_tells_nothing(
        self, check, of, target, libraries, grade
    ):
        high = target.platform.model_copy(
            update={"abi": target.platform.abi.model_copy(update={"glibc": "2.99"})}
        )
        libc = dataclasses.replace(libraries.libraries["libc.so.6"], grade=grade)
        known = dataclasses.replace(libraries, libraries={**libraries.libraries, "libc.so.6": libc})
        report = check(
            "newer.so", target=dataclasses.replace(target, platform=high), libraries=known
        )
        (versions,), (symbols,) = of(report, "versions"), of(report, "symbols")
        if grade == "exact":
            assert (versions.outcome, symbols.outcome) == ("fail", "fail")
        else:
            assert (versions.outcome, symbols.outcome) == ("pass", "unknown")
            assert f"without the libc.so.6 of {high.name} itself" in symbols.reason
            assert "invoke probe" in symbols.fix


class TestLibraries:
    def test_nobody_knows_it(self, check, of):
        report = check("stranger.so")
        (finding,) = of(report, "libraries")
        assert (finding.outcome, finding.accepted) == ("unknown", None)
        assert report.outcome == "unknown"

    def test_stub_is_no_proof_and_the_platform_accepts_that(self, check, of):
        report = check("cuda.so")
        (finding,) = of(report, "libraries")
        assert finding.outcome == "unknown"
        assert "CPU build" in finding.accepted
        assert "only empty import stubs" in finding.reason
        assert report.outcome == "pass"

    def test_stub_where_the_platform_does_not_accept(self, check, target):
        strict = target.platform.model_copy(update={"accept_unknown": ()})
        report = check("cuda.so", target=dataclasses.replace(target, platform=strict))
        assert report.outcome == "unknown"

    def test_brought_by_the_wheel(self, check, corpus, member):
        own = (corpus / "elsewhere/libown.so").read_bytes()
        spec = WheelSpec({f"pkg/_C{EXT}": member("own.so"), "pkg.libs/libown.so": own})
        assert check(spec).outcome == "pass"

    def test_renamed_by_a_repair_tool(self, check, corpus, member):
        # The file is found by its name; its soname may still be the old one.
        own = (corpus / "elsewhere/libown.so").read_bytes()
        ours = member("own.so").replace(b"libown.so\0", b"libnew.so\0")
        spec = WheelSpec({f"pkg/_C{EXT}": ours, "pkg.libs/libnew.so": own})
        assert check(spec).outcome == "pass"

    @pytest.mark.parametrize("case", [("astray.so", "pkg.libs"), ("own.so", "elsewhere")])
    def test_brought_but_out_of_reach(self, check, of, corpus, member, case):
        file, folder = case
        own = (corpus / "elsewhere/libown.so").read_bytes()
        report = check(WheelSpec({f"pkg/_C{EXT}": member(file), f"{folder}/libown.so": own}))
        finding = next(f for f in of(report, "libraries") if f.outcome != "pass")
        assert finding.reason.startswith("no RPATH of it leads to libown.so")
        assert report.outcome == "unknown"


class TestSymbols:
    def test_missing(self, check, of):
        (finding,) = of(check("missing.so"), "symbols")
        assert finding.outcome == "fail"
        assert finding.evidence == ("c10::gone() [_ZN3c104goneEv]",)

    def test_other_signature_is_shown(self, check, of):
        (finding,) = of(check("drift.so"), "symbols")
        assert finding.outcome == "fail"
        assert (
            "libc10.so has another one of that name: c10::device(signed char)"
            in (finding.evidence[0])
        )

    def test_defined_in_a_library_that_is_not_needed(self, check, of):
        (finding,) = of(check("unlinked.so"), "symbols")
        assert finding.outcome == "fail"
        assert "libtorch_cpu.so has it, but the file does not need that" in finding.evidence[0]

    def test_other_abi(self, check, of):
        (finding,) = of(check("abi.so"), "symbols")
        assert finding.outcome == "fail"
        assert "other C++ ABI" in finding.reason
        assert "_GLIBCXX_USE_CXX11_ABI=1" in finding.fix
        assert "libc10.so has" in finding.evidence[0]

    def test_other_abi_of_what_is_returned(self, check, of):
        (finding,) = of(check("returned.so"), "symbols")
        assert "other C++ ABI" in finding.reason

    def test_symbol_that_no_relocation_names_is_not_looked_for(self, check, of):
        (finding,) = of(check("unused.so"), "symbols")
        assert finding.outcome == "pass"

    def test_other_abi_the_other_way_round(self, check, of, target, libraries):
        old = f"_ZN3c105printE{make_corpus.OLD_STRING}"
        library = libraries.libraries["libc10.so"]
        elf = dataclasses.replace(library.elf, exports={old: ("",), "_ZN3c106answerEv": ("",)})
        swapped = {**libraries.libraries, "libc10.so": dataclasses.replace(library, elf=elf)}
        torch = target.platform.torch.model_copy(update={"cxx11_abi": False})
        platform = target.platform.model_copy(update={"torch": torch})
        report = check(
            "newabi.so",
            target=dataclasses.replace(target, platform=platform),
            libraries=dataclasses.replace(libraries, libraries=swapped),
        )
        (finding,) = of(report, "symbols")
        assert "other C++ ABI" in finding.reason
        assert "_GLIBCXX_USE_CXX11_ABI=0" in finding.fix

    def test_absent_cuda_library_explains_cuda_names_only(self, check, of):
        (accepted,) = of(check("cuda.so"), "symbols")
        assert accepted.outcome == "unknown"
        assert accepted.accepted
        (failed,) = of(check("cudagone.so"), "symbols")
        assert failed.outcome == "fail"

    def test_other_abi_is_seen_without_any_table(self, check, of):
        (finding,) = of(check("cudaabi.so"), "symbols")
        assert finding.outcome == "fail"
        assert "other C++ ABI" in finding.reason

    def test_unknown_library_makes_its_symbols_unknown(self, check, of):
        (finding,) = of(check("stranger.so"), "symbols")
        assert (finding.outcome, finding.accepted) == ("unknown", None)

    def test_python_symbols_are_unknown_without_the_interpreters_table(self, check, of, libraries):
        alone = dataclasses.replace(libraries, interpreter=None)
        report = check("good.so", libraries=alone)
        (finding,) = of(report, "symbols")
        assert (finding.outcome, finding.accepted) == ("unknown", None)
        assert finding.evidence == (
            "PyModule_Create2; libpython3.11.so.1.0 has it, but the file does not need that",
        )
        assert report.outcome == "unknown"

    def test_the_interpreters_table_is_no_excuse_for_other_names(self, check, of, libraries):
        alone = dataclasses.replace(libraries, interpreter=None)
        findings = of(check("missing.so", libraries=alone), "symbols")
        assert [finding.outcome for finding in findings] == ["fail", "unknown"]
        assert findings[0].evidence == ("c10::gone() [_ZN3c104goneEv]",)

    def test_python_names_that_the_interpreter_lacks_are_missing(self, check, of, libraries):
        python = libraries.libraries["libpython3.11.so.1.0"]
        elf = dataclasses.replace(python.elf, exports={})
        tables = {**libraries.libraries, python.name: dataclasses.replace(python, elf=elf)}
        bare = dataclasses.replace(libraries, libraries=tables)
        (finding,) = of(check("good.so", libraries=bare), "symbols")
        assert finding.outcome == "fail"
        assert finding.evidence == ("PyModule_Create2",)


class TestDerivedSymbols:
    """The target's torch is known from a build of it for the other C++ ABI."""

    @pytest.fixture
    def derived(self, libraries):
        """Return the tables with libc10 as the old ABI names it, and with more or other names."""

        def change(*names: str, **changes) -> TargetLibraries:
            c10 = libraries.libraries["libc10.so"]
            old = (f"_ZN3c105printE{make_corpus.OLD_STRING}", "_ZN3c106answerEv", *names)
            elf = dataclasses.replace(c10.elf, exports=dict.fromkeys(old, ("",)))
            other = dataclasses.replace(
                c10, elf=elf, grade="derived", **({"other_abi": "pre-cxx11"} | changes)
            )
            tables = {**libraries.libraries, "libc10.so": other}
            return dataclasses.replace(libraries, libraries=tables)

        return change

    def test_found_under_the_other_abis_name(self, check, of, derived):
        (finding,) = of(check("newabi.so", libraries=derived()), "symbols")
        assert (finding.outcome, finding.grade) == ("pass", "derived")

    def test_compiled_with_the_other_abi(self, check, of, derived):
        report = check("abi.so", libraries=derived())
        (finding,) = of(report, "symbols")
        assert (finding.outcome, report.outcome) == ("fail", "fail")
        assert "other C++ ABI" in finding.reason
        assert "_GLIBCXX_USE_CXX11_ABI=1" in finding.fix

    def test_missing_is_missing(self, check, of, derived):
        (finding,) = of(check("missing.so", libraries=derived()), "symbols")
        assert finding.outcome == "fail"
        assert "other C++ ABI" not in finding.reason

    def test_another_signature_is_not_called_another_abi(self, check, of, derived):
        other = f"_ZN3c105printE{make_corpus.OLD_STRING}i"
        tables = derived(other)
        c10 = tables.libraries["libc10.so"]
        elf = dataclasses.replace(c10.elf, exports={other: ("",)})
        changed = {**tables.libraries, "libc10.so": dataclasses.replace(c10, elf=elf)}
        tables = dataclasses.replace(tables, libraries=changed)
        (finding,) = of(check("newabi.so", libraries=tables), "symbols")
        assert finding.outcome == "fail"
        assert "other C++ ABI" not in finding.reason
        assert "another one of that name" in finding.evidence[0]

    def test_a_partial_table_makes_what_it_lacks_unknown(self, check, of, derived):
        report = check("missing.so", libraries=derived(partial=True))
        (finding,) = of(report, "symbols")
        assert (finding.outcome, finding.accepted) == ("unknown", None)
        assert report.outcome == "unknown"

    def test_a_partial_table_still_answers_what_it_has(self, check, of, derived):
        (finding,) = of(check("plain.so", libraries=derived(partial=True)), "symbols")
        assert (finding.outcome, finding.grade) == ("pass", "derived")

    def test_a_partial_table_explains_names_of_torch_only(self, check, of, derived):
        (finding,) = of(check("stranger.so", libraries=derived(partial=True)), "symbols")
        assert finding.evidence == ("stranger",)
        tables = derived(partial=True)
        libc = tables.libraries["libc.so.6"]
        bare = dataclasses.replace(libc, elf=dataclasses.replace(libc.elf, exports={}))
        tables = dataclasses.replace(tables, libraries={**tables.libraries, "libc.so.6": bare})
        findings = of(check("plain.so", libraries=tables), "symbols")
        assert [finding.outcome for finding in findings] == ["fail"]
        assert findings[0].evidence[0].startswith("puts")


def pin_for(target: str) -> dict[str, bytes]:
    pin = Pin(
        tool=PinnedTool(version="0"),
        target=target,
        platform="debian-12",
        platform_kind="emulation",
        machine="aarch64",
        torch=PinnedTorch(version="2.7.1", cuda=None, cxx11_abi=True),
        cuda=PinnedCuda(version="11.8", code=()),
        python=PinnedPython(interpreter="cp311", abi="cp311"),
        glibc_floor="2.17",
    )
    return {"jetship.json": pin.to_json()}


class TestDeviceCode:
    def test_exact_arch(self, check, of):
        (finding,) = of(check("good.so"), "device-code")
        assert (finding.outcome, finding.evidence) == ("pass", ("sm_62",))

    def test_other_arch(self, check, of):
        (finding,) = of(check("sm72.so"), "device-code")
        assert finding.outcome == "fail"
        assert finding.reason.startswith("it has no machine code for 6.2: no kernel would start")
        assert finding.evidence == ("sm_72",)

    def test_ptx_runs_once_the_device_has_compiled_it(self, check, of):
        (finding,) = of(check("sm72ptx.so"), "device-code")
        assert (finding.outcome, finding.blocks) == ("unknown", False)
        assert "PTX" in finding.accepted
        assert "the driver compiles it at the first start (1 KB" in finding.reason

    def test_a_wheel_of_ours_has_the_machine_code_that_was_asked_for(self, check, of):
        (finding,) = of(check("sm72ptx.so", extra=pin_for("sm62-debian-12")), "device-code")
        assert finding.outcome == "fail"
        assert "no machine code for 6.2 (its PTX for 5.0 would be" in finding.reason

    def test_a_project_with_archs_of_its_own_is_told_how_to_add_the_targets(
        self, check, of, catalog
    ):
        (finding,) = of(check("sm72.so"), "device-code")
        assert finding.fix.startswith("set TORCH_CUDA_ARCH_LIST='6.2'")
        (finding,) = of(check("sm72.so", extra=pin_for("sm62-debian-12")), "device-code")
        assert "the project sets its own archs" in finding.fix
        assert 'NVCC_APPEND_FLAGS: "-gencode=arch=compute_62,code=sm_62"' in finding.fix
        (wants_ptx,) = resolve(catalog, arch="6.2+PTX", platform="debian-12")
        report = check("good.so", target=wants_ptx, extra=pin_for(wants_ptx.id))
        (finding,) = of(report, "device-code")
        assert '"-gencode=arch=compute_62,code=compute_62"' in finding.fix

    def test_ptx_is_asked_for(self, check, of, catalog):
        (wants_ptx,) = resolve(catalog, arch="6.2+PTX", platform="debian-12")
        ours = pin_for(wants_ptx.id)
        (finding,) = of(check("good.so", target=wants_ptx, extra=ours), "device-code")
        assert "no PTX for 6.2" in finding.reason
        # The first of its two .cu files has it, the second has not.
        (finding,) = of(check("sm62ptx.so", target=wants_ptx, extra=ours), "device-code")
        assert "no PTX for 6.2" in finding.reason
        (finding,) = of(check("good.so", target=wants_ptx), "device-code")
        assert finding.outcome == "pass"

    def test_every_library_is_looked_at(self, check, of, member):
        spec = WheelSpec({f"pkg/a{EXT}": member("good.so"), f"pkg/b{EXT}": member("sm72.so")})
        outcomes = {f.subject: f.outcome for f in of(check(spec), "device-code")}
        assert outcomes == {f"pkg/a{EXT}": "pass", f"pkg/b{EXT}": "fail"}

    def test_fat_target_wants_all(self, check, of, catalog):
        (fat,) = resolve(catalog, arch="6.2,7.2", platform="debian-12", fat=True)
        (finding,) = of(check("good.so", target=fat), "device-code")
        assert "no machine code for 7.2" in finding.reason

    def test_linked_with_cuda_but_no_kernels(self, check, of):
        (finding,) = of(check("cudart.so"), "device-code")
        assert finding.outcome == "pass"
        assert "no device code of its own" in finding.reason
        assert any("libcudart.so" in line for line in finding.evidence)

    def test_cut_off(self, check, of):
        (finding,) = of(check("badcode.so"), "device-code")
        assert finding.outcome == "fail"

    def test_stripped_section_table_is_no_pass(self, check, of, member):
        data = bytearray(member("good.so"))
        data[40:48] = bytes(8)
        report = check(bytes(data))
        (finding,) = of(report, "device-code")
        assert finding.outcome == report.outcome == "unknown"


def test_the_runtime_of_another_cuda_is_told_once(check, of, catalog, libraries):
    (orin,) = resolve(catalog, arch="8.7", platform="jetpack-6.2")
    without = {name: one for name, one in libraries.libraries.items() if "cudart" not in name}
    report = check(
        "cudart.so", target=orin, libraries=dataclasses.replace(libraries, libraries=without)
    )
    (finding,) = [row for row in of(report, "libraries") if "cudart" in " ".join(row.evidence)]
    assert finding.outcome == "fail"
    assert "libcudart.so.11.0" in finding.reason
    assert "libcudart.so.12" in finding.reason
    assert {row.outcome for row in of(report, "symbols")} == {"pass"}
