"""Gradient clipping: where its norm is taken, and what of the exchange the backward pass can still hide.

| clipping | norm of | kernels | the exchange |
|---|---|---|---|
| none | | | along the last backward pass, as `grad_overlap` says |
| after | the sums of all ranks' gradients | a norm of the 32-bit gradients that a rank owns | as without |
| before | a rank's own gradients, all of them | a norm and a scaling of every bucket | after the last norm |
| bucket | a rank's own gradients, bucket by bucket | a norm and a scaling of every bucket | as without |

"After" is clipping as Pascanu, Mikolov and Bengio (ICML 2013) define it; the step's own kernels apply the
factor (`optimizer.py`). Apex's distributed_fused_lamb.py does that or "before", by its `clip_after_ar`.
"Bucket" is the communication hook of Samsung's BERT (MLPerf Training v1.1 and v2.0; Kim et al., "Breaking
MLPerf Training", 2024): each of n buckets is clipped to 1/sqrt(n) of the largest norm.

Bytes. Of gradients of g bytes each, the norm reads g (Apex, csrc/multi_tensor_l2norm_kernel.cu), the scaling
reads and writes g (csrc/multi_tensor_scale_kernel.cu): 3 g for each local parameter. The norm of the sums
reads 4 for each owned one. Ranks that hold other parameters, by tensor or pipeline parallelism or by ZeRO's
shards, add up their squared norms in an all-reduce of 4 bytes. Clipping by buckets needs no such sum: each
rank takes the norms of its own gradients.

Overlap. In the last backward pass each of n buckets passes two machines: the compute stream for p + c seconds
(its piece p of the pass, its kernels c), then the network for r. Both take the buckets in order, and all
buckets are alike. The network starts bucket i when it has sent i - 1 and the bucket is ready:

    end(i) = max(i (p + c), end(i - 1)) + r,  so  end(n) = max over k of k (p + c) + (n - k + 1) r

(Johnson 1954, for a flow shop of two machines). That is linear in k, so k = 1 or k = n decides:

    end(n) = max(n (p + c) + r, p + c + n r)

Beyond the pass, n p, and the kernels, n c, the exchange shows max(r, n r - (n - 1)(p + c)): `exposed_s` of a
pass of n (p + c) seconds. With c = 0 it is the exchange without clipping.

Where the CPU issues kernels too slowly for the GPU, the GPU waits in every piece; a bucket's kernels, which
no later kernel of the pass needs, run meanwhile. The hook's own launches are among those of the pass
(`Framework.backward_kernels`). A norm of all gradients, before or after the exchange, holds up what follows.

With interleaved chunks the others' kernels run before the last pass of the first chunk, on the same stream:
they are not hidden. Other stages clip after their last send, while they wait for the first stage.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from itertime.arrays import Array, Flags, Whole
from itertime.costs.layer import Parts
from itertime.costs.partition import Workload
from itertime.spec import Elementwise

from .groups import norm_sums_s
from .optimizer import NORM_BYTES, includes_norm, owned_parameters

SCALAR_BYTES = 4.0  # a squared norm


@dataclass(frozen=True)
class Clipping:
    """Seconds of clipping, (plans,) each.

    `kernels`: by name and in order, what runs on each bucket before it is sent. `norm_s`: what happens once:
    the norm of the sums, the all-reduce of a norm. `overlapped`: plans whose buckets travel during the pass.
    """

    kernels: Parts
    norm_s: Array
    overlapped: Flags

    def seconds(self, calls: Whole) -> Array:
        """Seconds with `calls` buckets."""
        return calls * sum(self.kernels.values(), np.zeros(len(self.norm_s))) + self.norm_s


def clipping_s(
    workload: Workload, shared: Array, experts: Array, calls: Whole, waits: Array
) -> Clipping | None:
    """Clipping of `shared` and `experts` parameters per GPU in `calls` buckets; None if there is none, or if
    it is among the bytes of the step (`optimizer.py`). `waits`: seconds that the GPU waits for launches in
    the piece of the backward pass that makes a bucket, (plans,).
    """
    plans, clipping = workload.plans, workload.plans.options.clipping
    if clipping == "none" or includes_norm(plans.options):
        return None
    nothing = np.zeros(len(plans))
    if clipping == "after":
        norm = _kernel_s(workload, NORM_BYTES * owned_parameters(plans, shared, experts))
        norm = norm + norm_sums_s(workload, SCALAR_BYTES, plans.optimizer_shards)
        return Clipping({}, norm, plans.grad_overlap)
    nbytes = workload.plans.gradient_bytes * (shared + experts) / calls
    kernels = {"norm": _kernel_s(workload, nbytes), "scale": _kernel_s(workload, 2 * nbytes)}
    if clipping == "bucket":
        kernel_s = kernels["norm"] + kernels["scale"]
        beyond = np.maximum(kernel_s - waits, 0.0)
        exposed_share = np.divide(beyond, kernel_s, out=np.zeros_like(kernel_s), where=kernel_s > 0)
        kernels = {name: exposed_share * seconds for name, seconds in kernels.items()}
        return Clipping(kernels, nothing, plans.grad_overlap)
    summed = norm_sums_s(workload, SCALAR_BYTES, np.ones_like(plans.dp))
    return Clipping(kernels, summed, np.zeros(len(plans), dtype=bool))


def _kernel_s(workload: Workload, nbytes: Array) -> Array:
    return workload.profile.seconds(Elementwise(nbytes)) / workload.system.site.hbm_fraction
