"""Jobs that are paid through Masumi: its payment service as an escrow."""

from outlive.jobs.masumi.escrow import MasumiEscrow, input_hash, output_hash
from outlive.jobs.masumi.states import ACTIONS, STATES, standing_of

__all__ = ["ACTIONS", "STATES", "MasumiEscrow", "input_hash", "output_hash", "standing_of"]
