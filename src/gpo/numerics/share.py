"""What a process holds of the sites when several share them, and how their sums are made one."""

from abc import ABC, abstractmethod

from torch import Tensor


class AbstractShare(ABC):
    """A part of all sites; those of other processes come before and after it."""

    is_whole = False
    """Whether there are no other processes."""

    @abstractmethod
    def sum(self, part: Tensor) -> Tensor:
        """Returns the sum of what all processes have; gradients go back to all of them."""

    @abstractmethod
    def gathered(self, part: Tensor, dim: int) -> Tensor:
        """Returns what all processes have, one after the other, without gradients.

        Args:
            part: Of the same shape everywhere but for the axis of sites.
            dim: The axis of sites.
        """

    @abstractmethod
    def starts(self, num_sites: int) -> list[int]:
        """Returns where the sites of every process begin among all, and last how many there are.

        Args:
            num_sites: How many are held here.
        """

    @property
    @abstractmethod
    def rank(self) -> int:
        """Which of the processes this one is."""


class Whole(AbstractShare):
    """One process that holds all sites."""

    is_whole = True

    def sum(self, part: Tensor) -> Tensor:
        """Returns the same."""
        return part

    def gathered(self, part: Tensor, dim: int) -> Tensor:
        """Returns the same."""
        return part

    def starts(self, num_sites: int) -> list[int]:
        """Returns zero and how many there are."""
        return [0, num_sites]

    @property
    def rank(self) -> int:
        """Zero."""
        return 0


WHOLE = Whole()
