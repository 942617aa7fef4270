"""Old place of :mod:`agents.supervised.networks`; imports from here keep working."""

from agents.supervised.networks import (
    NETWORKS,
    FeatureNetwork,
    FullyConnected,
    ResNet18,
    make_network,
)

__all__ = ["NETWORKS", "FeatureNetwork", "FullyConnected", "ResNet18", "make_network"]
