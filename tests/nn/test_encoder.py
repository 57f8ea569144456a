import pytest
import torch
from torch import nn

from rankhouse.core.errors import WrongUse
from rankhouse.nn.layers.tk_encoder import OuterEpsNorm, TKEncoder, sinusoids


def test_attention_first_equals_the_usual_transformer():
    torch.manual_seed(0)
    ours = TKEncoder(12, heads=3, inner=12, feed_forward=7, layers=1, order="attention-first")
    usual = nn.TransformerEncoderLayer(12, 3, 7, dropout=0.0, batch_first=True)
    layer = ours.layers[0]
    layer.load_state_dict(
        {
            "attention.project.weight": usual.self_attn.in_proj_weight,
            "attention.project.bias": usual.self_attn.in_proj_bias,
            "attention.out.weight": usual.self_attn.out_proj.weight,
            "attention.out.bias": usual.self_attn.out_proj.bias,
            "widen.weight": usual.linear1.weight,
            "widen.bias": usual.linear1.bias,
            "narrow.weight": usual.linear2.weight,
            "narrow.bias": usual.linear2.bias,
            "norm_attention.weight": usual.norm1.weight,
            "norm_attention.bias": usual.norm1.bias,
            "norm_feed.weight": usual.norm2.weight,
            "norm_feed.bias": usual.norm2.bias,
        }
    )
    x = torch.randn(2, 5, 12)
    mask = torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    theirs = usual(x + sinusoids(5, 12), src_key_padding_mask=~mask)
    torch.testing.assert_close(ours(x, mask)[mask], theirs[mask], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("order", ["ff-first", "attention-first"])
def test_padding_changes_nothing_and_empty_texts_are_safe(order):
    torch.manual_seed(1)
    encoder = TKEncoder(8, heads=2, inner=4, feed_forward=6, layers=2, order=order)
    x = torch.randn(1, 3, 8)
    alone = encoder(x, torch.ones(1, 3, dtype=torch.bool))
    wide = torch.cat([x, torch.full((1, 4, 8), 9.0)], dim=1)
    padded = encoder(wide, torch.arange(7)[None] < 3)
    torch.testing.assert_close(padded[:, :3], alone, rtol=1e-5, atol=1e-6)
    empty = torch.zeros(1, 2, 8, requires_grad=True)
    out = encoder(empty, torch.zeros(1, 2, dtype=torch.bool))
    out.sum().backward()
    assert torch.isfinite(out).all()
    assert torch.isfinite(empty.grad).all()


def test_the_norm_divides_by_the_deviation_and_no_variance_is_safe():
    norm = OuterEpsNorm(6)
    with torch.no_grad():
        norm.weight.uniform_(-1, 1)
        norm.bias.uniform_(-1, 1)
    x = torch.randn(4, 6)
    x[3] = 2.5
    x[2] *= 1e-4
    x.requires_grad_()
    made = norm(x)
    std = x.std(1, correction=0, keepdim=True) + 1e-6
    torch.testing.assert_close(made, norm.weight * (x - x.mean(1, keepdim=True)) / std + norm.bias)
    torch.testing.assert_close(made[3], norm.bias)
    made.sum().backward()
    assert torch.isfinite(x.grad).all()


def test_odd_widths_end_in_a_column_of_zeros():
    positions = sinusoids(4, 7)
    assert positions.shape == (4, 7)
    assert not positions[:, 6].any()
    assert positions[0, 3:6].tolist() == [1, 1, 1]


def test_heads_must_share_the_columns_evenly():
    with pytest.raises(WrongUse, match="3 heads cannot share 4 columns"):
        TKEncoder(8, heads=3, inner=4, feed_forward=6, layers=1, order="ff-first")
    with pytest.raises(WrongUse, match='order="first" is not known'):
        TKEncoder(8, heads=2, inner=4, feed_forward=6, layers=1, order="first")
