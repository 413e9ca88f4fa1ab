"""The paper's ablation "without Gaussian field": a plain MLP in place of particles."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import softplus

from gpo.model.abstract_encoder import AbstractEncoder, Described
from gpo.model.config import OperatorConfig
from gpo.model.latent import AbstractLatent
from gpo.model.silence import Silence
from gpo.numerics.domain import Domain
from gpo.numerics.neighbours import Neighbours


@dataclass(frozen=True)
class PlainLatent(AbstractLatent):
    """Features with no geometry: what a site holds is the same wherever it is evaluated."""

    features: Float[Tensor, "batch points gaussians"]

    def basis(
        self, coords: Float[Tensor, "#batch points dim"], domain: Domain
    ) -> Float[Tensor, "batch points gaussians"]:
        """Returns the features."""
        return self.features

    def descriptor(self, domain: Domain) -> Float[Tensor, "batch points 0"]:
        """Returns nothing: windows see the basis alone."""
        return self.features[..., :0]

    def blend(self, neighbours: Neighbours, domain: Domain) -> "PlainLatent":
        """Interpolates the features."""
        return PlainLatent(neighbours.blend(neighbours.gather(self.features)))

    def silenced(self, silence: Silence) -> "PlainLatent":
        """Returns the same features, zero at silent sites and where silent themselves."""
        return PlainLatent(silence.of_sites(self.features))


class PlainEncoder(AbstractEncoder):
    """As deep as the particle encoder's three heads; positive, so that mass keeps its meaning."""

    def __init__(self, config: OperatorConfig) -> None:
        super().__init__(config)
        hidden = config.hidden_dim
        self.layers = nn.Sequential(
            nn.Linear(self.num_described, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, config.num_gaussians),
        )

    def read(self, described: Described, coords: Float[Tensor, "#batch points dim"]) -> PlainLatent:
        """Returns the features of sites that were described already."""
        first, *others = self.layers
        assert isinstance(first, nn.Linear)
        hidden = described.through(first)
        for layer in others:
            hidden = layer(hidden)
        return PlainLatent(softplus(hidden))
