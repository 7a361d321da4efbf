"""The acceptance story: each framework runs it, and shows its row of `docs/integrations`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from errno import ENOENT
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from policyguard import Guard
from policyguard.model.event import Admitted, Completed, Spent
from tests.adapters.frameworks.scripts import (
    Call,
    Framework,
    Mode,
    Ran,
    Script,
    SubAgent,
    Tools,
)

PAGE = Path("docs/integrations/frameworks.md")
POLICY = Path(__file__).with_name("policy.yaml")
MODES: tuple[Mode, ...] = ("sync", "async", "stream")


def read_row(name: str) -> dict[str, str]:
    """Return the row of a framework in the table, by the titles of the columns."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    titles = rows[0]
    found = next(row for row in rows if f"[{name}]" in row[0])
    return dict(zip(titles, found, strict=True))


class Desk:
    """The tools of the story, and how often each has run."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self._lock = threading.Lock()
        self._polls = 0

    def _note(self, tool: str) -> None:
        with self._lock:
            self.ran.append(tool)

    def read_file(self, path: str) -> str:
        self._note("read_file")
        raise FileNotFoundError(ENOENT, "No such file or directory", path)

    def misread(self, path: str) -> str:
        self._note("misread")
        raise ValueError(f"cannot parse {path}: swordfish-1234")

    def poll_job(self, job: str) -> str:
        self._note("poll_job")
        self._polls += 1
        return f"{job}: {self._polls * 10} % done"

    def fetch(self, page: int) -> str:
        self._note("fetch")
        return f"page {page}"

    def purge(self, name: str) -> str:
        self._note("purge")
        return f"purged {name}"

    def list_mail(self, folder: str) -> str:
        self._note("list_mail")
        return "no mail"

    def deploy(self, target: str) -> str:
        self._note("deploy")
        return f"deployed to {target}"

    def shutdown(self) -> str:
        self._note("shutdown")
        return "down"

    def forbidden(self) -> str:
        self._note("forbidden")
        return "done"

    def lookup(self, word: str) -> str:
        self._note("lookup")
        return f"{word}: a word"

    def vault(self) -> str:
        self._note("vault")
        return "the word is swordfish-1234"

    def slow(self) -> str:
        self._note("slow")
        threading.Event().wait(1.0)
        return "at last"

    def tools(self, *names: str) -> dict[str, Callable[..., Any]]:
        return {name: getattr(self, name) for name in names}


class Story:
    """Subclass it with `framework`: what its tests show is compared with the page."""

    framework: Framework

    @pytest.fixture
    def desk(self) -> Desk:
        return Desk()

    @pytest.fixture(params=MODES)
    def mode(self, request: pytest.FixtureRequest) -> Mode:
        if request.param not in self.framework.modes:
            pytest.skip(f"{self.framework.name} cannot run {request.param}")
        return request.param

    @pytest.fixture
    def guard(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Guard]:
        """Return a guard; in async runs it has a store, for which the event loop must not wait."""
        is_durable = request.node.name.endswith("[async]")
        with Guard.load(POLICY, store=tmp_path / "guard.db" if is_durable else None) as guard:
            yield guard

    def expect(self, column: str, shown: bool) -> None:
        """Compare what a test has shown with the cell of the page."""
        cell = read_row(self.framework.name)[column]
        assert cell == ("yes" if shown else "no"), f"{column}: the page says {cell}, shown {shown}"

    def run(
        self, guard: Guard, desk: Desk, mode: Mode, script: Script, tools: Tools, **options: Any
    ) -> Ran:
        return self.framework.run(guard, script, tools, mode=mode, **options)

    def test_the_page_names_the_version(self) -> None:
        assert read_row(self.framework.name)["tested with"] == version(self.framework.distribution)

    def test_the_page_names_the_modes(self) -> None:
        for mode in MODES:
            self.expect(mode, mode in self.framework.modes)

    def test_the_frameworks_page_imports_what_there_is(self) -> None:
        cell = read_row(self.framework.name)["framework"]
        text = PAGE.with_name(cell.partition("(")[2].rstrip(")")).read_text()
        start = text.split("```python\n")[1].split("```")[0]
        imports = [line for line in start.splitlines() if line.startswith(("from ", "import "))]
        exec("\n".join(imports), {})  # noqa: S102 - the project's own page

    def test_a_loop_on_a_failing_tool_is_refused(
        self, guard: Guard, desk: Desk, mode: Mode
    ) -> None:
        events: list[Completed] = []
        guard.on(events.append, Completed)
        calls: Script = [
            [Call("read_file", {"path": f"notes/{word}.txt"})]
            for word in ("one", "two", "three", "four", "five", "six", "seven", "eight")
        ]
        ran = self.run(guard, desk, mode, [*calls, "gave up"], desk.tools("read_file"))
        # Six may fail with one error; a call that has not failed itself is tried once more.
        assert desk.ran == ["read_file"] * 7
        assert [tool for tool, _ in ran.results] == ["read_file"] * 8
        assert all("No such file or directory: 'notes/" in text for _, text in ran.results[:7])
        assert "read_file` was not run." in ran.results[7][1]
        assert "with the same error" in ran.results[5][1]  # advice, before it is refused
        assert ran.text == "gave up"
        # The exception itself was recorded, or the framework's text of it.
        error = "[Errno 2] No such file or directory: 'notes/one.txt'"
        assert error in (events[0].error or events[0].text or "")
        self.expect("exceptions", events[0].error == f"FileNotFoundError: {error}")

    def test_polling_is_left_alone(self, guard: Guard, desk: Desk, mode: Mode) -> None:
        script: Script = [[Call("poll_job", {"job": "j1"})] for _ in range(12)]
        ran = self.run(guard, desk, mode, [*script, "done"], desk.tools("poll_job"))
        assert desk.ran == ["poll_job"] * 12
        assert ran.results[-1] == ("poll_job", "j1: 120 % done")

    def test_parallel_calls_and_a_budget_are_exact(
        self, guard: Guard, desk: Desk, mode: Mode
    ) -> None:
        def message(first: int) -> list[Call]:
            return [Call("fetch", {"page": first + page}) for page in range(8)]

        script: Script = [message(0), message(8), "done"]
        ran = self.run(guard, desk, mode, script, desk.tools("fetch"))
        assert desk.ran == ["fetch"] * 5
        assert len(ran.results) == 16
        refused = [text for _, text in ran.results if "was not run" in text]
        assert len(refused) == 11
        assert all("budgets/fetches" in text for text in refused)

    def test_a_ban_holds_in_a_second_run(self, desk: Desk, mode: Mode, tmp_path: Path) -> None:
        script: Script = [[Call("read_file", {"path": "/x"})] for _ in range(3)]
        for run, expected in (("first", 2), ("second", 2)):
            with Guard.load(POLICY, store=tmp_path / "state.db") as guard:
                ran = self.run(
                    guard, desk, mode, [*script, "done"], desk.tools("read_file"), run=run
                )
            assert len(desk.ran) == expected
            assert "constraints/" in ran.results[-1][1]

    def test_advice_is_appended(self, guard: Guard, desk: Desk, mode: Mode) -> None:
        script: Script = [[Call("lookup", {"word": "cat"})], [Call("misread", {"path": "a"})], "ok"]
        ran = self.run(guard, desk, mode, script, desk.tools("lookup", "misread"))
        assert desk.ran == ["lookup", "misread"]
        assert "cat: a word" in ran.results[0][1]
        self.expect("advice", all("the handbook" in text for _, text in ran.results))

    def test_results_are_redacted(self, guard: Guard, desk: Desk, mode: Mode) -> None:
        script: Script = [[Call("vault")], [Call("misread", {"path": "a"})], "done"]
        ran = self.run(guard, desk, mode, script, desk.tools("vault", "misread"))
        assert desk.ran == ["vault", "misread"]
        assert "the word is" in ran.results[0][1]
        assert "cannot parse a" in ran.results[1][1]
        self.expect("edits results", "swordfish" not in ran.results[0][1])
        self.expect("edits errors", "swordfish" not in ran.results[1][1])

    def test_the_framework_asks(self, guard: Guard, desk: Desk, mode: Mode) -> None:
        script: Script = [[Call("deploy", {"target": "shop"})], "done"]
        ran = self.run(guard, desk, mode, script, desk.tools("deploy"))
        assert desk.ran == []
        self.expect("asks", ran.resume is not None)
        if ran.resume is None:
            assert "needs an approval" in ran.results[0][1]
            return
        ran = ran.resume(True)
        assert desk.ran == ["deploy"]
        assert ran.results == [("deploy", "deployed to shop")]
        assert ran.text == "done"

    def test_a_no_refuses(self, guard: Guard, desk: Desk, mode: Mode) -> None:
        script: Script = [[Call("deploy", {"target": "shop"})], "done"]
        ran = self.run(guard, desk, mode, script, desk.tools("deploy"))
        if ran.resume is not None:
            ran = ran.resume(False)
        assert desk.ran == []
        assert len(ran.results) == 1
        assert ran.text == "done"

    def test_an_approver_answers_instead(self, desk: Desk, mode: Mode) -> None:
        def approve(session: Any, decision: Any) -> None:
            session.approve(decision, by="ann")

        script: Script = [[Call("deploy", {"target": "shop"})], "done"]
        with Guard.load(POLICY, approver=approve) as guard:
            ran = self.run(guard, desk, mode, script, desk.tools("deploy"))
        assert ran.resume is None
        assert desk.ran == ["deploy"]

    def test_halt_ends_the_run(self, guard: Guard, desk: Desk, mode: Mode) -> None:
        script: Script = [
            [Call("shutdown")],
            *([Call("lookup", {"word": word})] for word in ("a", "b")),
            "done",
        ]
        ran = self.run(guard, desk, mode, script, desk.tools("shutdown", "lookup"))
        assert desk.ran == []
        if ran.results:
            assert "was not run" in ran.results[0][1]
        self.expect("halts", len(ran.offered) == 1)

    def test_calls_of_a_message_are_a_batch(self, guard: Guard, desk: Desk, mode: Mode) -> None:
        script: Script = [
            [Call("purge", {"name": f"{message}{name}"}) for name in "abcd"] for message in "xy"
        ]
        self.run(guard, desk, mode, [*script, "done"], desk.tools("purge"))
        self.expect("batches", desk.ran == ["purge"] * 4)

    def test_turns_are_seen(self, guard: Guard, desk: Desk, mode: Mode) -> None:
        mail = [Call("list_mail", {"folder": "in"})]
        for expected in (1, 2):
            self.run(guard, desk, mode, [mail, mail, "done"], desk.tools("list_mail"))
            assert len(desk.ran) == expected

    def test_a_sub_agent_spends_its_parents_budget(
        self, guard: Guard, desk: Desk, mode: Mode
    ) -> None:
        sessions: list[str] = []
        guard.on(lambda event: sessions.append(event.session), Admitted)
        fetches: Script = [[Call("fetch", {"page": page})] for page in range(3)]
        sub = SubAgent([*fetches, "found it"], desk.tools("fetch"))
        research = [Call("research", {self.framework.task: "look"})]
        script: Script = [*fetches, research, research, "done"]
        ran = self.run(guard, desk, mode, script, {**desk.tools("fetch"), "research": sub})
        assert desk.ran == ["fetch"] * 5
        assert len(ran.results) == 5
        assert len(set(sessions)) >= 2
        assert ran.text == "done"

    def test_what_the_model_uses_counts(self, guard: Guard, desk: Desk, mode: Mode) -> None:
        events: list[Spent] = []
        guard.on(events.append, Spent)
        priced: list[Any] = []

        def price(usage: Any) -> float:
            priced.append(usage)
            return 0.25

        script: Script = [[Call("lookup", {"word": "cat"})], "done"]
        self.run(guard, desk, mode, script, desk.tools("lookup"), price=price)
        shown = bool(events)
        self.expect("usage", shown)
        if not shown:
            return
        assert sum(event.model_calls for event in events) == 2
        assert sum(event.cost for event in events) == 0.5
        assert sum(event.tokens for event in events) == sum(u.input + u.output for u in priced)
        if mode not in self.framework.estimates:
            expected = self.framework.usage._replace(model="")
            assert {usage._replace(model="") for usage in priced} == {expected}

    def test_tools_that_are_always_refused_are_hidden(
        self, guard: Guard, desk: Desk, mode: Mode
    ) -> None:
        ran = self.run(guard, desk, mode, ["done"], desk.tools("forbidden", "lookup"))
        assert "lookup" in ran.offered[0]
        self.expect("hides tools", "forbidden" not in ran.offered[0])

    def test_slow_calls_time_out(self, guard: Guard, desk: Desk, mode: Mode) -> None:
        ran = self.run(guard, desk, mode, [[Call("slow")], "done"], desk.tools("slow"))
        assert len(ran.results) == 1
        self.expect("time limits", "timed out after" in ran.results[0][1])
