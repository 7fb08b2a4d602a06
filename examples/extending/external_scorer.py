"""A scorer outside of aptool: a server with the rerank API of vLLM, infinity, llama.cpp, Cohere and Jina.

`aptool.score` resumes: the row groups that a call has scored are not sent again. On a cluster, the workers
import this module, too.

    import external_scorer
    server = external_scorer.RerankServer("http://localhost:8000/rerank")
    aptool.score("dev.pools.parquet", server, "dev.run")
"""

import json
from dataclasses import dataclass
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import numpy as np
from typing_extensions import override

from aptool import AptoolError
from aptool.data.pools import PoolBatch
from aptool.scoring.systems import Count, Scorer, System


@dataclass(frozen=True)
class RerankServer(System):
    """The address of the server and the name of its model."""

    url: str
    model: str = "default"

    @override
    def open(self, units: Any = (), answers: Any = None, device: str | None = None) -> "RerankScorer":
        return RerankScorer(self)


class RerankScorer(Scorer):
    """Sends a request per pool."""

    def __init__(self, system: RerankServer) -> None:
        self._server = system
        settings = [system.url, system.model]  # the scores of another server belong to another run
        super().__init__(system, "rerank", settings, {"name": system.model, "server": system.url})

    @override
    def score(self, pools: PoolBatch, count: Count = lambda pairs: None) -> np.ndarray:
        scores = []
        for pool in pools.records():
            scores.append(self._scores(pool.question, pool.texts))
            count(len(pool.texts))
        return np.concatenate(scores)

    def _scores(self, question: str, texts: list[str]) -> np.ndarray:
        body = {"model": self._server.model, "query": question, "documents": texts}
        request = Request(self._server.url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urlopen(request, timeout=60) as response:
                results = json.load(response)["results"]
        except (URLError, OSError, ValueError, KeyError) as error:
            raise AptoolError(f"{self._server.url}: {error!r}: expected results of the rerank API") from error
        by_index = {result["index"]: result["relevance_score"] for result in results}
        return np.array([by_index.get(index, np.nan) for index in range(len(texts))], dtype=np.float32)
