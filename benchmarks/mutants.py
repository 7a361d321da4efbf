"""How many small changes of the code the tests notice, on a sample.

    python -m benchmarks.mutants --count 15 --seed 1 guard store

The project is copied. Its tests run once with coverage, to know which of them run a line and how
long each takes; this is kept in `benchmarks/results/mutants` until the code or the tests change.
Then each mutant is written into the copy, and tests that run its line are run, those of the
module's own folder first, until one fails. A mutant that no test notices is printed as a diff.
Those without an observable effect belong in `equivalent_mutants.json`, with the reason.

With `--tests learned --tests guard` only these folders are measured and run. That is quicker, and
what it calls not noticed may be noticed by a test of another folder.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

from benchmarks.mutants_plugin import DURATIONS, SELECTED
from benchmarks.mutations import Mutant, find_mutants

PACKAGES = ("evaluator", "guard", "store", "journal", "learned", "cel", "compiler", "simulate")
WITHOUT = {"benchmarks", "ci", "editors", "report"}
"""Folders of tests that are not run: they run no line that others do not, or take long."""
ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "mutants"
EQUIVALENT = ROOT / "benchmarks" / "equivalent_mutants.json"


class CannotRunError(Exception):
    """The run cannot start; the message says why."""


class Copy:
    """A copy of the project, in which mutants are tried."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        files = subprocess.run(listed, cwd=ROOT, capture_output=True, check=True).stdout
        for name in files.decode().split("\0"):
            if name and (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        for data in ("policies", "schemas"):
            (self.root / "policyguard" / data).symlink_to(self.root / data)
        self._environment = os.environ | {
            "PYTHONPATH": str(self.root),
            "CI": "1",  # the same examples of the properties each time
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "XDG_CACHE_HOME": str(folder / "cache"),
        }

    def run(self, arguments: Sequence[str], timeout: float | None, **extra: str) -> int | None:
        """Run Python in the copy; None after the timeout."""
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=self.root,
            env=self._environment | extra,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and what the tests started
            process.wait()


@dataclass
class TestMap:
    """Which tests run a line, and how long each takes."""

    seconds: dict[str, float] = field(default_factory=dict)
    tests: list[dict[str, dict[str, list[str]]]] = field(default_factory=list)
    """By folder of tests, file and line."""

    def add_folder(self, folder: str) -> None:
        """Add the tests of a folder; they run unless their map is kept."""
        content = hashlib.sha256()
        for part in ("policyguard", "policies", f"tests/{folder}"):
            for file in sorted((ROOT / part).rglob("*.*")):
                if file.is_file() and file.suffix != ".pyc":
                    content.update(file.read_bytes())
        kept = RESULTS / f"{folder}-{content.hexdigest()[:12]}.json"
        if not kept.exists():
            measured = _measure_coverage(folder)
            for old in RESULTS.glob(f"{folder}-*.json"):
                old.unlink()
            kept.write_text(json.dumps(measured), "utf-8")
        loaded = json.loads(kept.read_text("utf-8"))
        self.seconds |= loaded["seconds"]
        names = list(loaded["seconds"])
        for lines in loaded["tests"].values():
            for line, numbers in lines.items():
                lines[line] = [names[number] for number in numbers]
        self.tests.append(loaded["tests"])

    def select(self, mutant: Mutant, max_seconds: float) -> list[str]:
        """Return the tests to try, at least one: the package's own first, then the quick ones."""
        lines = range(mutant.affected_lines[0], mutant.affected_lines[1] + 1)
        by_line = [tests.get(mutant.file, {}) for tests in self.tests]
        candidates = {test for one in by_line for line in lines for test in one.get(str(line), ())}
        own = f"tests/{mutant.file.split('/')[1]}/"
        if not candidates:  # run when the module is imported, or in another process
            candidates = {test for test in self.seconds if test.startswith(own)}
        ordered = sorted(
            candidates, key=lambda test: (not test.startswith(own), self.seconds[test])
        )
        selected, total = ordered[:1], sum(self.seconds[test] for test in ordered[:1])
        for test in ordered[1:]:
            total += self.seconds[test]
            if total > max_seconds:
                break
            selected.append(test)
        return selected


def _measure_coverage(folder: str) -> dict[str, object]:
    """Run a folder's tests under coverage."""
    try:
        from coverage import CoverageData
    except ImportError:
        raise CannotRunError("coverage is not installed; run `make mutants`") from None
    print(f"running tests/{folder} with coverage", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        copy, data, seconds = Copy(Path(temporary)), f"{temporary}/data", f"{temporary}/seconds"
        command = ["-m", "coverage", "run", "--source=policyguard", f"--data-file={data}"]
        copy.run([*command, *_pytest(folder)], None, **{DURATIONS: seconds})
        if not Path(seconds).exists():
            raise CannotRunError(f"the tests in tests/{folder} do not run")
        collected = CoverageData(data)
        collected.read()
        known: dict[str, float] = json.loads(Path(seconds).read_text("utf-8"))
        numbers = {test: number for number, test in enumerate(known)}
        tests = {
            str(Path(file).relative_to(copy.root)): {
                line: [numbers[test] for test in contexts if test in numbers]
                for line, contexts in collected.contexts_by_lineno(file).items()
            }
            for file in collected.measured_files()
        }
        return {"seconds": known, "tests": tests}


def _pytest(*arguments: str) -> list[str]:
    paths = [one if one.startswith("-") or "/" in one else f"tests/{one}" for one in arguments]
    plugin = ["-p", "benchmarks.mutants_plugin"]
    return ["-m", "pytest", *plugin, "-p", "no:cacheprovider", "-n", "0", "-m", "not slow", *paths]


def is_noticed(copy: Copy, mutant: Mutant, tests: list[str], seconds: float) -> bool:
    """Return whether one of the tests fails, or does not end, with the mutant."""
    file = copy.root / mutant.file
    source = file.read_bytes()
    selected = copy.root.parent / "selected"
    selected.write_text(json.dumps(tests), "utf-8")
    modules = list(dict.fromkeys(test.split("::")[0] for test in tests))
    try:
        file.write_bytes(mutant.apply(source))
        for compiled in file.parent.glob(f"__pycache__/{file.stem}.*"):
            compiled.unlink()  # one of the same size and second would be taken for current
        code = copy.run(
            _pytest("-x", *modules),
            60 + 5 * seconds,
            PYTHONDONTWRITEBYTECODE="1",
            **{SELECTED: str(selected)},
        )
    finally:
        file.write_bytes(source)
    if code == 5:
        raise CannotRunError(f"none of the {len(tests)} tests of {mutant.file} is collected")
    return code != 0


def sample(package: str, count: int, seed: int) -> list[Mutant]:
    """Return mutants of a package, drawn with a seed, without the known equivalents."""
    known = {
        (one["file"], one["function"], *one["diff"])
        for one in json.loads(EQUIVALENT.read_text("utf-8"))
    }
    mutants: list[Mutant] = []
    for file in sorted((ROOT / "policyguard" / package).rglob("*.py")):
        mutants += find_mutants(ROOT, file)
    random.Random(f"{package} {seed}").shuffle(mutants)
    sampled: list[Mutant] = []
    for mutant in mutants:
        diff = mutant.diff((ROOT / mutant.file).read_bytes())
        key = (mutant.file, mutant.function, *(line[0] + line[1:].strip() for line in diff))
        if diff and key not in known and len(sampled) < count:
            sampled.append(mutant)
    return sampled


def list_folders(chosen: list[str] | None) -> list[str]:
    """Return the folders of tests to run: the chosen ones, or all but `WITHOUT`.

    `CannotRunError` for one without tests.
    """
    folders = [one.name for one in sorted((ROOT / "tests").iterdir()) if any(one.glob("test_*.py"))]
    if unknown := set(chosen or ()) - set(folders):
        raise CannotRunError(f"no tests in tests/{min(unknown)}; name a folder of tests")
    return chosen or [one for one in folders if one not in WITHOUT]


def main() -> int:
    """Try a sample of mutants; 1 if fewer than `--at-least` percent are noticed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("packages", nargs="*", default=PACKAGES, metavar="PACKAGE")
    parser.add_argument("--count", type=int, default=15, help="mutants per package")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sample")
    parser.add_argument("--seconds", type=float, default=20, help="of tests per mutant")
    parser.add_argument("--workers", type=int, default=1, help="mutants tried at once")
    parser.add_argument("--at-least", type=float, default=0, help="percent to notice")
    parser.add_argument(
        "--tests",
        action="append",
        metavar="FOLDER",
        help="run the tests of this folder only (may be given several times)",
    )
    options = parser.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    test_map = TestMap()
    with ThreadPoolExecutor(options.workers) as threads:
        list(threads.map(test_map.add_folder, list_folders(options.tests)))
    mutants = [
        one for package in options.packages for one in sample(package, options.count, options.seed)
    ]
    tried, noticed = Counter[str](), Counter[str]()
    copies: SimpleQueue[Copy] = SimpleQueue()

    def attempt(mutant: Mutant) -> None:
        package = mutant.file.split("/")[1]
        tests = test_map.select(mutant, options.seconds)
        copy = copies.get()
        try:
            survived = not is_noticed(copy, mutant, tests, options.seconds)
        finally:
            copies.put(copy)
        tried[package] += 1
        noticed[package] += not survived
        if survived:
            diff = "\n".join(mutant.diff((ROOT / mutant.file).read_bytes()))
            place = f"{mutant.file}:{mutant.lines[0]} {mutant.function}"
            print(f"not noticed by {len(tests)} tests: {place}\n{diff}\n", flush=True)

    with (
        tempfile.TemporaryDirectory() as temporary,
        ThreadPoolExecutor(options.workers) as threads,
    ):
        for number in range(options.workers):
            copies.put(Copy(Path(temporary) / str(number)))
        list(threads.map(attempt, mutants))
    for package in options.packages:
        share = 100 * noticed[package] / (tried[package] or 1)
        print(f"{package:10} {noticed[package]:4} of {tried[package]:4} noticed ({share:.0f} %)")
    share = 100 * noticed.total() / (tried.total() or 1)
    print(f"{'all':10} {noticed.total():4} of {tried.total():4} noticed ({share:.0f} %)")
    return int(share < options.at_least)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except CannotRunError as error:
        sys.exit(f"error: {error}")
