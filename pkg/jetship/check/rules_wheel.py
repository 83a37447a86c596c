"""Rules about the wheel as a package: integrity, metadata, tags, requirements, pin record."""

import re
from collections.abc import Iterator

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags, parse_tag
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from jetship.check.facts import Facts
from jetship.check.findings import Finding
from jetship.elf import version_key
from jetship.pin import PIN_FILE, Pin
from jetship.targets.model import Platform

_OLD_MANYLINUX = {"1": "2_5", "2010": "2_12", "2014": "2_17"}


def record(facts: Facts) -> Iterator[Finding]:
    """Every file is the one that RECORD lists."""
    subject, problems = facts.wheel.file, facts.wheel.record_problems
    if problems:
        yield Finding(
            "record",
            "fail",
            subject,
            "the wheel's content is not what its RECORD says",
            problems,
            "copy or build it again; a wheel that was edited by hand needs a new RECORD",
        )
    else:
        yield Finding("record", "pass", subject, "every file has the digest that RECORD says")


def metadata(facts: Facts) -> Iterator[Finding]:
    """The metadata agrees with the file name and with the target's Python."""
    problems = [*_name_problems(facts), *_wheel_file_problems(facts), *_python_problems(facts)]
    subject = facts.wheel.file
    if problems:
        fix = "build it again, and rename no wheel by hand"
        reason = "the wheel's metadata does not fit its name or the target"
        yield Finding("metadata", "fail", subject, reason, tuple(problems), fix)
    else:
        yield Finding("metadata", "pass", subject, "the metadata fits the file name and the target")


def _name_problems(facts: Facts) -> Iterator[str]:
    name, version = (str(facts.wheel.metadata.get(key, "")) for key in ("Name", "Version"))
    if canonicalize_name(name) != facts.wheel.name:
        yield f"METADATA has the name {name!r}"
    try:
        same = Version(version) == facts.wheel.version
    except InvalidVersion:
        same = False
    if not same:
        yield f"METADATA has the version {version!r}"


def _wheel_file_problems(facts: Facts) -> Iterator[str]:
    layout = str(facts.wheel.wheel_file.get("Wheel-Version", ""))
    if layout.partition(".")[0] != "1":
        yield f"WHEEL has the layout version {layout!r}, and installers know 1.x"
    try:
        lines = facts.wheel.wheel_file.get_all("Tag", [])
        tags = frozenset(tag for line in lines for tag in parse_tag(str(line)))
    except ValueError:
        tags = frozenset()
    # Not all of the platform: wheels of repute were renamed from linux to manylinux.
    if {_kernel(tag) for tag in tags} != {_kernel(tag) for tag in facts.wheel.tags}:
        written = ", ".join(sorted(map(str, tags))) or "no readable tag"
        yield f"WHEEL has {written}; the file name {_listed(facts.wheel.tags)}"


def _kernel(tag: Tag) -> tuple[str, str, str]:
    machine = re.sub(r"^(?:many)?linux(?:\d+|_\d+_\d+)?_", "", tag.platform)
    return tag.interpreter, tag.abi, machine


def _python_problems(facts: Facts) -> Iterator[str]:
    asked, have = facts.wheel.metadata.get("Requires-Python"), facts.platform.python.version
    if asked is None:
        return
    try:
        # A platform names its minor version only; it has some patch release of it.
        fits = SpecifierSet(str(asked)).contains(f"{have}.99") or SpecifierSet(str(asked)).contains(
            have
        )
    except InvalidSpecifier:
        fits = False
    if not fits:
        yield f"Requires-Python is {str(asked)!r}, and the target has Python {have}"


def tags(facts: Facts) -> Iterator[Finding]:
    """An installer on the target would take this wheel."""
    subject, has_code = facts.wheel.file, bool(facts.wheel.members)
    answers = {
        tag: tuple(_tag_problems(tag, facts.platform, has_code=has_code))
        for tag in sorted(facts.wheel.tags, key=str)
    }
    fitting = [str(tag) for tag, problems in answers.items() if not problems]
    if fitting:
        reason = f"the target's Python installs {fitting[0]}"
        yield Finding("tags", "pass", subject, reason, tuple(fitting))
        return
    yield Finding(
        "tags",
        "fail",
        subject,
        "the target's Python would refuse this wheel",
        min(answers.values(), key=len),
        f"build it for {facts.target.id}",
    )


