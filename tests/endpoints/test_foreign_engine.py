"""An engine that nobody here wrote: llama.cpp's own HTTP server, from the wheel xllamacpp, with a random model of 1 MB."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

xllamacpp = pytest.importorskip("xllamacpp", reason="no wheel of xllamacpp for this platform")
pytest.importorskip("gguf", reason="no wheel of gguf for this platform")

MODEL = "tiny-random"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server's base URL; it lives as long as its object."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("tiny_gguf", Path(__file__).with_name("tiny_gguf.py"))
    assert spec is not None
    assert spec.loader is not None
    tiny = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tiny)
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(tiny.write_tiny_model(tmp_path_factory.mktemp("gguf") / "tiny.gguf"))
    parameters.n_ctx, parameters.n_parallel, parameters.port = 4 * tiny.CONTEXT, 4, 0
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.n_gpu_layers, parameters.warmup, parameters.use_jinja, parameters.verbosity = 0, False, True, -1
    server = xllamacpp.Server(parameters)
    yield f"{server.listening_address}/v1"
    del server
