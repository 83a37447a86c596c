"""Compiles several files and extensions at once, and never more than MAX_JOBS says.

torch's BuildExtension without ninja, and setuptools itself, compile one file after the other; with
ninja, one extension after the other, so that a project of many extensions of one file never has two
compilers. Each file and each extension gets a process of its own here. A fork and no thread: torch
changes the shared compiler object around each file that nvcc is to compile, and writes ninja's plan
into a folder that it takes from the shared command.
"""

import functools
import os
import signal
import sys
import time
import traceback

POLL_SECONDS = 0.01


def adapt(build_extension):
    """Let setuptools build in parallel; `build_extension` is torch's own class.

    An extension begins when as many jobs are free as it has files; these are the MAX_JOBS of its
    own ninja, so that all of them together run no more than one alone would.

    A class that builds an extension in its own way (by CMake, say) may count on the order, so its
    extensions are built one by one.
    """
    from distutils.ccompiler import CCompiler
    from distutils.command.build_ext import build_ext
    from distutils.errors import CompileError, LinkError

    from setuptools.command.build_ext import build_ext as setuptools_build_ext

    jobs = int(os.environ.get("MAX_JOBS") or 1)
    one_by_one = build_ext._build_extensions_serial
    # What a project has for `parallel` are threads that know of no MAX_JOBS.
    build_ext._build_extensions_parallel = one_by_one
    if jobs < 2:
        return
    usual = {one.build_extension for one in (build_ext, setuptools_build_ext)}
    usual.add(build_extension.build_extension)

    def compile(self, sources, output_dir=None, macros=None, include_dirs=None, debug=0,
                extra_preargs=None, extra_postargs=None, depends=None):  # fmt: skip
        _, objects, extra_postargs, pp_opts, build = self._setup_compile(
            output_dir, macros, include_dirs, sources, depends, extra_postargs
        )
        cc_args = self._get_cc_args(pp_opts, debug, extra_preargs)
        works = [
            functools.partial(self._compile, name, *build[name], cc_args, extra_postargs, pp_opts)
            for name in objects
            if name in build
        ]
        failed = in_children([(1, work) for work in works], jobs)
        if failed:
            raise CompileError("%d of %d files did not compile" % (failed, len(build)))
        return objects

    def one_extension(self, extension, share):
        """Build an extension; in a process of its own, whose jobs are a share of all."""
        nonlocal jobs
        jobs = share
        os.environ["MAX_JOBS"] = str(share)
        # Objects of one source for two extensions, and ninja's plan, are not the same file then.
        self.build_temp = os.path.join(self.build_temp, extension.name)
        with self._filter_build_errors(extension):
            self.build_extension(extension)

    def extensions_at_once(self):
        own = type(self).build_extension not in usual
        linked = getattr(self, "shlibs", ())  # setuptools' Library, for other extensions to link
        few = len(self.extensions) < 2
        if few or own or linked or not all(map(may_be_apart, self.extensions)):
            return one_by_one(self)
        works = []
        for extension in self.extensions:
            share = min(jobs, max(1, len(extension.sources)))
            works.append((share, functools.partial(one_extension, self, extension, share)))
        failed = in_children(works, jobs)
        if failed:
            raise LinkError("%d of %d extensions were not built" % (failed, len(self.extensions)))

    CCompiler.compile = compile
    build_ext._build_extensions_serial = extensions_at_once
    build_ext._build_extensions_parallel = extensions_at_once


def may_be_apart(extension):
    """Tell whether an extension's objects lie in its own folder: `../x.c` leads out of any."""
    return not any(os.path.normpath(source).startswith("..") for source in extension.sources)


def in_children(works, jobs):
    """Do each work in a child process as soon as its share of the jobs is free.

    `works` are pairs of a share, at most `jobs`, and what to call. Returns how many failed.
    """
    if len(works) < 2:
        for _, work in works:
            work()
        return 0
    waiting, running, failed = list(works), {}, 0
    while waiting or running:
        free = jobs - sum(running.values())
        fitting = next((pair for pair in waiting if pair[0] <= free), None)
        if fitting is not None:
            waiting.remove(fitting)
            share, work = fitting
            running[_child(work)] = share
            continue
        failed += sum(status != 0 for status in _ended(running))
    return failed


def _ended(running):
    """Wait until some of the child processes end, take them out, and return their statuses.

    `os.wait` would also take the end of a process that setup.py has started for itself.
    """
    while True:
        ends = [os.waitpid(pid, os.WNOHANG) for pid in running]
        ended = {pid: status for pid, status in ends if pid}
        for pid, status in ended.items():
            del running[pid]
            if os.WIFSIGNALED(status):
                name = signal.Signals(os.WTERMSIG(status)).name
                sys.stderr.write("a compiling process was ended by %s (jetship)\n" % name)
        if ended:
            return list(ended.values())
        time.sleep(POLL_SECONDS)


def _child(work):
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
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
