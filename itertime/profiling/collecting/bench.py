"""The environment in which kernels are timed: torch, a device, the type of its numbers."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from itertime.errors import UserError

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's mallopt


class Unsupported(Exception):
    """This device or this version of torch has no such kernel; the message says which."""


@dataclass
class Bench:
    """torch, the device ("cuda" or "cpu"), the element type (bf16; 32 bit on a CPU), and what is recorded of
    them. `address` finds the GPU for a power meter: its UUID, PCI address or index.
    """

    torch: Any
    device: str
    dtype: Any
    dtype_name: str
    name: str
    source: str
    address: str = ""
    _held_bytes: int = field(default=0, repr=False)
    _trash: Any = field(default=None, repr=False)

    @property
    def on_gpu(self) -> bool:
        return self.device == "cuda"

    def random(self, *shape: int, grad: bool = False) -> Any:
        """Normal numbers. Equal numbers switch fewer transistors, draw less power and run faster."""
        if not self.on_gpu:
            self._held_bytes += math.prod(shape) * self.dtype.itemsize
        return self.torch.randn(*shape, device=self.device, dtype=self.dtype, requires_grad=grad)

    def flush(self, nbytes: int) -> None:
        """Evict the caches by overwriting `nbytes` bytes."""
        if self._trash is None:
            self._trash = self.torch.empty(nbytes, dtype=self.torch.int8, device=self.device)
        self._trash.zero_()

    def synchronize(self) -> None:
        """Wait until the device has run everything."""
        if self.on_gpu:
            self.torch.cuda.synchronize()

    def allocated_bytes(self) -> int:
        """Bytes of the tensors that exist on the GPU; on a CPU, of all operands that were ever made."""
        return int(self.torch.cuda.memory_allocated()) if self.on_gpu else self._held_bytes

    def forget(self) -> None:
        """Free what the kernel before has left, so that it does not fail the next."""
        if self.on_gpu:
            self.torch.cuda.empty_cache()


Preparation = Callable[[Bench], Callable[[], Any]]
"""Creates the tensors of a kernel and returns the function that runs it. Raises `Unsupported`."""


def bench_on(device: str) -> Bench:
    """The bench of a device, "cuda" or "cpu" (one core).

    Raises `UserError` for another device, and if torch or the GPU is missing.
    """
    if device not in ("cuda", "cpu"):
        raise UserError(f"--device {device}: must be cuda or cpu")
    try:
        torch: Any = importlib.import_module("torch")
    except ImportError:
        raise UserError(
            "torch is not installed, and measuring needs it; python -m pip install torch"
        ) from None
    torch.manual_seed(0)
    source = f"torch/{torch.__version__}"
    if device == "cpu":
        torch.set_num_threads(1)  # several threads would add their synchronisation to the times
        keep_freed_memory()
        return Bench(
            torch=torch, device="cpu", dtype=torch.float32, dtype_name="fp32", name="cpu", source=source
        )
    if not torch.cuda.is_available():
        raise UserError("--device cuda: torch finds no CUDA GPU; use --device cpu for a trial")
    return Bench(
        torch=torch,
        device="cuda",
        dtype=torch.bfloat16,
        dtype_name="bf16",
        name=torch.cuda.get_device_name(),
        source=f"{source}, cuda {torch.version.cuda}",
        address=_address(torch),
    )


def keep_freed_memory() -> None:
    """Let glibc keep what is freed, as torch's allocator does on a GPU. Otherwise large tensors come from the
    system anew, and every page of them costs a fault.
    """
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL("libc.so.6")
        library.mallopt(M_MMAP_MAX, 0)
        library.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def _address(torch: Any) -> str:
    """The current GPU as NVML knows it, which does not see CUDA_VISIBLE_DEVICES; else the index."""
    index = torch.cuda.current_device()
    properties = torch.cuda.get_device_properties(index)
    if (uuid := getattr(properties, "uuid", None)) is not None:
        return f"GPU-{uuid}".replace("GPU-GPU-", "GPU-")
    if (bus := getattr(properties, "pci_bus_id", None)) is not None:
        domain = getattr(properties, "pci_domain_id", 0)
        return f"{domain:08x}:{bus:02x}:{getattr(properties, 'pci_device_id', 0):02x}.0"
    return str(index)
