"""A node of the store that the leader-follower study describes, as that study built it.

Three processes: a leader and two followers, all in memory. The leader gives each write the next
version, stores it, and replicates it to the followers over HTTP. It is the baseline that the lab
measures beside Quorate, so it keeps the design's faults:

- The answer does not wait for replication: that is a background task, begun after the answer,
  and its errors are dropped. The paper calls this synchronous.
- Each write opens a new HTTP client, and the followers are asked one after the other. (The client
  here loads no certificates, which plain HTTP needs none of: with them it would cost 20 ms more for
  each write, far more than the paper's throughput leaves room for.)
- The version is a counter of the leader that followers do not get: each counts by itself, and
  applies writes in the order in which they happen to arrive.
- A message that is lost is not sent again, and a node that starts again has forgotten everything.

Environment: ROLE is `leader` or `follower`; FOLLOWERS is a list of base URLs, separated by commas.
"""

import os

import httpx
from fastapi import BackgroundTasks, FastAPI, HTTPException
from pydantic import BaseModel

ROLE = os.environ.get("ROLE", "leader")
FOLLOWERS = [url for url in os.environ.get("FOLLOWERS", "").split(",") if url]
REPLICATION_TIMEOUT_S = 2.0

app = FastAPI()
entries: dict[str, dict] = {}
last_version = 0


class Write(BaseModel):
    key: str
    value: str


def store(write: Write) -> int:
    """Stores a write under this node's own next version."""
    global last_version
    last_version += 1
    entries[write.key] = {"key": write.key, "value": write.value, "version": last_version}
    return last_version


async def replicate_to_followers(write: Write) -> None:
    """Sends a write to the followers, one after the other, and forgets what goes wrong."""
    async with httpx.AsyncClient(timeout=REPLICATION_TIMEOUT_S, verify=False) as client:
        for follower in FOLLOWERS:
            try:
                await client.post(f"{follower}/replicate", json=write.model_dump())
            except httpx.HTTPError:
                pass


@app.post("/put")
async def put(write: Write, background: BackgroundTasks) -> dict:
    if ROLE != "leader":
        raise HTTPException(status_code=403, detail="only the leader takes writes")
    version = store(write)
    background.add_task(replicate_to_followers, write)
    return {"key": write.key, "version": version}


@app.get("/get/{key:path}")
async def get(key: str) -> dict:
    entry = entries.get(key)
    if entry is None:
        raise HTTPException(status_code=404, detail="no such key")
    return entry


@app.post("/replicate")
async def replicate(write: Write) -> dict:
    store(write)
    return {"acknowledged": True}


@app.get("/health")
async def health() -> dict:
    return {"status": "ok", "role": ROLE, "keys": len(entries)}
