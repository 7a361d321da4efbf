"""The pack `ml-training`: thirteen signatures, and bans that hold for a project."""

from __future__ import annotations

from typing import Any

import pytest

from policyguard import Guard, Session

DAY = 86400 * 10**9
OOM = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB"
DIVERGED = "step 120: loss is nan"


class World:
    """A guard with a clock."""

    def __init__(self, policy: str | tuple[str, ...] = "ml-training") -> None:
        self.now = 1_772_800_000 * 10**9
        self.guard = Guard.load(policy, clock=lambda: self.now)

    def session(self, name: str = "s", **given: Any) -> Session:
        return self.guard.session(name, project="search", **given)


def _train(session: Session, error: str | None, **args: Any) -> str:
    """Check and record one training; return its signature and blame, or `refused`."""
    decision = session.check("train", args)
    if not decision.allowed:
        return "refused"
    outcome = session.record(decision, result="val bpb 1.87", error=error).outcome
    return f"{outcome.signature} {outcome.blame}".strip()


def _allowed(session: Session, **args: Any) -> bool:
    return session.preview("train", args).allowed


@pytest.mark.parametrize(
    ("text", "signature"),
    [
        (OOM, "oom_gpu agent"),
        ("RuntimeError: HIP out of memory", "oom_gpu agent"),
        (DIVERGED, "training_divergence agent"),
        ("gradient overflow at step 3", "gradient_explosion unknown"),
        ("NCCL error in: x.cpp", "nccl_failure harness"),
        ("RuntimeError: size mismatch, m1: [1]", "tensor_shape_error agent"),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED", "cublas_error harness"),
        ("torch.compile failed", "compile_failure unknown"),
        ("IndentationError: unexpected indent", "code_syntax_error agent"),
        ("ModuleNotFoundError: No module named 'x'", "missing_import agent"),
        ("KeyError: 'x'", "runtime_crash agent"),
        ("Killed", "oom_killed harness"),
        ("training timed out", "timeout agent"),
        ("val bpb increased", "score_regression unknown"),
        ("strange", "unknown"),
        # First match wins.
        ("RuntimeError: NCCL timeout", "nccl_failure harness"),
        ("RuntimeError: CUDA out of memory, process Killed", "oom_gpu agent"),
        ("ValueError: timeout must be positive", "runtime_crash agent"),
    ],
)
def test_signatures(text: str, signature: str) -> None:
    assert _train(World().session(), text, depth=8) == signature


def test_out_of_memory_bans_larger_values_of_all_parameters() -> None:
    session = World().session()
    _train(session, OOM, depth=8, width=512, batch_size=32, lr=0.02)
    assert not _allowed(session, depth=8, width=512, batch_size=32, lr=0.01)
    assert not _allowed(session, depth=9, width=640, batch_size=64, lr=0.02)
    assert _allowed(session, depth=7, width=640, batch_size=64, lr=0.02)
    assert _allowed(session, depth=16, width=512, batch_size=16, lr=0.02)


@pytest.mark.parametrize(
    "names",
    [
        ("n_layer", "n_embd", "batch_size"),
        ("num_layers", "d_model", "micro_batch"),
        ("n_blocks", "hidden_size", "total_batch_size"),
        ("depth", "aspect_ratio"),
        ("depth", "embed_dim"),
    ],
)
def test_parameter_names(names: tuple[str, ...]) -> None:
    session = World().session()
    failed = dict.fromkeys(names, 32)
    _train(session, OOM, **failed)
    assert not _allowed(session, **dict.fromkeys(names, 33))
    for name in names:
        assert _allowed(session, **{**dict.fromkeys(names, 33), name: 31}), name


def test_calls_with_other_parameters_are_not_compared() -> None:
    """The default of a missing batch size is unknown."""
    session = World().session()
    _train(session, OOM, depth=8, width=512)
    assert _allowed(session, depth=8, width=512, batch_size=1)
    assert _allowed(session, depth=8)
    assert not _allowed(session, depth=9, width=512)


def test_successes_and_sessions_keep_the_ban() -> None:
    world = World()
    first = world.session("first", agent="one")
    _train(first, OOM, depth=8)
    assert _train(first, None, depth=6) == ""
    assert not _allowed(first, depth=8)
    later = world.session("later", agent="two")
    assert _train(later, None, depth=5) == ""
    assert not _allowed(later, depth=9)
    assert world.guard.session("x", project="another").preview("train", {"depth": 9}).allowed