def _tag_problems(tag: Tag, platform: Platform, *, has_code: bool) -> Iterator[str]:
    if not _python_fits(tag, platform):
        have = f"{platform.python.tag} with ABI {platform.python.abi}"
        yield f"Python: it is for {tag.interpreter} with ABI {tag.abi}, the target has {have}"
    if tag.platform == "any":
        if has_code:
            yield "platform: it says `any`, but it has machine code"
        return
    match = re.fullmatch(r"(linux|manylinux(\d+)|manylinux_(\d+)_(\d+))_(.+)", tag.platform)
    if match is None:
        yield f"platform: {tag.platform} is not Linux with glibc"
        return
    if match[5] != platform.machine:
        yield f"machine: it is for {match[5]}, the target is {platform.machine}"
    dotted = _OLD_MANYLINUX.get(match[2] or "", "0_0") if not match[3] else f"{match[3]}_{match[4]}"
    glibc = dotted.replace("_", ".")
    if version_key(glibc) > version_key(platform.abi.glibc):
        yield f"glibc: it wants {glibc}, the target has {platform.abi.glibc}"


def _python_fits(tag: Tag, platform: Platform) -> bool:
    """Return whether pip on that CPython takes the tag, its platform part aside."""
    python = platform.python
    version = tuple(map(int, python.version.split(".")))
    # An ABI of another release is nothing that pip would ever look for.
    abis = [python.abi] if python.abi.rstrip("abcdefghijklmnopqrstuvwxyz") == python.tag else []
    plain = [tag.platform]
    return tag in {
        *cpython_tags(version, abis, plain),
        *compatible_tags(version, python.tag, plain),
    }


def requires_torch(facts: Facts) -> Iterator[Finding]:
    """The torch that the wheel requires is the target's."""
    subject, have = facts.wheel.file, facts.platform.torch.version
    wanted, damaged = _torch_requirements(facts)
    wrong = [
        f"{item}{_other_cuda(item, facts.platform)}"
        for item in wanted
        if not item.specifier.contains(have, prereleases=True)
    ]
    if wrong or damaged:
        reason = f"the target's torch {have} is not what the wheel requires"
        fix = f"build it for {facts.target.id}, or correct Requires-Dist"
        yield Finding("requires-torch", "fail", subject, reason, (*wrong, *damaged), fix)
    elif wanted:
        reason = f"the target's torch {have} satisfies what the wheel requires"
        yield Finding("requires-torch", "pass", subject, reason, tuple(map(str, wanted)))
    elif facts.wheel.pin is not None:
        reason = "it was pinned to a torch, and its Requires-Dist does not say so any more"
        fix = f"add Requires-Dist: torch=={have}, or build it again"
        yield Finding("requires-torch", "fail", subject, reason, fix=fix)
    else:
        reason = "the wheel requires no torch, so any is right to an installer"
        yield Finding("requires-torch", "pass", subject, reason)


def _other_cuda(item: Requirement, platform: Platform) -> str:
    """Say whose torch a local version such as 2.7.1+cu126 is."""
    match = re.search(r"\+cu(\d+)(\d)\b", str(item.specifier))
    if match is None:
        return ""
    have = f"for CUDA {platform.torch.cuda}" if platform.torch.cuda else "for the CPU alone"
    return f" (a build for CUDA {match[1]}.{match[2]}; the target's is {have})"


def _torch_requirements(facts: Facts) -> tuple[list[Requirement], list[str]]:
    found, damaged = [], []
    for line in facts.wheel.metadata.get_all("Requires-Dist", []):
        try:
            item = Requirement(str(line))
        except InvalidRequirement:
            damaged.append(f"{str(line)!r} is not a requirement")
            continue
        applies = item.marker is None or item.marker.evaluate(facts.platform.markers)
        if canonicalize_name(item.name) == "torch" and applies:
            found.append(item)
    return found, damaged


