"""An S3 server in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from barnabas.testing.ports import free_ports, is_free
from tests.progress import wait_until


@contextmanager
def s3_server(folder: Path) -> Iterator[str]:
    """An S3 server with the bucket `segments`."""
    import boto3

    (port,) = free_ports(1)
    with (folder / "s3.log").open("wb") as output:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
    try:
        wait_until(lambda: not is_free(port), "the S3 server listens")
        client = boto3.client(
            "s3",
            endpoint_url=f"http://127.0.0.1:{port}",
            region_name="us-east-1",
            aws_access_key_id="id",
            aws_secret_access_key="secret",
        )
        client.create_bucket(Bucket="segments")
        yield f"127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()
