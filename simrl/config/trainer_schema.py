"""The trainer: its layout and how a step's time is estimated."""

from __future__ import annotations

from dataclasses import dataclass

from simrl.config.ranges import ConfigError, at_least, fraction, more_than, one_of

TRAINER_BACKENDS = ("fsdp", "megatron")
BALANCES = ("verl_v1", "verl_legacy", "per_mini_batch", "round_robin")
SYNC_BACKENDS = ("nccl", "checkpoint_engine", "cuda_ipc", "disk", "rpc")


@dataclass(frozen=True)
class TrainerConfig:
    """The training side: its parallel layout, and how the time of a step and of a weight sync is estimated."""

    name: str
    tensor_parallel: int = 2
    pipeline_parallel: int = 3
    data_parallel: int = 1
    cost: str = "flops"
    """flops (from the model, MFU and pipeline bubble) | fitted (from the two coefficients below) | passes (from the
    products, attention, memory traffic, dealing and communication of every pass)."""
    mfu: float | None = None
    """MFU of a micro-batch, bubble left out; null takes hardware.training_efficiency."""
    micro_batch_size: int = 1
    """Trajectories in a micro-batch."""
    activation_recompute: bool = False
    """Whether the backward pass runs the forward pass again."""
    fitted_per_token_s: float = 8.13e-05
    """cost: fitted; log-prob and update together, s per token."""
    fitted_per_squared_token_s: float = 5.941e-09
    """cost: fitted; s per token squared (sum over trajectories)."""
    fitted_logprob_share: float = 0.25
    """cost: fitted; log-prob's share of the step; framework.logprob_recompute=false leaves it out."""
    weight_sync_s: float | None = None
    """Time the engines stand still for new weights, s; null computes it from weights and weight_sync_backend."""
    weight_sync_backend: str = "nccl"
    """nccl | checkpoint_engine | cuda_ipc | disk | rpc: how new weights reach the engines."""
    weight_sync_base_s: float | None = None
    """Constant part of a weight sync, s; null takes the backend's."""
    weight_sync_bytes_per_s: float | None = None
    """Rate of a weight sync, bytes/s; null takes the backend's. It differs by cluster and version."""
    # --- cost: passes
    backend: str = "megatron"
    """fsdp | megatron: how weights, gradients and optimizer are split."""
    context_parallel: int = 1
    """Accelerators that share a sequence (ring attention)."""
    sequence_parallel: int = 1
    """Accelerators that share a sequence (Ulysses)."""
    expert_parallel: int = 1
    """Data-parallel accelerators that share the experts."""
    virtual_stages: int = 1
    """Parts of a pipeline stage that are interleaved."""
    mini_batches: int = 1
    """Updates that a batch is split into."""
    balance: str = "verl_v1"
    """verl_v1 | verl_legacy | per_mini_batch | round_robin: how trajectories are dealt to ranks."""
    max_tokens_per_gpu: int | None = None
    """Tokens a micro-batch is filled up to, of one accelerator's share; null fills by micro_batch_size."""
    logprob_max_tokens_per_gpu: int | None = None
    """The same for the passes without gradients; null takes max_tokens_per_gpu."""
    update_overhead_s: float = 0.25
    """Time of an update outside its passes, s."""
    pass_scale: float = 1.0
    """Multiplies the computing of every pass: the one constant of a hardware and backend."""
    tensor_exposed: float = 0.7
    """Share of tensor-parallel communication that computing does not hide."""
    fsdp_exposed: float | None = None
    """Share of FSDP's communication that computing does not hide; null hides what it can in dense models, none in
    models with experts."""
    reference_pass: bool = False
    """Whether a reference model's log-probs are computed too."""
    optimizer_offload: bool = False
    """Whether the optimizer's state is kept on the host between steps."""
    parameter_offload: bool = False
    """Whether the parameters are kept on the host outside the trainer's passes."""
    logit_chunk_tokens: int | None = None
    """Tokens whose logits are in memory at a time; null holds those of a whole micro-batch."""
    reserved_bytes: float = 4294967296.0
    """Device memory the trainer's process needs beside the model, bytes."""

    def __post_init__(self) -> None:
        check_trainer(self)

    @property
    def gpus(self) -> int:
        """Accelerators the trainer occupies."""
        shared = self.tensor_parallel * self.pipeline_parallel * self.context_parallel * self.sequence_parallel
        return shared * self.data_parallel


def check_trainer(trainer: TrainerConfig) -> None:
    """Refuse a layout without ranks, and costs that are negative or no shares."""
    for key in ("tensor_parallel", "pipeline_parallel", "data_parallel", "micro_batch_size"):
        at_least(f"trainer.{key}", getattr(trainer, key), 1)
    one_of("trainer.cost", trainer.cost, ("flops", "fitted", "passes"))
    check_passes(trainer)
    fraction("trainer.mfu", trainer.mfu)
    at_least("trainer.fitted_per_token_s", trainer.fitted_per_token_s, 0)
    at_least("trainer.fitted_per_squared_token_s", trainer.fitted_per_squared_token_s, 0)
    if not 0 <= trainer.fitted_logprob_share < 1:
        raise ConfigError("trainer.fitted_logprob_share", trainer.fitted_logprob_share, "must be in [0, 1)")
    at_least("trainer.weight_sync_s", trainer.weight_sync_s, 0)
    one_of("trainer.weight_sync_backend", trainer.weight_sync_backend, SYNC_BACKENDS)
    at_least("trainer.weight_sync_base_s", trainer.weight_sync_base_s, 0)
    more_than("trainer.weight_sync_bytes_per_s", trainer.weight_sync_bytes_per_s, 0)


def check_passes(trainer: TrainerConfig) -> None:
    """Refuse what a trainer whose passes are timed one by one cannot do."""
    one_of("trainer.backend", trainer.backend, TRAINER_BACKENDS)
    one_of("trainer.balance", trainer.balance, BALANCES)
    for key in ("context_parallel", "sequence_parallel", "expert_parallel", "virtual_stages", "mini_batches"):
        at_least(f"trainer.{key}", getattr(trainer, key), 1)
        if trainer.cost != "passes" and getattr(trainer, key) > 1:
            raise ConfigError(
                f"trainer.{key}",
                getattr(trainer, key),
                f"trainer.cost={trainer.cost} does not know it; choose trainer=fsdp or trainer=megatron_lm",
            )
    for key in ("max_tokens_per_gpu", "logprob_max_tokens_per_gpu", "logit_chunk_tokens"):
        at_least(f"trainer.{key}", getattr(trainer, key), 1)
    at_least("trainer.update_overhead_s", trainer.update_overhead_s, 0)
    more_than("trainer.pass_scale", trainer.pass_scale, 0)
    fraction("trainer.tensor_exposed", trainer.tensor_exposed)
    if trainer.fsdp_exposed is not None and not 0 <= trainer.fsdp_exposed <= 1:
        raise ConfigError("trainer.fsdp_exposed", trainer.fsdp_exposed, "must be 0 to 1")
    at_least("trainer.reserved_bytes", trainer.reserved_bytes, 0)