def pin(facts: Facts) -> Iterator[Finding]:
    """The pin record is that of this target."""
    subject, record = facts.wheel.file, facts.wheel.pin
    if record is None and facts.wheel.pin_damage:
        reason = f"the wheel's {PIN_FILE} cannot be read"
        fix = "build the wheel again, or update jetship"
        yield Finding("pin", "fail", subject, reason, (facts.wheel.pin_damage,), fix)
        return
    if record is None:
        reason = f"no {PIN_FILE}: not built by jetship, so the other rules have to tell"
        yield Finding("pin", "pass", subject, reason)
        return
    unread = tuple(_unread(facts))
    problems = (*_pin_problems(record, facts), *(() if unread else _code_problems(record, facts)))
    if problems:
        reason = f"the wheel's {PIN_FILE} says that it was built for something else"
        fix = f"build it for {facts.target.id}"
        yield Finding("pin", "fail", subject, reason, problems, fix)
    elif unread:
        reason = f"device code and glibc of {PIN_FILE} cannot be compared, as files of the wheel "
        reason += "could not be read"
        yield Finding("pin", "unknown", subject, reason, unread, "see rules elf and machine")
    else:
        same = record.target == facts.target.id
        reason = f"built for {record.target}" + (
            "" if same else f", which is {facts.platform.name} as well; device-code tells the rest"
        )
        yield Finding("pin", "pass", subject, reason)


def _unread(facts: Facts) -> Iterator[str]:
    """Yield the libraries whose own facts cannot be held against the record."""
    loadable = {member.name for member, _ in facts.loadable}
    for member in facts.wheel.members:
        if member.images_damage or (member.is_library and member.name not in loadable):
            yield member.name


def _pin_problems(pin: Pin, facts: Facts) -> Iterator[str]:
    platform = facts.platform
    pairs = (
        ("platform", pin.platform, platform.name),
        ("machine", pin.machine, platform.machine),
        ("torch", pin.torch.version, platform.torch.version),
        ("torch's CUDA", pin.torch.cuda, platform.torch.cuda),
        ("torch's C++11 ABI", pin.torch.cxx11_abi, platform.torch.cxx11_abi),
        ("CUDA", pin.cuda.version, platform.cuda.version),
    )
    for what, built, have in pairs:
        if built != have:
            yield f"{what}: built for {built}, the target has {have}"


def _code_problems(pin: Pin, facts: Facts) -> Iterator[str]:
    # Whether that code is what the target needs is for the device-code rule to say.
    pinned = {(row.arch, row.sass, row.ptx) for row in pin.cuda.code}
    found = _device_code(facts)
    if pinned != found:
        yield f"device code: the record says {_codes(pinned)}, the wheel has {_codes(found)}"
    floors = [floor for _, elf in facts.loadable if (floor := elf.floor("GLIBC"))]
    floor = max(floors, key=version_key, default=None)
    if floor != pin.glibc_floor:
        yield f"glibc: the record says {pin.glibc_floor}, the wheel's files ask for {floor}"


def _device_code(facts: Facts) -> set[tuple[str, bool, bool]]:
    """Return (arch, has SASS, has PTX) of all device code in the wheel, as a pin records it."""
    images = [image for member in facts.wheel.members for image in member.images]
    archs = {image.arch for image in images if image.kind in ("sass", "ptx")}
    kinds = {(image.arch, image.kind) for image in images}
    return {(str(arch), (arch, "sass") in kinds, (arch, "ptx") in kinds) for arch in archs}


def _codes(codes: set[tuple[str, bool, bool]]) -> str:
    shown = [
        arch + (" SASS" if sass else "") + (" PTX" if ptx else "")
        for arch, sass, ptx in sorted(codes)
    ]
    return ", ".join(shown) or "none"


def _listed(tags: frozenset[Tag]) -> str:
    return ", ".join(sorted(map(str, tags)))
