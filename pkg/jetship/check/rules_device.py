"""The rule about device code: something that each GPU of the target runs, for every kernel."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from jetship.check.facts import Facts
from jetship.check.findings import Finding, Outcome
from jetship.check.wheel import Member
from jetship.elf import version_key
from jetship.fatbin import DeviceImage, containers
from jetship.targets.arch import Arch, DeviceCode
from jetship.targets.gpucode import first_cuda_with, newest_ptx, runs_machine_code, takes_ptx

_RULE = "device-code"
_CUDA_RUNTIME = ("libcudart.so", "libc10_cuda.so")
_NAMES_SHOWN = 4

# What a container (the code of one .cu file) has for a GPU. "newer": machine code, or PTX, that
# nobody says this driver takes. "special": only code for certain other GPUs, which its library may
# well never start on this one.
_Way: TypeAlias = Literal["sass", "ptx", "newer", "special", "none"]


@dataclass(frozen=True)
class _Part:
    """The images of one container, and how they run on the GPU in question."""

    images: tuple[DeviceImage, ...]
    way: _Way

    @property
    def kernels(self) -> tuple[str, ...] | None:
        """The kernels in it; None where no image's names could be read."""
        read = [image.kernels for image in self.images if image.kernels is not None]
        return max(read, key=len, default=None)

    def __str__(self) -> str:
        return f"only {_listed(_evidence(self.images))}: {_named(self.kernels)}"


@dataclass(frozen=True)
class _Ways:
    """The containers of one library that have kernels, for one GPU."""

    all: tuple[_Part, ...]
    gpu: Arch
    facts: Facts

    def of(self, way: _Way) -> tuple[_Part, ...]:
        return tuple(part for part in self.all if part.way == way)

    def count(self, some: tuple[_Part, ...]) -> str:
        """Return the subject of a sentence about some of them, with its verb."""
        if len(self.all) == 1:
            return "it has"
        if len(some) == len(self.all):
            return "its .cu files have"
        return f"{len(some)} of its {len(self.all)} .cu files {'has' if len(some) == 1 else 'have'}"


@dataclass(frozen=True)
class _Answer:
    """What is to be said about one library and one GPU."""

    outcome: Outcome
    reason: str = ""
    evidence: tuple[str, ...] = ()
    fix: str = ""
    accepted: str | None = None

    @property
    def good(self) -> float:
        """How good an answer it is: 0 fail, 1 unknown, 1.5 an unknown that is accepted, 2 pass."""
        return ("fail", "unknown", "pass").index(self.outcome) + (self.accepted is not None) / 2


def device_code(facts: Facts) -> Iterator[Finding]:
    """Each kernel of each library has code that every GPU of the target runs."""
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
    have = _evidence(member.images)
    if not final:
        reason = "its device code was never device-linked, so no kernel of it can be launched"
        fix = "add the device link step (nvcc -dlink), or compile without -rdc=true"
        return Finding(_RULE, "fail", member.name, reason, have, fix)
    answers = [_answer(final, code, facts) for code in facts.target.code]
    worst = min(answers, key=lambda one: one.good, default=_Answer("pass"))
    if worst.outcome == "pass":
        return Finding(_RULE, "pass", member.name, _has(final, facts), have, grade="exact")
    said = [one for one in answers if one.good == worst.good]
    reason = "; ".join(dict.fromkeys(one.reason for one in said))
    evidence = tuple(dict.fromkeys(line for one in said for line in one.evidence)) or have
    return Finding(
        _RULE, worst.outcome, member.name, reason, evidence, worst.fix, accepted=worst.accepted
    )


def _has(images: list[DeviceImage], facts: Facts) -> str:
    wanted = {code.arch for code in facts.target.code}
    extra = sorted({image.arch for image in images} - wanted)
    if all(image.kernels == () for image in images):
        return "its .cu files have no kernel, so nothing in it depends on the GPU"
    if not wanted:
        return f"it has device code for {_listed(extra)}, which this target has no use for"
    reason = f"it has device code for {facts.target.arch_list}"
    return reason + (f", and also for {_listed(extra)}" if extra else "")


