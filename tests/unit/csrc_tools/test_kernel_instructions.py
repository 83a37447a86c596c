import pytest
from kernel_instructions import PIPES, functions, hot_way

# A loop that stores twice, around blocks that are left out where rows are, and one at the end.
LOOP = """
	.section	.text._Z4loopPf,"ax",@progbits
.text._Z4loopPf:
        /*0000*/                   MOV R1, c[0x0][0x28] ;
        /*0010*/               @P0 EXIT ;
.L_x_1:
        /*0020*/                   IMAD.WIDE R2, R1, R0, c[0x0][0x160] ;
        /*0030*/              @!P0 LDG.E.128 R4, [R2.64] ;
        /*0040*/                   BSSY B0, `(.L_x_3) ;
        /*0050*/               @P1 BRA `(.L_x_2) ;
        /*0060*/                   MUFU.EX2 R4, R4 ;
        /*0070*/                   FFMA R4, R4, R4, R4 ;
        /*0080*/                   STG.E.128 desc[UR8][R2.64], R4 ;
.L_x_2:
        /*0090*/                   BSYNC B0 ;
.L_x_3:
        /*00a0*/                   FSETP.GT.AND P0, PT, |R3|, 14.5, PT ;
        /*00b0*/                   NOP ;
        /*00c0*/                   STG.E.128 [R2.64], R4 ;
        /*00d0*/              @!P0 BRA `(.L_x_1) ;
        /*00e0*/                   EXIT ;
.L_x_4:
        /*00f0*/                   BRA `(.L_x_4);
"""
# Two ways to the end: one stores 16 bytes, and the other, in a loop, one element after another.
BRANCH = """
.text._Z6branchPf:
        /*0008*/                   S2R R2, SR_CTAID.X ;
        /*0010*/         {         ISETP.GT.X.AND P0, PT, R6, c[0x0][0x15c], PT ;
        /*0018*/               @P0 BRA `(.L_x_5)         }
        /*0028*/                   LDG.E.128 R4, [R6] ;
        /*0030*/         {         FADD R18, R18, R18 ;
        /*0038*/                   MUFU.RCP R18, R18         }
        /*0048*/                   STG.E.128 [R2], R4 ;
        /*0050*/                   EXIT ;
.L_x_5:
        /*0058*/                   LDG.E.U16 R4, [R6] ;
        /*0068*/                   STG.E.U16 [R6], R4 ;
        /*0070*/               @P0 BRA `(.L_x_5) ;
        /*0078*/                   EXIT ;
"""
# Maxwell and Pascal leave a block by SYNC, whose target is told in a comment.
SYNC = """
.text._Z4syncPf:
.L_x_6:
        /*0008*/                   SSY `(.L_x_7) ;
        /*0010*/               @P2 SYNC                    (*"BRANCH_TARGETS .L_x_7"*) ;
        /*0018*/                   LDG.E.128 R4, [R4] ;
        /*0028*/                   SYNC                    (*"BRANCH_TARGETS .L_x_7"*) ;
.L_x_7:
        /*0030*/                   STG.E.128 [R2], R12 ;
        /*0038*/              @!P0 BRA `(.L_x_6) ;
        /*0048*/                   EXIT ;
"""
NOTHING_WIDE = """
.text._Z4slowPf:
        /*0008*/                   STG.E [R2], R12 ;
        /*0010*/                   EXIT ;
"""


def counted(listing: str) -> dict[str, int]:
    (function,) = functions(listing)
    way = hot_way(function)
    pipes = {pipe: n for pipe, n in zip(PIPES, way.pipes, strict=True) if n}
    return {"wide": way.wide, "stores": way.stores, "issued": way.issued, **pipes}


@pytest.mark.parametrize(
    ("listing", "counts"),
    [
        (LOOP, {"wide": 3, "stores": 2, "issued": 11, "xu": 1, "fma": 1, "imad": 1, "compare": 1}),
        (BRANCH, {"wide": 2, "stores": 1, "issued": 8, "xu": 1, "fma": 1, "compare": 1}),
        (SYNC, {"wide": 2, "stores": 1, "issued": 6}),
    ],
    ids=["loop", "branch", "sync"],
)
def test_the_way_with_most_accesses_of_16_bytes_is_counted(listing, counts):
    assert counted(listing) == counts


def test_a_kernel_without_such_stores_has_no_way():
    (function,) = functions(NOTHING_WIDE)
    assert hot_way(function) is None


def test_every_function_of_a_listing_is_found():
    names = [function.name for function in functions(LOOP + BRANCH + SYNC + NOTHING_WIDE)]
    assert names == ["_Z4loopPf", "_Z6branchPf", "_Z4syncPf", "_Z4slowPf"]


@pytest.mark.parametrize(
    ("opcode", "pipe"),
    [
        ("MUFU.RCP", "xu"), ("F2FP.F16.F32.PACK_AB", "alu"), ("F2F.F16.F32", "xu"),
        ("FSEL", "alu"), ("FSETP.GT.AND", "compare"), ("FSET.BF", "compare"), ("LOP3.LUT", "alu"),
        ("IMAD.WIDE.U32", "imad"), ("IADD3.X", "alu"), ("HADD2.F32", "fma"), ("XMAD.MRG", "fma"),
        ("LDG.E.128", None), ("BRA", None), ("ULDC.64", None), ("S2R", None),
    ],
)  # fmt: skip
def test_an_opcode_is_of_one_pipe(opcode, pipe):
    (function,) = functions(f".text._Z1f:\n/*0000*/ {opcode} R1, R2 ;\n")
    assert function.instructions[0].pipe == pipe
