"""Types: strict ones, and a stub that is that of the extension module."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import leasehold_redis

pytest.importorskip("mypy")


def run(module: str, *arguments: str, cwd: Path, **env: str) -> None:
    ran = subprocess.run([sys.executable, "-m", module, *arguments], cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_package_and_tests_are_strict(tmp_path: Path) -> None:
    run("mypy", f"--cache-dir={tmp_path}", cwd=Path(__file__).parents[1])


def test_stub_is_that_of_the_extension_module(tmp_path: Path) -> None:
    run("mypy.stubtest", "leasehold_redis", cwd=tmp_path, MYPYPATH=str(Path(leasehold_redis.__file__).parents[1]))
