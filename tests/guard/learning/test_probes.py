"""Probes of a failure streak: the same however a session is held, and given up when cancelled."""

import asyncio
from pathlib import Path

import pytest

from policyguard import Guard, Session
from policyguard.compiler import compile_policy
from policyguard.guard.replay import ReplayGuard
from policyguard.model.event import Admitted, Completed, SessionStarted

LIMITS = "limits: {default: {failures: {max: 3, same: error}, refusals: {max: 15}}}\n"


def policy(path: Path, text: str) -> Path:
    path.write_text(f"policyguard: 1\nname: p\n{text}")
    return path


def _fail(session: Session, command: str) -> str:
    decision = session.check("bash", {"command": command})
    if decision.allowed:
        session.record(decision, error="No module named 'yaml'")
    return decision.effect.value


def test_an_agent_that_varies_a_failing_call_is_halted(tmp_path: Path) -> None:
    with Guard.load(policy(tmp_path / "p.yaml", LIMITS)) as guard:
        session = guard.session("s")
        effects = [_fail(session, f"try {n}") for n in range(40)]
    assert effects.count("advise") == 6
    assert effects.index("halt") == 24
    assert set(effects[24:]) == {"halt"}


def test_beyond_what_is_remembered_no_call_is_tried(tmp_path: Path) -> None:
    few = "bounds: {window_entries: 5}\n"
    with Guard.load(policy(tmp_path / "p.yaml", LIMITS + few)) as guard:
        session = guard.session("s")
        effects = [_fail(session, f"try {n}") for n in range(20)]
    assert effects.count("allow") == 3
    assert effects.count("advise") == 2


def test_a_session_that_is_reopened_decides_the_same(tmp_path: Path) -> None:
    path = policy(tmp_path / "p.yaml", LIMITS)
    commands = [f"try {n // 2}" for n in range(30)]
    with Guard.load(path) as guard:
        session = guard.session("s")
        expected = [_fail(session, command) for command in commands]
    reopened = []
    for command in commands:
        with Guard.load(path, store=tmp_path / "state.db") as guard:
            reopened.append(_fail(guard.session("s"), command))
    assert reopened == expected
    assert "advise" in expected


def test_a_probe_in_flight_is_one_in_a_reopened_session(tmp_path: Path) -> None:
    path = policy(tmp_path / "p.yaml", LIMITS)
    with Guard.load(path, store=tmp_path / "state.db") as guard:
        session = guard.session("s")
        assert [_fail(session, "a") for _ in range(4)] == ["allow", "allow", "allow", "block"]
        assert session.check("bash", {"command": "b"}).effect == "advise"
    with Guard.load(path, store=tmp_path / "state.db") as guard:
        assert not guard.session("s").check("bash", {"command": "c"})


def test_a_cancelled_probe_costs_as_much_waiting_as_a_failed_one(tmp_path: Path) -> None:
    with Guard.load(policy(tmp_path / "p.yaml", LIMITS)) as guard:
        session = guard.session("s")
        for _ in range(3):
            _fail(session, "a")
        effects = []
        for number in range(9):
            decision = session.check("bash", {"command": f"b{number}"})
            effects.append(decision.effect.value)
            if decision:
                session.record(decision, error=asyncio.CancelledError())
    assert effects == [
        "advise", "block", "advise", "block", "block", "advise", "block", "block", "block",
    ]  # fmt: skip


def test_calls_beside_a_probe_in_flight_do_not_halt_the_run(tmp_path: Path) -> None:
    limits = "limits: {default: {failures: {max: 3, same: error, halt_at: 6}, refusals: {max: 5}}}"
    with Guard.load(policy(tmp_path / "p.yaml", f"{limits}\n")) as guard:
        session = guard.session("s")
        for _ in range(3):
            _fail(session, "a")
        probe = session.check("bash", {"command": "pip install"})
        effects = [
            session.check("bash", {"command": f"b{n}"}, batch="m1").effect.value for n in range(20)
        ]
        assert effects == ["block"] * 20
        session.record(probe, result="installed")
        assert session.check("bash", {"command": "a"}).effect == "allow"


def test_an_agent_that_goes_on_without_a_probes_result_is_halted(tmp_path: Path) -> None:
    with Guard.load(policy(tmp_path / "p.yaml", LIMITS)) as guard:
        session = guard.session("s")
        for _ in range(3):
            _fail(session, "a")
        assert session.check("bash", {"command": "npm run dev"}).effect == "advise"
        beside = session.check("bash", {"command": "ls"})
        assert "a call of `bash` is being tried, and has no result yet" in beside.message
        effects = [_fail(session, f"b{n}") for n in range(60)]
    assert effects[:3] == ["block"] * 3
    assert "advise" in effects
    assert effects.index("halt") < 30


def test_an_agent_is_told_to_wait_for_a_probe_as_often_as_calls_may_fail(tmp_path: Path) -> None:
    with Guard.load(policy(tmp_path / "p.yaml", LIMITS)) as guard:
        session = guard.session("s")
        for _ in range(3):
            _fail(session, "a")
        assert session.check("bash", {"command": "npm run dev"}).effect == "advise"
        refused = [session.check("bash", {"command": f"b{n}"}) for n in range(6)]
    waits = ["is being tried" in decision.message for decision in refused]
    assert waits == [True, True, True, True, False, False]


SECOND = 10**9


