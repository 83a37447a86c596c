"""The encodings of aarch64's extensions, compared with what GNU as writes and compilers make."""

import pytest
from jetship import proc
from jetship.elf import mapped, parse_elf
from jetship.instructions import ENOUGH, FEATURES, Instructions, instructions_of
from jetship.targets.cores import known_cores

# Instructions of each extension, several together as code has them.
ASSEMBLY = {
    "sve": ("ptrue p0.s", "ld1w {z0.s}, p0/z, [x0]", "fadd z0.s, z0.s, z1.s", "incw x2"),
    "sme": ("smstart", "smstart sm", "smstart za"),
    "lse": ("cas w0, w1, [x2]", "casal x0, x1, [x2]", "caspal x0, x1, x2, x3, [x4]",
            "ldadd w0, w1, [x2]", "ldclral x0, x1, [x2]", "ldsetb w0, w1, [x2]",
            "ldeorlh w0, w1, [x2]", "ldumaxa x0, x1, [x2]", "swpal x0, x1, [sp]"),
    "rcpc": ("ldapr w0, [x1]", "ldapr x0, [x1]", "ldaprb w0, [x1]"),
    "rcpc2": ("ldapur w0, [x1, #4]", "stlur x0, [x1, #-8]", "stlurb w0, [x1]"),
    "rdm": ("sqrdmlah v0.4s, v1.4s, v2.4s", "sqrdmlsh v0.8h, v1.8h, v2.8h", "sqrdmlah s0, s1, s2"),
    "dotprod": ("sdot v0.4s, v1.16b, v2.16b", "udot v0.2s, v1.8b, v2.8b",
                "sdot v0.4s, v1.16b, v2.4b[1]", "udot v0.4s, v1.16b, v31.4b[3]"),
    "fcma": ("fcmla v0.4s, v1.4s, v2.4s, #90", "fcadd v0.4s, v1.4s, v2.4s, #270"),
    "fp16": ("fadd v0.8h, v1.8h, v2.8h", "fmla v0.4h, v1.4h, v2.4h", "fmul h0, h1, h2",
             "fmadd h0, h1, h2, h3"),
    "bf16": ("bfdot v0.4s, v1.8h, v2.8h", "bfmmla v0.4s, v1.8h, v2.8h", "bfcvt h0, s1",
             "bfmlalb v0.4s, v1.8h, v2.8h", "bfmlalt v0.4s, v1.8h, v2.8h", "bfcvtn v0.4h, v1.4s"),
    "i8mm": ("smmla v0.4s, v1.16b, v2.16b", "ummla v0.4s, v1.16b, v2.16b",
             "usmmla v0.4s, v1.16b, v2.16b", "usdot v0.4s, v1.16b, v2.16b"),
    "sha3": ("eor3 v0.16b, v1.16b, v2.16b, v3.16b", "bcax v0.16b, v1.16b, v2.16b, v3.16b"),
    "paca": ("retaa", "retab"),
}  # fmt: skip
# What compilers have always used, and what lies next to the encodings above.
PLAIN = (
    "ldr w0, [x1, x2]", "ldur x0, [x1, #-8]", "ldxr w0, [x1]", "stlxr w3, w0, [x1]",
    "ldaxp x0, x1, [x2]", "stxp w3, x0, x1, [x2]", "ldar x0, [x1]", "stlr w0, [x1]",
    "add v0.4s, v1.4s, v2.4s", "fmla v0.4s, v1.4s, v2.4s", "fmla v0.4s, v1.4s, v2.s[1]",
    "sqrdmulh v0.4s, v1.4s, v2.4s", "ins v0.s[1], w1", "umov w0, v1.h[2]", "dup v0.4s, w1",
    "mul v0.4s, v1.4s, v2.s[3]", "fcvt h0, s1", "fcvt d0, h1", "fmadd s0, s1, s2, s3",
    "fadd s0, s1, s2", "fadd d0, d1, d2", "fccmp s0, s1, #0, eq", "sha256h q0, q1, v2.4s",
    "aese v0.16b, v1.16b", "pmull v0.1q, v1.1d, v2.1d", "crc32x w0, w1, x2", "ldp q0, q1, [x0]",
    "prfm pldl1keep, [x0]", "mrs x0, tpidr_el0", "mrs x0, fpcr", "hint #25", "ret", "nop",
    "tbl v0.16b, {v1.16b}, v2.16b", "zip1 v0.4s, v1.4s, v2.4s", "ext v0.16b, v1.16b, v2.16b, #4",
)  # fmt: skip


