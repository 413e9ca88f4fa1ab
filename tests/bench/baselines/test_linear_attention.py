import pytest
import torch

from gpo_bench.baselines.transformer import LinearAttention
from tests.bench.baselines.point_models import linear_attention_loop, strengthen


@pytest.mark.parametrize("divisor", ["count", "mass"])
def test_attention_equals_the_plain_loop(divisor):
    layer = strengthen(LinearAttention((2, 4), divisor=divisor))
    queries, sources = torch.randn(2, 2, 6, 8, dtype=torch.float64)
    fast = layer(queries, sources, torch.ones(2, 6, dtype=torch.bool))
    for sample in range(2):
        slow = linear_attention_loop(layer, queries[sample], sources[sample])
        torch.testing.assert_close(fast[sample], slow, rtol=1e-10, atol=1e-12)