def test_ban_holds_for_one_gpu() -> None:
    world = World()
    _train(world.session("l4", tags={"gpu": "L4"}), OOM, depth=8)
    assert _allowed(world.session("h100", tags={"gpu": "H100"}), depth=8)
    assert not _allowed(world.session("l4 again", tags={"gpu": "L4"}), depth=8)


def test_other_tools_are_not_banned() -> None:
    session = World().session()
    _train(session, OOM, depth=8)
    assert session.preview("estimate_cost", {"depth": 8}).allowed


def test_success_inside_the_ban_shrinks_it() -> None:
    world = World()
    session = world.session()
    _train(session, OOM, depth=8)
    _train(session, OOM, depth=7)
    world.now += 15 * DAY
    assert _train(session, None, depth=7) == ""
    [boundary] = world.guard._state.constraint_set
    assert boundary.points == ({"depth": 8},), "the other was refuted"
    assert _train(session, OOM, depth=8) == "oom_gpu agent"
    assert not _allowed(session, depth=8)
    assert _allowed(session, depth=7)


def test_old_ban_admits_a_probe() -> None:
    world = World()
    session = world.session()
    _train(session, OOM, depth=8)
    world.now += 14 * DAY - 1
    assert not _allowed(session, depth=8)
    world.now += 1
    assert _train(session, OOM, depth=8) == "oom_gpu agent"
    assert not _allowed(session, depth=8)


def test_two_divergences_ban_larger_learning_rates() -> None:
    session = World().session()
    _train(session, DIVERGED, learning_rate=0.1, depth=4)
    assert _allowed(session, learning_rate=0.1, depth=6)
    _train(session, DIVERGED, learning_rate=0.08, depth=6)
    assert not _allowed(session, learning_rate=0.1, depth=2)
    assert not _allowed(session, learning_rate=0.5, depth=2)
    assert _allowed(session, learning_rate=0.08, depth=6), "it failed only once"
    assert _allowed(session, learning_rate=0.01, depth=6)


def test_code_errors_ban_in_their_session_only() -> None:
    world = World()
    first = world.session("first")
    _train(first, "KeyError: 'x'", depth=4)
    _train(first, "KeyError: 'x'", depth=4)
    assert not _allowed(first, depth=4)
    assert _allowed(world.session("later"), depth=4)


@pytest.mark.parametrize("text", ["Killed", "NCCL error", "CUBLAS_STATUS_ALLOC_FAILED"])
def test_harness_failures_teach_nothing(text: str) -> None:
    world = World()
    session = world.session()
    for _ in range(10):
        _train(session, text, depth=8, lr=0.1)
    assert _allowed(session, depth=8, lr=0.1)
    assert not list(world.guard._state.constraint_set)


def test_with_core() -> None:
    session = World(("core", "ml-training")).session()
    assert _train(session, OOM, depth=8) == "oom_gpu agent"
    assert not _allowed(session, depth=9)
    assert _train(session, "command not found", depth=2) == "command_not_found agent"


def test_classes_compare_with_the_previous_proposal() -> None:
    events: list[Any] = []
    session = Guard.load("packs/ml-training", listener=events.append).session("s")
    proposal: dict[str, Any] = {
        "n_embd": 64,
        "n_layer": 4,
        "lr": 0.1,
        "batch_size": 8,
        "optimizer": "adam",
        "attention_type": "full",
    }
    changes: list[tuple[dict[str, Any], str]] = [
        ({}, ""),
        ({"n_embd": 128}, "scale_up_width"),
        ({"n_layer": 6}, "scale_up_depth"),
        ({"n_embd": 64}, "scale_down"),
        ({"lr": 0.2}, "lr_increase"),
        ({"lr": 0.05}, "lr_decrease"),
        ({"batch_size": 16.5}, "batch_size_increase"),
        ({"attention_type": "flash"}, "architecture_swap"),
        ({"optimizer": "sgd"}, "optimizer_change"),
        ({"lr": "fast"}, ""),
        ({"n_layer": 2, "n_embd": 256}, "scale_up_width"),
    ]
    for change, expected in changes:
        proposal = {**proposal, **change}
        session.check("train", proposal)
        assert events[-1].class_ == expected, change
    session.check("evaluate", proposal)
    assert events[-1].class_ == "", "another tool has a previous call of its own"
