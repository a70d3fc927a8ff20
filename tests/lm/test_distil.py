"""Self-distillation: the distance between student and teacher, where gradients stop, and that a batch is its rows."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from cirf.lm.training.batches import Feature
from cirf.methods.latent.loop import Projector, read_after
from cirf.methods.latent.loss import Distillation, LatentObjective, at, distance, teach

KINDS = ["llama", "qwen2", "gpt2"]
ROWS = [  # prompts of unlike lengths, answers of one to three tokens behind one or two of an anchor
    Feature((5, 9, 30, 41, 90, 91, 50, 20, 21), 7, 7, (None), (5, 3), Feature((5, 9, 30, 41, 60, 61, 62, 50, 20, 21), 4, 8)),
    Feature((7, 90, 91, 50, 22, 23, 24, 25), 4, 5, (None), (2, 3), Feature((7, 50, 22, 23, 24, 25), 1, 3)),
    Feature(
        (70, 71, 72, 73, 74, 75, 90, 91, 50, 26, 27),
        9,
        9,
        (None),
        (7, 3),
        Feature((70, 71, 72, 73, 74, 75, 65, 50, 26, 27), 6, 8),
    ),
]


def objective(gamma: float = 20.0, rho: float = 1.0) -> Distillation:
    return Distillation(Projector(32, 24, 1), gamma, rho)


def states(model: Any, rows: list[Feature], made: Distillation) -> tuple[torch.Tensor, torch.Tensor, Any, torch.Tensor]:
    """The student's and the teacher's states where they meet, the student's pass and the teacher's loss."""
    batch = made.collate(rows, 0)
    student = read_after(model, made.think(model, batch), batch["input_ids"], batch["tail_mask"], batch["labels"], states=True)
    assert student.states is not None
    taught, theirs = teach(model, batch["teacher"], batch["taught"], batch["taught_column"])
    return torch.stack(at(student.states, batch["column"])), torch.stack(theirs), student, taught


@pytest.mark.parametrize("kind", KINDS)
def test_they_meet_where_each_predicts_the_answers_first_token(tiny: Any, kind: str) -> None:
    """The last layer's state is what the head makes the logits of that token of."""
    model = tiny.build_model(kind, tied=False)
    with torch.no_grad():
        ours, theirs, student, _ = states(model, ROWS, objective())
        assert ours.shape == theirs.shape == (3, 3, 32)  # two layers and the embeddings
        counts = [len(row.ids) - row.start for row in ROWS]
        places = [sum(counts[:row]) + ROWS[row].answer - ROWS[row].start for row in range(3)]  # type: ignore[operator]
        assert [int(student.targets[place]) for place in places] == [20, 23, 26]
        torch.testing.assert_close(model.get_output_embeddings()(ours[-1]), student.logits[places], atol=1e-4, rtol=1e-4)
        for row, feature in enumerate(ROWS):
            teacher = feature.teacher
            assert teacher is not None and teacher.answer is not None
            wanted = model(torch.tensor([teacher.ids])).logits[0, teacher.answer - 1]
            torch.testing.assert_close(model.get_output_embeddings()(theirs[-1, row]), wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_alone_is_the_row_in_a_padded_batch(tiny: Any, kind: str) -> None:
    model, made = tiny.build_model(kind, tied=False), objective()
    with torch.no_grad():
        ours, theirs, student, taught = states(model, ROWS, made)
        total, learned = 0.0, 0
        for place, row in enumerate(ROWS):
            own, their, _, loss = states(model, [row], made)
            torch.testing.assert_close(ours[:, place], own[:, 0], atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(theirs[:, place], their[:, 0], atol=1e-4, rtol=1e-4)
            assert row.teacher is not None
            count = len(row.teacher.ids) - row.teacher.start
            total, learned = total + float(loss) * count, learned + count
        torch.testing.assert_close(float(taught), total / learned, atol=1e-4, rtol=1e-4)
        losses = torch.nn.functional.cross_entropy(student.logits, student.targets, reduction="sum")
        alone_losses = [
            LatentObjective(made.projector).loss(model, made.collate([dataclasses.replace(row, teacher=None)], 0), 1)
            for row in ROWS
        ]
        torch.testing.assert_close(losses, torch.stack(alone_losses).sum(), atol=1e-4, rtol=1e-4)


def test_the_loss_is_its_three_parts_as_they_are_weighed(tiny: Any) -> None:
    model, made = tiny.build_model("llama", tied=False), objective(7.0, 0.5)
    with torch.no_grad():
        ours, theirs, student, taught = states(model, ROWS, made)
        near = torch.nn.functional.cross_entropy(student.logits, student.targets)
        layers = [
            torch.nn.functional.smooth_l1_loss(ours[layer], theirs[layer]) / theirs[layer].std() for layer in range(len(ours))
        ]
        apart = sum(layers) / len(layers)
        batch = made.collate(ROWS, 0)
        torch.testing.assert_close(made.loss(model, batch, None), near + 7.0 * apart + 0.5 * taught)
        count = int(student.targets.numel())
        torch.testing.assert_close(made.loss(model, batch, 3 * count) * 3, made.loss(model, batch, None))  # a third of an update
        assert float(apart) > 0.01


def test_no_distance_between_like_states_and_no_gradient_to_the_teacher() -> None:
    torch.manual_seed(0)
    teacher, student = (torch.randn(3, 4, 8, requires_grad=True) for _ in range(2))
    assert float(distance(teacher.detach().clone(), teacher)) == 0.0
    distance(student, teacher).backward()
    assert teacher.grad is None and student.grad is not None and bool(student.grad.abs().sum(dim=(1, 2)).gt(0).all())


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_of_the_distance_nothing_reaches_what_only_the_teacher_reads(tiny: Any, kind: str) -> None:
    """Its rationale's words get gradients from its own loss alone; the question and the net get them from the distance."""
    words, question = [60, 61, 62, 65], [5, 9, 30, 41]

    def gradients(gamma: float, rho: float) -> tuple[torch.Tensor, list[torch.Tensor]]:
        model, made = tiny.build_model(kind, tied=False), objective(gamma, rho)
        parts = made.parts(model, made.collate(ROWS, 0), None)[0]
        plain = LatentObjective(made.projector)
        own = plain.loss(model, made.collate([dataclasses.replace(row, teacher=None) for row in ROWS], 0), None)
        (parts - own).backward()  # without the student's own
        assert made.projector is not None
        given = [weight.grad for weight in made.projector.parameters() if weight.grad is not None]
        return model.get_input_embeddings().weight.grad, given

    rows, net = gradients(20.0, 0.0)
    assert not rows[words].any() and rows[question].abs().sum(dim=1).gt(1e-6).all()
    assert any(bool(weight.abs().max() > 1e-4) for weight in net)
    rows, net = gradients(0.0, 1.0)
    assert rows[words].abs().sum(dim=1).gt(1e-6).all() and all(float(weight.abs().max()) < 1e-4 for weight in net)


@pytest.mark.parametrize(("gamma", "rho", "teachers"), [(20.0, 1.0, 1), (20.0, 0.0, 1), (0.0, 1.0, 1)])
def test_the_teacher_is_passed_once_and_with_gradients_only_for_its_own_loss(
    tiny: Any, gamma: float, rho: float, teachers: int
) -> None:
    model, made, seen = tiny.build_model("llama", tied=False), objective(gamma, rho), []

    def watch(module: Any, args: Any, summary: dict[str, Any], out: Any) -> None:
        seen.append(
            (
                summary.get("past_key_values") is not None or summary["use_cache"],
                out.logits.requires_grad,
                summary["output_hidden_states"],
            )
        )

    model.register_forward_hook(watch, with_kwargs=True)
    made.loss(model, made.collate(ROWS, 0), None)
    cached = [row for row in seen if row[0]]
    assert len(cached) == 3 + 2 and [row[1:] for row in seen if not row[0]] == [(rho > 0, True)] * teachers
    assert cached[-1][2] == (gamma > 0)


def test_without_teachers_it_is_the_loss_of_thoughts_alone(tiny: Any) -> None:
    model, made = tiny.build_model("llama", tied=False), objective()
    rows = [dataclasses.replace(row, teacher=None) for row in ROWS]
    with torch.no_grad():
        assert torch.equal(
            made.loss(model, made.collate(rows, 0), 5), LatentObjective(made.projector).loss(model, made.collate(rows, 0), 5)
        )
        together = made.logits(model, made.collate(ROWS, 0))[0]  # as validation does
        torch.testing.assert_close(together, made.logits(model, made.collate(rows, 0))[0])


def test_without_thoughts_the_student_still_meets_its_teacher(tiny: Any) -> None:
    model, made = tiny.build_model("gpt2", tied=False), Distillation(None, 20.0, 1.0)
    rows = [
        Feature((5, 9, 30, 41, 50, 20, 21), 5, 5, teacher=ROWS[0].teacher),
        Feature((7, 50, 22, 23, 24, 25), 1, 3, teacher=Feature((7, 50, 22, 23, 24, 25), 1, 3)),
    ]
    with torch.no_grad():
        ours, theirs, _, _ = states(model, rows, made)
        torch.testing.assert_close(ours[:, 1], theirs[:, 1], atol=1e-4, rtol=1e-4)  # the same sequence
        assert (ours[1:, 0] - theirs[1:, 0]).abs().max() > 0.1
