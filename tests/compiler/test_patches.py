"""The files that a patch names are paths of the call."""

from __future__ import annotations

import pytest

from policyguard import Guard
from policyguard.compiler.build.patches import find_patched_files

OF_CODEX = """\
*** Begin Patch
*** Update File: src/a b.py
*** Move to: src/c.py
@@
-see policyguard.yaml
+*** Update File: text.md
*** Add File: new.py
+x
*** Delete File: old.py
*** End Patch
"""
UNIFIED = """\
diff --git a/src/x.py b/src/y.py
rename from src/x.py
rename to src/y.py
--- a/src/x.py\t2026-01-01
+++ b/src/y.py
@@ -1 +1 @@
-old
+new
--- /dev/null
+++ b/added.py
"""


@pytest.mark.parametrize(
    ("patch", "files"),
    [
        (OF_CODEX, {"src/a b.py", "src/c.py", "new.py", "old.py"}),
        (UNIFIED, {"a/src/x.py", "src/x.py", "b/src/y.py", "src/y.py", "b/added.py", "added.py"}),
        ("diff --git a/m b/m\nold mode 100644\nnew mode 100755\n", {"a/m", "m", "b/m"}),
        ("no patch", set()),
    ],
)
def test_files_of_a_patch(patch: str, files: set[str]) -> None:
    assert set(find_patched_files(patch)) == files


@pytest.mark.parametrize(
    ("tool", "args"),
    [
        ("apply_patch", {"input": OF_CODEX}),
        ("edit", {"diff": UNIFIED.replace("added", "new")}),
        ("bash", {"command": f"apply_patch <<'EOF'\n{OF_CODEX}EOF"}),
        ("shell", {"command": ["apply_patch", OF_CODEX]}),
    ],
)
def test_a_rule_on_paths_sees_them(tmp_path, tool, args):
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "policyguard: 1\nname: p\nextends: [core]\nrules: {keep: {paths: [new.py], message: no}}\n"
    )
    guard = Guard.load([str(policy)])
    assert not guard.session("s").check(tool, args)
    other = {name: _replace(value, "new.py", "other.py") for name, value in args.items()}
    assert guard.session("t").check(tool, other)


def _replace(value, old, new):
    if isinstance(value, list):
        return [_replace(one, old, new) for one in value]
    return value.replace(old, new)