def _answer(images: list[DeviceImage], code: DeviceCode, facts: Facts) -> _Answer:
    parts = [_Part(group, _way(group, code.arch, facts)) for group in containers(images)]
    # What has no kernel has nothing that could be started.
    ways = _Ways(tuple(part for part in parts if part.kernels != ()), code.arch, facts)
    if ways.all and all(part.way in ("special", "none") for part in ways.all):
        return _nothing(images, code.arch, facts)
    if ways.of("none"):
        return _some_without(ways)
    if facts.wheel.pin is not None and (lacks := _lacks_what_was_asked_for(images, code)):
        return _Answer("fail", lacks, _evidence(images), _how_to_add(images, facts))
    if ways.of("newer"):
        return _too_new(ways)
    if ways.of("special"):
        return _for_others(ways)
    return _compiled_there(ways) if ways.of("ptx") else _Answer("pass")


def _way(images: Sequence[DeviceImage], gpu: Arch, facts: Facts) -> _Way:
    runs = [
        image
        for image in images
        if image.kind == "sass" and runs_machine_code(gpu, image.arch, image.variant)
    ]
    if any(not _of_newer_cuda(image, facts) for image in runs):
        return "sass"
    compiled = [image for image in _ptx_for(images, gpu) if _driver_knows(image, facts)]
    if any(compiled):
        return "ptx"
    if runs or any(_driver_knows(image, facts) is None for image in _ptx_for(images, gpu)):
        return "newer"
    if all(image.variant or image.arch > gpu for image in images):
        return "special"
    return "none"


def _ptx_for(images: Sequence[DeviceImage], gpu: Arch) -> list[DeviceImage]:
    return [
        image
        for image in images
        if image.kind == "ptx" and takes_ptx(gpu, image.arch, image.variant)
    ]


def _driver_knows(image: DeviceImage, facts: Facts) -> bool | None:
    """Return whether the platform's driver compiles the PTX's language, or None: cannot tell."""
    newest = newest_ptx(facts.platform.cuda.version)
    if newest is None or image.ptx_isa is None:
        return None
    return version_key(image.ptx_isa) <= version_key(newest)


def _of_newer_cuda(image: DeviceImage, facts: Facts) -> bool:
    """Return whether machine code is of a later major release than the platform's driver."""
    if image.cuda is None:
        return False
    return version_key(image.cuda)[0] > version_key(facts.platform.cuda.version)[0]


def _nothing(images: list[DeviceImage], gpu: Arch, facts: Facts) -> _Answer:
    reason = (
        f"it has no machine code for {gpu}{_why_not_ptx(images, gpu, facts)}: "
        "no kernel would start on that GPU"
    )
    return _Answer("fail", reason, _evidence(images), _how_to_add(images, facts))


def _some_without(ways: _Ways) -> _Answer:
    lacking = ways.of("none")
    why = _why_not_ptx([image for part in lacking for image in part.images], ways.gpu, ways.facts)
    reason = (
        f"{ways.count(lacking)} no code for {ways.gpu}{why}: "
        "their kernels would not start on that GPU, while others do"
    )
    fix = (
        f"compile every .cu file for {ways.gpu}: look for -gencode or -arch that the build sets "
        "for single files"
    )
    return _Answer("fail", reason, tuple(map(str, lacking)), fix)


def _too_new(ways: _Ways) -> _Answer:
    facts, newer = ways.facts, ways.of("newer")
    driver = f"the driver of {facts.platform.name} is of CUDA {facts.platform.cuda.version}"
    images = [image for part in newer for image in part.images]
    late = [image.cuda for image in images if image.cuda and _of_newer_cuda(image, facts)]
    if late:
        reason = f"its machine code was made by CUDA {max(late, key=version_key)}, and {driver}: "
        reason += "nobody promises that a driver takes code of a later major release"
        fix = f"build it with CUDA {facts.platform.cuda.version}, or an older one"
    else:
        reason = f"{driver}, and whether that compiles its PTX cannot be told"
        fix = f"build it with machine code for {ways.gpu}"
    return _Answer("unknown", reason, tuple(map(str, newer)), fix)


def _for_others(ways: _Ways) -> _Answer:
    special = ways.of("special")
    reason = (
        f"{ways.count(special)} only code that is made for other GPUs than {ways.gpu}; "
        "whether the library starts these kernels there cannot be told from its files"
    )
    fix = (
        f"compile these files for {ways.gpu} as well; or ask its authors whether they are left "
        "alone on other GPUs"
    )
    return _Answer("unknown", reason, tuple(map(str, special)), fix)


