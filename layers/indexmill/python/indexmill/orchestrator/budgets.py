"""Budgets of jobs: the bounds that hold for one, and whether it exceeds them after a stage. Pure."""

from __future__ import annotations

from indexmill.contracts.content import ChunkSettings
from indexmill.contracts.cost import Budget, Prices, Spent
from indexmill.orchestrator.stages.output import Output
from indexmill.platform.quotas import Quota


def effective(asked: Budget | None, quota: Quota) -> Budget | None:
    """Return a job's budget: what was asked for, and never more than its caller's quota allows."""
    own = Budget(max_chunks=quota.job_chunks, max_bytes=quota.job_bytes, max_cost_usd=quota.job_cost)
    return own.within(asked or Budget())


def excess(budget: Budget, output: Output, spent_usd: float, prices: Prices) -> str | None:
    """Return which bound the job exceeds after a stage, for people; None when it is within all of them.

    `spent_usd` is the price of what was used so far, this stage included.
    """
    if budget.max_bytes is not None and (output.size or 0) > budget.max_bytes:
        return f"The content has {output.size} bytes; the job's budget is {budget.max_bytes}."
    if budget.max_chunks is not None and (output.chunk_count or 0) > budget.max_chunks:
        return f"The document has {output.chunk_count} chunks; the job's budget is {budget.max_chunks}."
    cost = spent_usd + prices.of(Spent(tokens_embedded=_tokens_to_embed(output)))
    if budget.max_cost_usd is not None and cost > budget.max_cost_usd:
        return f"The job would cost {cost:.6f} US dollars; its budget is {budget.max_cost_usd}."
    return None


def _tokens_to_embed(output: Output) -> int:
    """Return the tokens of the chunks; of those that are stored elsewhere, the most that they can have."""
    if output.tokens is not None:
        return output.tokens
    return (output.chunk_count or 0) * ChunkSettings().max_tokens
