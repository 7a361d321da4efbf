"""The pytest plugin collects the same files, each test an item."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HEAD = "policy: {budgets: {reads: {calls: 9}}}\ntests:\n"
GOOD = f"{HEAD}  - name: it reads\n    steps: [{{call: {{read: {{}}}}}}]\n"
BAD = f"{HEAD}  - name: it blocks\n    steps: [{{call: {{read: {{}}}}, expect: block}}]\n"
PLUGIN = "policyguard.testing.pytest_plugin"


def pytest_in(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    # The plugin is given by its module; the installed entry point would register it once more.
    loading = ["-p", PLUGIN, "-p", "no:cacheprovider"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-v", *loading, *args],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_each_test_is_an_item_and_a_failure_is_readable(tmp_path: Path) -> None:
    (tmp_path / "tests.yaml").write_text(GOOD)
    (tmp_path / "x.tests.yaml").write_text(BAD)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "tests.yaml").write_text("tests: [1]\n")
    (tmp_path / "plain.yaml").write_text(BAD)
    done = pytest_in(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "tests.yaml::it reads PASSED" in done.stdout
    assert "x.tests.yaml::it blocks FAILED" in done.stdout
    assert "1 failed, 1 passed" in done.stdout
    assert "--> x.tests.yaml:4:" in done.stdout
    assert "= expected: block" in done.stdout
    assert "Traceback" not in done.stdout
    assert "pytest_plugin.py" not in done.stdout


def test_items_are_selected_by_name(tmp_path: Path) -> None:
    (tmp_path / "x.tests.yaml").write_text(BAD + GOOD.partition("tests:\n")[2])
    done = pytest_in(tmp_path, "-k", "reads")
    assert done.returncode == 0
    assert "1 passed, 1 deselected" in done.stdout


def test_a_broken_file_is_an_error_of_the_collection(tmp_path: Path) -> None:
    (tmp_path / "x.tests.yaml").write_text(GOOD.replace("steps", "stepps"))
    done = pytest_in(tmp_path)
    assert done.returncode == 2
    assert "error[schema/unknown-key]: unknown key `stepps`" in done.stdout
    assert "Traceback" not in done.stdout


def test_a_project_without_policy_tests_pays_nothing(tmp_path: Path) -> None:
    (tmp_path / "tests.yaml").write_text("tests: [1]\n")
    (tmp_path / "test_it.py").write_text(
        "import sys\n"
        "def test_it():\n"
        "    ours = {name for name in sys.modules if name.startswith('policyguard')}\n"
        "    assert ours == {'policyguard', 'policyguard.testing',\n"
        "                    'policyguard.testing.discovery',\n"
        "                    'policyguard.testing.pytest_plugin'}\n"
        "    assert not {'yaml', 'jsonschema', 'lark', 're2', 'click'} & set(sys.modules)\n"
    )
    done = pytest_in(tmp_path)
    assert done.returncode == 0, done.stdout
