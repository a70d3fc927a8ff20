"""The loss of eq. 10 sends each gradient where the paper says, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cirf.codebook import vqvae
from cirf.codebook.vqvae import VQVAE, EncodedRows, FeedForward, Gradient


@pytest.fixture
def model() -> VQVAE:
    made = VQVAE(8, 12, 5, 4, torch.Generator().manual_seed(0))
    with torch.no_grad():
        made.codes.copy_(torch.randn(4, 5, generator=torch.Generator().manual_seed(1)))
    return made


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(2)), torch.tensor([0, 1, 1, 2, 0, 2])


def _reached(model: VQVAE, loss: torch.Tensor) -> set[str]:
    model.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    named = {name.split(".")[0]: parameter.grad for name, parameter in model.named_parameters()}
    return {name for name, gradient in named.items() if gradient is not None and gradient.abs().sum() > 0}


def test_gradients_are_the_same_to_the_bit_on_several_threads() -> None:
    draw = torch.Generator().manual_seed(3)
    model, batch = VQVAE(64, 128, 576, 16, draw), torch.randn(128, 64, generator=draw)
    assigned = torch.randint(16, (128,), generator=draw)
    threads = torch.get_num_threads()
    found = []
    try:
        for count in (1, *[4] * 20):
            torch.set_num_threads(count)
            model.zero_grad(set_to_none=True)
            model.losses(batch, assigned, "straight_through").codebook.backward()  # type: ignore[no-untyped-call]
            assert model.codes.grad is not None
            found.append(model.codes.grad)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(found[0], gradient) for gradient in found[1:])


@pytest.mark.parametrize("gradient", ["straight_through", "decoder_only"])
def test_each_term_moves_its_own_part(model: VQVAE, batch: tuple[torch.Tensor, torch.Tensor], gradient: Gradient) -> None:
    assert _reached(model, model.losses(*batch, gradient).codebook) == {"codes"}
    assert _reached(model, model.losses(*batch, gradient).commitment) == {"encoder"}
    through = {"encoder"} if gradient == "straight_through" else set()
    assert _reached(model, model.losses(*batch, gradient).reconstruction) == {"decoder"} | through
    assert _reached(model, model.reconstruction(batch[0])) == {"encoder", "decoder"}


def test_the_straight_through_gradient_is_the_decoders_at_the_code(
    model: VQVAE, batch: tuple[torch.Tensor, torch.Tensor]
) -> None:
    vectors, assigned = batch
    model.losses(vectors, assigned, "straight_through").reconstruction.backward()  # type: ignore[no-untyped-call]
    q = model.codes[assigned].detach().requires_grad_()
    loss = (model.decoder(q) - vectors).square().sum(dim=1).mean()
    (at_code,) = torch.autograd.grad(loss, q)
    x = model.encoder(vectors)
    (wanted,) = torch.autograd.grad(x, model.encoder.second.weight, at_code)
    torch.testing.assert_close(model.encoder.second.weight.grad, wanted)


def test_the_terms_are_those_of_the_paper(model: VQVAE, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    vectors, assigned = batch
    found = model.requires_grad_(False).losses(vectors, assigned, "straight_through")
    reconstruction = gap = 0.0
    for z, a in zip(vectors, assigned, strict=True):
        reconstruction += ((model.decoder(model.codes[a]) - z) ** 2).sum().item() / 6
        gap += ((model.encoder(z) - model.codes[a]) ** 2).sum().item() / 6
    assert float(found.reconstruction) == pytest.approx(reconstruction, rel=1e-5)
    assert float(found.codebook) == float(found.commitment) == pytest.approx(gap, rel=1e-5)
    assert float(found.total(0.25)) == pytest.approx(reconstruction + 1.25 * gap, rel=1e-5)
    plain = model.losses(vectors, assigned, "decoder_only").total(0.25)
    assert float(plain) == pytest.approx(float(found.total(0.25)), rel=1e-5)


def test_beta_weighs_the_commitment_alone(model: VQVAE, batch: tuple[torch.Tensor, torch.Tensor]) -> None:
    found = model.losses(*batch, "straight_through")

    def gradients(loss: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(loss, [model.codes, model.encoder.first.weight], retain_graph=True, allow_unused=True)

    codes, encoder = gradients(found.total(0.25))
    torch.testing.assert_close(codes, gradients(found.codebook)[0])
    torch.testing.assert_close(encoder, gradients(found.reconstruction)[1] + 0.25 * gradients(found.commitment)[1])


def test_encoder_and_decoder_are_mirror_images_with_a_tanh_between() -> None:
    model = VQVAE(8, 12, 5, 4, torch.Generator().manual_seed(0))
    assert [tuple(p.shape) for p in model.encoder.parameters()] == [(12, 8), (12,), (5, 12), (5,)]
    assert [tuple(p.shape) for p in model.decoder.parameters()] == [(12, 5), (12,), (8, 12), (8,)]
    z = torch.randn(3, 8, generator=torch.Generator().manual_seed(1))
    first, second = model.encoder.first, model.encoder.second
    wanted = torch.tanh(z @ first.weight.T + first.bias) @ second.weight.T + second.bias
    torch.testing.assert_close(model.encoder(z), wanted)


def test_first_weights_come_from_the_generator_alone() -> None:
    state = torch.random.get_rng_state()
    one, two = (FeedForward(4, 6, 3, torch.Generator().manual_seed(7)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert not torch.equal(one.first.weight, FeedForward(4, 6, 3, torch.Generator().manual_seed(8)).first.weight)


def test_encoding_in_pieces_changes_nothing(model: VQVAE, monkeypatch: pytest.MonkeyPatch) -> None:
    z = torch.randn(23, 8, generator=torch.Generator().manual_seed(1))
    monkeypatch.setattr(vqvae, "PIECE", 5)
    encoded = EncodedRows(model.encoder, z.numpy())
    torch.testing.assert_close(torch.cat(list(encoded.pieces())), model.encoder(z))
    rows = np.array([4, 0, 5, 4])
    assert torch.equal(encoded.take(rows), torch.cat(list(encoded.pieces()))[torch.from_numpy(rows)])


def test_centred_steps_stay_centred_in_the_codes_space() -> None:
    """An encoder that adds an offset to every step would make all codes, and so all functional tokens, point one way."""
    steps = torch.randn(400, 16, generator=torch.Generator().manual_seed(0)) * 0.2
    steps -= steps.mean(dim=0)
    encoder = VQVAE(16, 64, 12, 4, torch.Generator().manual_seed(1)).encoder
    encoded = torch.cat(list(EncodedRows(encoder, steps.numpy()).pieces()))
    bias_share = encoded.mean(dim=0).norm() / encoded.norm(dim=1).mean()
    assert bias_share < 0.1


@given(seed=st.integers(0, 2**31), rows=st.integers(1, 12), size=st.integers(1, 6), width=st.integers(1, 5))
@settings(max_examples=20)
def test_the_terms_of_any_batch(seed: int, rows: int, size: int, width: int) -> None:
    """Codebook and commitment are one number, never negative, and zero where every step is its code; the order of rows does not
    count; only codes that are used move, and by the mean way from their steps."""
    draw = torch.Generator().manual_seed(seed)
    model, batch = VQVAE(4, 6, width, size, draw), torch.randn(rows, 4, generator=draw)
    with torch.no_grad():
        model.codes.copy_(torch.randn(size, width, generator=draw))
    assigned = torch.randint(size, (rows,), generator=draw)
    found = model.losses(batch, assigned, "straight_through")
    assert float(found.codebook.detach()) == float(found.commitment.detach()) >= 0 <= float(found.reconstruction.detach())
    order = torch.randperm(rows, generator=draw)
    for term in ("reconstruction", "codebook", "commitment"):
        torch.testing.assert_close(
            getattr(model.losses(batch[order], assigned[order], "decoder_only"), term), getattr(found, term)
        )
    found.codebook.backward()  # type: ignore[no-untyped-call]
    wanted = torch.zeros_like(model.codes)
    with torch.no_grad():
        for z, a in zip(model.encoder(batch), assigned, strict=True):
            wanted[a] += 2 * (model.codes[a] - z) / rows
        assert model.codes.grad is not None
        torch.testing.assert_close(model.codes.grad, wanted)
        model.codes.copy_(model.encoder(batch[:1]).expand(size, -1))
        assert float(model.losses(batch[:1], assigned[:1], "straight_through").codebook) == pytest.approx(0, abs=1e-10)
