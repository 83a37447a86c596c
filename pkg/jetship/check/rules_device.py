"""The rule about device code: machine code for each GPU of the target, in each library."""

from collections.abc import Iterator

from jetship.check.facts import Facts
from jetship.check.findings import Finding
from jetship.check.wheel import Member
from jetship.fatbin import DeviceImage
from jetship.targets.arch import Arch

_RULE = "device-code"
_CUDA_RUNTIME = ("libcudart.so", "libc10_cuda.so")


def device_code(facts: Facts) -> Iterator[Finding]:
    """Each library with device code has it for every arch of the target."""
    unread = [member for member in facts.wheel.members if member.images_damage]
    with_code = [member for member in facts.wheel.members if member.images]
    for member in unread:
        yield _unread(member)
    for member in with_code:
        yield _one(member, facts)
    if not with_code and not unread:
        yield _none(facts)


def _unread(member: Member) -> Finding:
    stripped = member.elf is not None and not member.elf.sections
    fix = "strip it with `strip --strip-unneeded`, which keeps the section table"
    return Finding(
        _RULE,
        "unknown" if stripped else "fail",
        member.name,
        member.images_damage.splitlines()[0],
        fix=fix if stripped else "build it again",
    )


def _one(member: Member, facts: Facts) -> Finding:
    final = [image for image in member.images if image.linked]
    have = tuple(dict.fromkeys(str(image) for image in member.images))
    if not final:
        reason = "its device code was never device-linked, so no kernel of it can be launched"
        fix = "add the device link step (nvcc -dlink), or compile without -rdc=true"
        return Finding(_RULE, "fail", member.name, reason, have, fix)
    missing = list(_missing(final, facts))
    if missing:
        reason = f"it has no {' and no '.join(missing)}"
        if any(part.startswith("machine code") for part in missing):
            reason += ": no kernel would start on that GPU"
        return Finding(_RULE, "fail", member.name, reason, have, _how_to_add(final, facts))
    wanted = {code.arch for code in facts.target.code}
    extra = sorted({image.arch for image in final} - wanted)
    reason = f"it has device code for {facts.target.arch_list}"
    reason += f", and also for {', '.join(map(str, extra))}" if extra else ""
    return Finding(_RULE, "pass", member.name, reason, have, grade="exact")


def _how_to_add(images: list[DeviceImage], facts: Facts) -> str:
    """Say how the missing code gets in: by torch's list, or by nvcc where that was not asked."""
    pin = facts.wheel.pin
    if pin is None or pin.target != facts.target.id:
        return f"set TORCH_CUDA_ARCH_LIST={facts.target.arch_list!r}, as `invoke build` does"
    sass = {image.arch for image in images if image.kind == "sass"}
    ptx = {image.arch for image in images if image.kind == "ptx" and not image.variant}
    words = [
        f"-gencode=arch=compute_{code.arch.number},code={kind}_{code.arch.number}"
        for code in facts.target.code
        for kind, there in (("sm", code.arch in sass), ("compute", code.arch in ptx))
        if not there and (kind == "sm" or code.ptx)
    ]
    return (
        "the project sets its own archs (-gencode or -arch in its setup.py), so that "
        "TORCH_CUDA_ARCH_LIST has no say; add these in deploy.yaml, if its kernels are made for "
        f'that GPU: build: {{env: {{NVCC_APPEND_FLAGS: "{" ".join(words)}"}}}}'
    )


def _missing(images: list[DeviceImage], facts: Facts) -> Iterator[str]:
    sass = {image.arch for image in images if image.kind == "sass"}
    # PTX of a variant ("a", "f") is bound to its GPUs and gives no later one a way to run.
    ptx = {image.arch for image in images if image.kind == "ptx" and not image.variant}
    for code in facts.target.code:
        if code.arch not in sass:
            yield f"machine code for {code.arch}{_substitute(code.arch, ptx)}"
        if code.ptx and code.arch not in ptx:
            yield f"PTX for {code.arch}"


def _substitute(arch: Arch, ptx: set[Arch]) -> str:
    usable = [other for other in ptx if other <= arch]
    if not usable:
        return ""
    return f" (its PTX for {max(usable)} would be compiled on the device at every first start)"


def _none(facts: Facts) -> Finding:
    users = tuple(
        f"{member.name} needs {name}"
        for member, file in facts.loadable
        for name in file.needed
        if name.startswith(_CUDA_RUNTIME)
    )
    if users:
        reason = "it calls CUDA and has no device code of its own, so no kernel in it depends on "
        reason += "the GPU; if the project has .cu files, its build left them out"
        return Finding(_RULE, "pass", facts.wheel.file, reason, users, grade="exact")
    return Finding(_RULE, "pass", facts.wheel.file, "no device code in this wheel", grade="exact")