@pytest.mark.parametrize(
    ("begun", "at", "waits"),
    [
        (10 * SECOND, 70 * SECOND, True),
        (10 * SECOND, 70 * SECOND + 1, False),
        (10 * SECOND, None, True),
        (None, 70 * SECOND, True),
        (None, None, True),
    ],
)
def test_without_times_a_recorded_probe_may_return_for_good(
    tmp_path: Path, begun: int | None, at: int | None, waits: bool
) -> None:
    path = policy(tmp_path / "p.yaml", f"bounds: {{unreported: 1m}}\n{LIMITS}")
    session = ReplayGuard(compile_policy(path)).start_session(SessionStarted("s", begun))
    for number in range(3):
        call = f"failing {number}"
        assert session.check(Admitted("s", begun, call, "bash", {"command": "a"})).allowed
        session.record(Completed("s", begun, call, ok=False, text="No module named 'yaml'"))
    probe = session.check(Admitted("s", begun, "probe", "bash", {"command": "b"}))
    assert probe.effect == "advise"
    beside = session.check(Admitted("s", at, "beside", "bash", {"command": "c"}))
    assert beside.effect == "block"
    assert ("is being tried" in beside.message) is waits


def test_a_probe_that_others_pushed_out_is_not_waited_for(tmp_path: Path) -> None:
    few = "bounds: {in_flight: 2}\n"
    with Guard.load(policy(tmp_path / "p.yaml", LIMITS + few)) as guard:
        session = guard.session("s")
        for _ in range(3):
            _fail(session, "a")
        assert session.check("bash", {"command": "npm run dev"}).effect == "advise"
        for number in range(2):
            assert session.check("look", {"n": number}).effect == "allow"
        beside = session.check("bash", {"command": "ls"})
    assert beside.effect == "block"
    assert "is being tried" not in beside.message


def test_calls_beside_a_probe_that_still_runs_do_not_halt_the_run(tmp_path: Path) -> None:
    with Guard.load(policy(tmp_path / "p.yaml", LIMITS)) as guard:
        session = guard.session("s")
        for _ in range(3):
            _fail(session, "a")
        effects: list[str] = []

        def run_beside() -> str:
            effects.extend(
                session.check("bash", {"command": f"b{n}"}).effect.value for n in range(40)
            )
            return "installed"

        session.run("bash", {"command": "pip install"}, run_beside)
        assert effects == ["block"] * 40
        assert session.check("bash", {"command": "a"}).effect == "allow"


def test_a_preview_is_no_probe(tmp_path: Path) -> None:
    with Guard.load(policy(tmp_path / "p.yaml", LIMITS)) as guard:
        session = guard.session("s")
        for _ in range(3):
            _fail(session, "a")
        assert [session.preview("bash", {"command": "b"}).effect for _ in range(3)] == [
            "advise"
        ] * 3
        assert session.check("bash", {"command": "b"}).effect == "advise"


def test_observe_mode_counts_what_it_would_have_refused(tmp_path: Path) -> None:
    with Guard.load(policy(tmp_path / "p.yaml", f"mode: observe\n{LIMITS}")) as guard:
        session = guard.session("s")
        would = []
        for n in range(12):
            decision = session.check("bash", {"command": f"try {n}"})
            would.append([violation.effect.value for violation in decision.would])
            session.record(decision, error="No module named 'yaml'")
    probe, refused = ["advise"], ["block"]
    assert would[:3] == [[], [], []]
    assert would[3:] == [
        probe, refused, probe, refused, refused, probe, refused, refused, refused,
    ]  # fmt: skip


@pytest.mark.parametrize("setting", ["refuse: tool", "until: session", "until: turn"])
def test_a_ban_for_a_tree_tries_no_call_of_another_session(tmp_path: Path, setting: str) -> None:
    limits = f"limits: {{default: {{failures: {{max: 1, count: tree, {setting}}}}}}}\n"
    with Guard.load(policy(tmp_path / "p.yaml", limits)) as guard:
        root = guard.session("root")
        children = [guard.session(name, parent=root) for name in ("a", "b")]
        assert _fail(children[0], "a") == "allow"
        effects = [_fail(one, f"{n}") for n, one in enumerate((root, children[1], root))]
    assert effects == ["block"] * 3


def test_one_probe_at_a_time_is_tried_for_a_tree(tmp_path: Path) -> None:
    limits = "limits: {default: {failures: {max: 2, count: tree}}}\n"
    with Guard.load(policy(tmp_path / "p.yaml", limits)) as guard:
        root = guard.session("root")
        child, other = (guard.session(name, parent=root) for name in ("child", "other"))
        assert [_fail(child, name) for name in "ab"] == ["allow"] * 2
        probe = other.check("bash", {"command": "c"})
        assert probe.effect == "advise"
        sessions = (other, root, child)
        effects = [one.check("bash", {"command": one.id}).effect for one in sessions]
        assert effects == ["block"] * 3
        other.record(probe, result="done")
        assert root.check("bash", {"command": "d"}).effect == "allow"


def test_a_limit_of_zero_tries_none_of_the_calls_that_it_only_observes(tmp_path: Path) -> None:
    limits = "mode: observe\nlimits: {default: {failures: {max: 0}}}\n"
    with Guard.load(policy(tmp_path / "p.yaml", limits)) as guard:
        session = guard.session("s")
        would = []
        for n in range(5):
            decision = session.check("bash", {"command": f"try {n}"})
            would += [violation.effect.value for violation in decision.would]
            session.record(decision, error="boom")
    assert would == ["block"] * 5