def _compiled_there(ways: _Ways) -> _Answer:
    slow = ways.of("ptx")
    size = sum(_best_ptx(part.images, ways.gpu).unpacked_size for part in slow)
    reason = (
        f"{ways.count(slow)} no machine code for {ways.gpu}, but PTX: the driver compiles it at "
        f"the first start ({_size(size)}; a MB takes a fast x86 core about a second, a Jetson's "
        "several) and keeps the result in ~/.nv/ComputeCache, which a new container does not have"
    )
    fix = f"build it with machine code for {ways.gpu}, and the first start takes no longer"
    accepted = f"CUDA {ways.facts.platform.cuda.version} of the target knows this release of PTX"
    return _Answer("unknown", reason, fix=fix, accepted=accepted)


def _best_ptx(images: Sequence[DeviceImage], gpu: Arch) -> DeviceImage:
    return max(_ptx_for(images, gpu), key=lambda image: image.arch)


def _why_not_ptx(images: Sequence[DeviceImage], gpu: Arch, facts: Facts) -> str:
    """Say why PTX that is there does not help; empty where there is none at all."""
    if _ptx_for(images, gpu):
        best = _best_ptx(images, gpu)
        newest = newest_ptx(facts.platform.cuda.version)
        of = f" of CUDA {first}" if (first := first_cuda_with(best.ptx_isa or "")) else ""
        return (
            f" (its PTX is written in ISA {best.ptx_isa}{of}, and the driver of CUDA "
            f"{facts.platform.cuda.version} compiles up to {newest})"
        )
    others = [image for image in images if image.kind == "ptx"]
    if not others:
        return ""
    return f" (its PTX {_listed(_evidence(others))} is for other GPUs)"


def _lacks_what_was_asked_for(images: list[DeviceImage], code: DeviceCode) -> str:
    """Say what a wheel of ours lacks of what its target asks for, though it might run."""
    lacks = []
    groups = containers(images)
    if any(not _has_machine_code(group, code.arch) for group in groups):
        lacks.append(f"no machine code for {code.arch}{_substitute(images, code.arch)}")
    # PTX of a variant ("a", "f") is bound to its GPUs and gives no later one a way to run.
    if code.ptx and any(not _has_ptx(group, code.arch) for group in groups):
        lacks.append(f"no PTX for {code.arch}")
    return f"it has {' and '.join(lacks)}" if lacks else ""


def _has_machine_code(images: Sequence[DeviceImage], arch: Arch) -> bool:
    empty = all(image.kernels == () for image in images if image.kernels is not None)
    read = any(image.kernels is not None for image in images)
    return (read and empty) or any(image.kind == "sass" and image.arch == arch for image in images)


def _has_ptx(images: Sequence[DeviceImage], arch: Arch) -> bool:
    return any(image.kind == "ptx" and image.arch == arch and not image.variant for image in images)


def _substitute(images: Sequence[DeviceImage], arch: Arch) -> str:
    if not _ptx_for(images, arch):
        return ""
    best = _best_ptx(images, arch)
    return f" (its PTX for {best.arch} would be compiled on the device at every first start)"


def _how_to_add(images: list[DeviceImage], facts: Facts) -> str:
    """Say how the missing code gets in: by torch's list, or by nvcc where that was not asked."""
    pin = facts.wheel.pin
    if pin is None or pin.target != facts.target.id:
        return f"set TORCH_CUDA_ARCH_LIST={facts.target.arch_list!r}, as `invoke build` does"
    groups = containers(images)
    words = [
        f"-gencode=arch=compute_{code.arch.number},code={kind}_{code.arch.number}"
        for code in facts.target.code
        for kind, has in (("sm", _has_machine_code), ("compute", _has_ptx))
        if (kind == "sm" or code.ptx) and any(not has(group, code.arch) for group in groups)
    ]
    return (
        "the project sets its own archs (-gencode or -arch in its setup.py), so that "
        "TORCH_CUDA_ARCH_LIST has no say; add these in deploy.yaml, if its kernels are made for "
        f'that GPU: build: {{env: {{NVCC_APPEND_FLAGS: "{" ".join(words)}"}}}}'
    )


def _named(kernels: tuple[str, ...] | None) -> str:
    if kernels is None:
        return "its kernels' names were not read"
    more = f" and {len(kernels) - _NAMES_SHOWN} more" if len(kernels) > _NAMES_SHOWN else ""
    return ", ".join(kernels[:_NAMES_SHOWN]) + more


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{max(count // 1000, 1)} KB"


def _listed(things: Iterable[object]) -> str:
    return ", ".join(map(str, things))


def _evidence(images: Sequence[DeviceImage]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(image) for image in images))


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