@pytest.fixture(scope="module")
def assemble(toolchain, tmp_path_factory):
    """Return the facts of a library that is written in assembly."""
    folder = tmp_path_factory.mktemp("assembly")

    def run(text: str) -> Instructions:
        source, out = folder / "code.s", folder / "code.so"
        march = ".arch armv8.6-a+sve2+sha3+memtag+aes"
        source.write_text(f"{march}\n.text\n.global code\ncode:\n{text}\n")
        gcc = toolchain.bin / f"{toolchain.multiarch}-gcc"
        done = proc.run([gcc, "-shared", "-nostdlib", source, "-o", out])
        assert done.ok, done.stderr
        with mapped(out) as data:
            return instructions_of(data, parse_elf(data))

    return run


def surrounded(instruction: str) -> str:
    return "\n".join([*["add x9, x9, #1"] * 4, instruction, *["sub x9, x9, #1"] * 4, "ret"])


def test_every_feature_is_tried():
    assert ASSEMBLY.keys() == set(FEATURES)


@pytest.mark.parametrize("feature", sorted(set(FEATURES) - {"sve", "sme"}))
def test_each_instruction_is_of_its_extension(assemble, feature):
    for instruction in ASSEMBLY[feature]:
        assert assemble(surrounded(instruction)).counts == {feature: 1}, instruction


def test_vectors_of_any_length(assemble):
    assert assemble(surrounded("\n".join(ASSEMBLY["sve"]))).counts == {"sve": 4}


def test_the_start_of_streaming_mode(assemble):
    for word in ("0xd503477f", "0xd503437f", "0xd503457f"):  # this assembler has no SME
        assert assemble(surrounded(f".inst {word}")).counts == {"sme": 1}


@pytest.mark.parametrize("instruction", PLAIN)
def test_what_every_core_has_is_of_no_extension(assemble, instruction):
    assert assemble(surrounded(instruction)).counts == {}


def test_no_more_are_counted_than_needed(assemble):
    assert assemble(surrounded("\n".join(["ldadd w0, w1, [x2]"] * 100))).counts == {"lse": ENOUGH}


def test_code_over_many_blocks(assemble):
    text = ".rept 5000\nadd x9, x9, #1\n.endr\n" * 3
    assert assemble(text + surrounded("ldadd w0, w1, [x2]")).counts == {"lse": 1}


class TestData:
    """Words between instructions that only look like some."""

    def test_a_constant_that_code_loads(self, assemble):
        text = surrounded("ldr w0, 1f") + "\n1: .word 0xb8e20062\n" + surrounded("nop")
        assert assemble(text).counts == {}

    def test_a_table(self, assemble):
        table = "\n".join(f".word {n * 0x9E3779B1 & 0xFFFFFFFF:#x}" for n in range(1, 3000))
        assert sum(assemble(surrounded("nop") + "\n" + table).counts.values()) <= 1

    def test_one_word_like_sve(self, assemble):
        assert assemble(surrounded(".word 0x44fa0000")).counts == {}

    def test_padding(self, assemble):
        assert assemble("ret\n.word 0, 0, 0x38200000, 0, 0\n" + surrounded("nop")).counts == {}


class TestAsking:
    def test_helpers_of_the_compiler_ask_for_themselves(self, toolchain, tmp_path):
        source, out = tmp_path / "a.c", tmp_path / "a.so"
        source.write_text("int n; int up(int by) { return __atomic_fetch_add(&n, by, 5); }\n")
        gcc = toolchain.bin / f"{toolchain.multiarch}-gcc"
        done = proc.run([gcc, "-O2", "-fPIC", "-shared", "-moutline-atomics", source, "-o", out])
        assert done.ok, done.stderr
        with mapped(out) as data:
            found = instructions_of(data, parse_elf(data))
        assert (found.counts, found.dispatch) == ({}, ())

    def test_reading_the_id_registers(self, assemble):
        found = assemble(surrounded("mrs x0, id_aa64isar0_el1"))
        assert (found.counts, found.dispatch) == ({}, ("it reads the cores' ID registers",))

    def test_calling_getauxval(self, assemble):
        assert assemble(surrounded("bl getauxval")).dispatch == ("it calls getauxval",)
        assert assemble(surrounded("bl __getauxval")).dispatch == ()

    def test_indirect_functions(self, assemble):
        text = ".type code, %gnu_indirect_function\n" + surrounded("nop")
        assert assemble(text).dispatch == ("it has indirect functions (IFUNC)",)

    @pytest.mark.parametrize("name", ["getauxval", "/proc/cpuinfo"])
    def test_names_that_are_looked_for(self, assemble, name):
        text = f'{surrounded("nop")}\n.section .rodata\n.asciz "{name}"'
        assert len(assemble(text).dispatch) == 1


def test_torch_has_nothing_that_it_does_not_ask_for(toolchain):
    """Real code of 112 MB, most of it for every core."""
    for name in ("libc10.so", "libtorch_cpu.so"):
        with mapped(toolchain.torch / "lib" / name) as data:
            found = instructions_of(data, parse_elf(data))
        assert found.dispatch or not found.counts, name


def test_cores_name_features_that_are_looked_for():
    assert {name for one in known_cores() for name in one.has} <= set(FEATURES)
