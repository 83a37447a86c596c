"""Compiles several files at once where a project does without ninja.

torch's BuildExtension without ninja, and setuptools itself, compile one file after the other, and
one extension after the other. Each gets a process of its own here. A fork and no thread: torch
changes the shared compiler object around each file that nvcc is to compile. At no time do more
compilers run than MAX_JOBS says.
"""

import functools
import os
import sys
import traceback


class Tokens:
    """As many tokens as compilers may run at once, in a pipe that all processes share."""

    def __init__(self, count):
        self._out, self._in = os.pipe()
        os.write(self._in, b"." * count)

    def __enter__(self):
        os.read(self._out, 1)

    def __exit__(self, *_):
        self.give_back()

    def give_back(self):
        os.write(self._in, b".")


def adapt(build_extension):
    """Let setuptools build in parallel; `build_extension` is torch's own class.

    A class that builds an extension in its own way (by CMake, say) may count on the order, so its
    extensions are built one by one; so are those of ninja, which is parallel by itself.
    """
    jobs = int(os.environ.get("MAX_JOBS") or 1)
    if jobs < 2:
        return
    from distutils.ccompiler import CCompiler
    from distutils.command.build_ext import build_ext
    from distutils.errors import CompileError, LinkError

    from setuptools.command.build_ext import build_ext as setuptools_build_ext

    tokens = Tokens(jobs)
    usual = {one.build_extension for one in (build_ext, setuptools_build_ext)}
    usual.add(build_extension.build_extension)

    def compile(self, sources, output_dir=None, macros=None, include_dirs=None, debug=0,
                extra_preargs=None, extra_postargs=None, depends=None):  # fmt: skip
        _, objects, extra_postargs, pp_opts, build = self._setup_compile(
            output_dir, macros, include_dirs, sources, depends, extra_postargs
        )
        cc_args = self._get_cc_args(pp_opts, debug, extra_preargs)
        failed = in_children(
            [
                functools.partial(
                    one_file, tokens, self, name, *build[name], cc_args, extra_postargs, pp_opts
                )
                for name in objects
                if name in build
            ]
        )
        if failed:
            raise CompileError("%d of %d files did not compile" % (failed, len(build)))
        return objects

    one_by_one = build_ext._build_extensions_serial

    def extensions_at_once(self):
        own = type(self).build_extension not in usual
        # ninja runs as many compilers as it may for one extension, and knows of no other ninja.
        if own or getattr(self, "use_ninja", False) or len(self.extensions) < 2:
            return one_by_one(self)
        failed = in_children([functools.partial(self.build_extension, e) for e in self.extensions])
        if failed:
            raise LinkError("%d of %d extensions were not built" % (failed, len(self.extensions)))

    CCompiler.compile = compile
    build_ext._build_extensions_serial = extensions_at_once


def one_file(tokens, compiler, *arguments):
    with tokens:
        compiler._compile(*arguments)


def in_children(works, when_killed=lambda: None):
    """Do each work in a child process, all at once; return how many failed.

    A child that is killed cannot give back what it holds, so `when_killed` does.
    """
    if len(works) < 2:
        for work in works:
            work()
        return 0
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    children = [_child(work) for work in works]
    failed = 0
    for child in children:
        status = os.waitpid(child, 0)[1]
        failed += status != 0
        if os.WIFSIGNALED(status):
            when_killed()
    return failed


def _child(work):
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)
