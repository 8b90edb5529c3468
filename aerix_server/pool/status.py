"""What a pool says of itself, without starting one."""

from __future__ import annotations

import os

from aerix_server.config.bounds import CONTROL_TIMEOUT_S
from aerix_server.config.settings import Settings
from aerix_server.pool.start import pool_socket
from aerix_server.protocol.messages import PoolStatusResult
from caldrix.client.client import PoolClient
from caldrix.protocol.errors import CaldrixError
from caldrix.protocol.messages import payload


async def pool_status(settings: Settings) -> PoolStatusResult:
    """The status of the pool on the settings' socket; not running when none answers there."""
    socket = pool_socket(settings)
    try:
        async with await PoolClient.connect(socket, f"status-{os.getpid()}", timeout=CONTROL_TIMEOUT_S) as client:
            status = payload(await client.status())
    except CaldrixError:
        return PoolStatusResult(socket=os.fspath(socket), running=False)
    del status["type"], status["id"]
    return PoolStatusResult(socket=os.fspath(socket), running=True, status=status)
