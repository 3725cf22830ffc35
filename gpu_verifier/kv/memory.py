"""How much memory is left for a cache, on the host or on a GPU."""

from pathlib import Path

import torch

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def available_bytes(device: torch.device) -> int:
    """Bytes that can still be allocated: the GPU's free memory, or the host's within its cgroup."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    limits = [limit for limit in (_meminfo_bytes(), _cgroup_bytes()) if limit is not None]
    if not limits:
        raise OSError(f"{_MEMINFO} tells no MemAvailable; set num_kv_blocks on a Linux host")
    return min(limits)


def _meminfo_bytes() -> int | None:
    if not _MEMINFO.is_file():
        return None
    for line in _MEMINFO.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _cgroup_bytes() -> int | None:
    """What a container may still take (cgroup v2); None where no limit is set."""
    limit, used = _CGROUP / "memory.max", _CGROUP / "memory.current"
    if not (limit.is_file() and used.is_file()):
        return None
    text = limit.read_text().strip()
    return None if text == "max" else max(int(text) - int(used.read_text()), 0)
