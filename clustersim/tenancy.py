"""Tenants and their guaranteed shares of the cluster.

A quota is a promise of the site to a tenant, in GPUs. The engine tells policies who was promised what and who
holds how much; what follows from it (who may borrow, who gives back first) is the policy's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from itertime.errors import UserError

if TYPE_CHECKING:
    from .job_view import JobView

__all__ = ["Tenancy"]


class Tenancy:
    """Quotas by tenant, and the GPUs that each tenant holds, counted at most once per decision."""

    def __init__(self, quotas: Mapping[str, int] | None = None, capacity: int | None = None):
        """`quotas`: GPUs by tenant. UserError for a quota that is no whole number of GPUs, and for quotas
        that promise more than `capacity` GPUs in all.
        """
        self.quotas = {str(tenant): gpus for tenant, gpus in (quotas or {}).items()}
        for tenant, gpus in self.quotas.items():
            if isinstance(gpus, bool) or not isinstance(gpus, int) or gpus < 0:
                raise UserError(f"quotas.{tenant}={gpus!r}: must be a whole number of GPUs, at least 0")
        promised = sum(self.quotas.values())
        if capacity is not None and promised > capacity:
            each = ", ".join(f"{tenant} {gpus}" for tenant, gpus in self.quotas.items())
            raise UserError(
                f"quotas: {promised} GPUs are promised ({each:.200}), the cluster has {capacity}; lower them"
            )
        self._used: dict[str, int] = {}
        self._counted = -1

    def quota(self, tenant: str) -> int:
        return self.quotas.get(tenant, 0)

    def used(self, tenant: str, running: Iterable[JobView], decision: int) -> int:
        """GPUs that the jobs of `tenant` among `running` hold; counted anew for each number of `decision`."""
        if decision != self._counted:
            self._used.clear()
            for job in running:
                self._used[job.tenant] = self._used.get(job.tenant, 0) + job.gpus
            self._counted = decision
        return self._used.get(tenant, 0)
