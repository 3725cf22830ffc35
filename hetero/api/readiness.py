"""What ``/ready`` says: whether requests can be taken, and what stands behind that."""

from typing import Any

from hetero.api.service import Backend, InferenceService


def readiness(service: InferenceService) -> dict[str, Any]:
    """One JSON object; what is not known yet is null."""
    backend = service.loaded
    return {
        "status": service.phase,
        "uptime_s": round(service.clock() - service.started_s, 3),
        "model": {
            "name": service.model_name,
            "loaded": backend is not None,
            "system_fingerprint": backend and backend.engine.info.system_fingerprint,
            "device": backend and backend.engine.info.device,
            "dtype": backend and backend.engine.info.dtype,
            "max_context_tokens": backend and backend.engine.info.max_context_tokens,
        },
        "latency": {
            "ttft_s": service.metrics.ttft_window.percentiles_s(),
            "itl_s": service.metrics.itl_window.percentiles_s(),
        },
        **(_load(backend) if backend else _NOTHING_YET),
    }


_NOTHING_YET: dict[str, Any] = {
    "queue": None,
    "kv": None,
    "drafters": [],
    "degraded": None,
    "fault": None,
}


def _load(backend: Backend) -> dict[str, Any]:
    view, drafters = backend.snapshot(), backend.drafters()
    return {
        "queue": {"running": view.num_running, "waiting": view.num_waiting},
        "kv": {
            "total_blocks": view.kv.total_blocks,
            "free_blocks": view.kv.free_blocks,
            "committed_blocks": view.kv.committed_blocks,
            "reserved_blocks": view.kv.reserved_blocks,
        },
        "drafters": [{"name": d.name, "state": d.state} for d in drafters],
        # Answers are right without a drafter, and slower.
        "degraded": any(d.state != "ready" for d in drafters),
        "fault": view.fault,
    }
