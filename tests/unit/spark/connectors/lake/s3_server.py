"""A small S3 server in memory: objects, ranges, conditional writes, copies, lists, and uploads in parts.

It has what deltalake (Rust) and PyArrow (the SDK for C++) send; signatures are not checked.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import itertools
import json
import re
import subprocess
import sys
import threading
import time
import urllib.request
from email.utils import formatdate
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from barnabas.core.child_processes import start_child

NAMESPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'


class S3Server:
    """A context manager: the server is a process of its own, since deltalake holds the interpreter while it waits."""

    def __enter__(self) -> S3Server:
        self._process = start_child([sys.executable, __file__], stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def objects(self) -> dict[str, bytes]:
        """All objects, by bucket and key."""
        with urllib.request.urlopen(f"{self.url}/_objects/all") as answer:
            return {key: base64.b64decode(text) for key, text in json.load(answer).items()}


class Store:
    """The objects, with the times of their writing, and the parts of uploads."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, float]] = {}
        self.parts: dict[str, dict[int, bytes]] = {}
        self.uploads = itertools.count()
        self.lock = threading.Lock()


class S3Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    store: Store
    protocol_version = "HTTP/1.1"

    @property
    def key(self) -> str:
        return unquote(urlsplit(self.path).path).lstrip("/")

    @property
    def query(self) -> dict[str, str]:
        found = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        return {name: values[0] for name, values in found.items()}

    def do_GET(self) -> None:
        if self.key == "_objects/all":
            found = {key: base64.b64encode(body).decode() for key, (body, _) in sorted(self.store.objects.items())}
            self._answer(200, json.dumps(found).encode())
            return
        if "/" not in self.key.rstrip("/") or "list-type" in self.query:
            self._list()
            return
        self._read(with_body=True)

    def do_HEAD(self) -> None:
        if "/" not in self.key.rstrip("/"):
            self._answer(200)
            return
        self._read(with_body=False)

    def do_PUT(self) -> None:
        body = self._body()
        if "uploadId" in self.query:
            self.store.parts[self.query["uploadId"]][int(self.query["partNumber"])] = body
            self._answer(200, headers={"ETag": tag(body)})
            return
        source = self.headers.get("x-amz-copy-source")
        with self.store.lock:
            if source is not None:
                found = self.store.objects.get(unquote(source).lstrip("/"))
                if found is None:
                    self._error(404, "NoSuchKey")
                    return
                body = found[0]
            elif self.headers.get("If-None-Match") == "*" and self.key in self.store.objects:
                self._error(412, "PreconditionFailed")
                return
            self.store.objects[self.key] = (body, time.time())
        text = f"<CopyObjectResult {NAMESPACE}><ETag>{escape(tag(body))}</ETag></CopyObjectResult>" if source else ""
        self._answer(200, text.encode(), {"ETag": tag(body)})

    def do_POST(self) -> None:
        body = self._body()
        if "uploads" in self.query:
            upload = str(next(self.store.uploads))
            self.store.parts[upload] = {}
            bucket, _, key = self.key.partition("/")
            inner = f"<Bucket>{bucket}</Bucket><Key>{escape(key)}</Key><UploadId>{upload}</UploadId>"
            self._answer(
                200, f"<InitiateMultipartUploadResult {NAMESPACE}>{inner}</InitiateMultipartUploadResult>".encode()
            )
        elif "uploadId" in self.query:
            parts = self.store.parts.pop(self.query["uploadId"])
            whole = b"".join(parts[number] for number in sorted(parts))
            self.store.objects[self.key] = (whole, time.time())
            inner = f"<ETag>{escape(tag(whole))}</ETag>"
            self._answer(
                200, f"<CompleteMultipartUploadResult {NAMESPACE}>{inner}</CompleteMultipartUploadResult>".encode()
            )
        else:  # ?delete
            keys = re.findall(r"<Key>(.*?)</Key>", body.decode())
            for key in keys:
                self.store.objects.pop(f"{self.key.rstrip('/')}/{key}", None)
            inner = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
            self._answer(200, f"<DeleteResult {NAMESPACE}>{inner}</DeleteResult>".encode())

    def do_DELETE(self) -> None:
        if "uploadId" in self.query:
            self.store.parts.pop(self.query["uploadId"], None)
        else:
            self.store.objects.pop(self.key, None)
        self._answer(204)

    def _read(self, with_body: bool) -> None:
        found = self.store.objects.get(self.key)
        if found is None:
            self._error(404, "NoSuchKey")
            return
        body, written = found
        headers = {"ETag": tag(body), "Last-Modified": formatdate(written, usegmt=True), "Accept-Ranges": "bytes"}
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        status = 200
        if wanted is not None:
            first, last = wanted.groups()
            start = int(first) if first else max(0, len(body) - int(last))
            end = min(int(last), len(body) - 1) if first and last else len(body) - 1
            headers["Content-Range"] = f"bytes {start}-{end}/{len(body)}"
            status, body = 206, body[start : end + 1]
        self._answer(status, body, headers, with_body=with_body)

    def _list(self) -> None:
        bucket = self.key.rstrip("/")
        prefix, delimiter = self.query.get("prefix", ""), self.query.get("delimiter", "")
        after = self.query.get("start-after", "")
        contents, common = [], set()
        for name in sorted(self.store.objects):
            key = name.removeprefix(f"{bucket}/")
            if key == name or not key.startswith(prefix) or key <= after:
                continue
            rest = key[len(prefix) :]
            if delimiter and delimiter in rest:
                common.add(prefix + rest.partition(delimiter)[0] + delimiter)
                continue
            body, written = self.store.objects[name]
            when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(written))
            contents.append(
                f"<Contents><Key>{escape(key)}</Key><LastModified>{when}</LastModified>"
                f"<ETag>{escape(tag(body))}</ETag><Size>{len(body)}</Size></Contents>"
            )
        prefixes = [f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in sorted(common)]
        count = len(contents) + len(prefixes)
        inner = f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{count}</KeyCount>"
        inner += f"<MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>{''.join(contents)}{''.join(prefixes)}"
        self._answer(200, f"<ListBucketResult {NAMESPACE}>{inner}</ListBucketResult>".encode())

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            body = b"".join(iter(self._chunk, b""))
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "aws-chunked" in self.headers.get("Content-Encoding", ""):
            body = without_chunks(body)
        return body

    def _chunk(self) -> bytes:
        size = int(self.rfile.readline().split(b";")[0], 16)
        chunk = self.rfile.read(size)
        self.rfile.readline()
        return chunk

    def _error(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def _answer(
        self, status: int, body: bytes = b"", headers: dict[str, str] | None = None, with_body: bool = True
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Type", "application/xml" if body[:1] == b"<" else "application/octet-stream")
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body and self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def without_chunks(body: bytes) -> bytes:
    """The content of a body in S3's own chunks (size in hexadecimal, optionally a signature, and the bytes)."""
    found = b""
    while body:
        head, _, body = body.partition(b"\r\n")
        size = int(head.split(b";")[0], 16)
        if size == 0:
            break
        found += body[:size]
        body = body[size + 2 :]
    return found


def tag(body: bytes) -> str:
    return f'"{hashlib.md5(body).hexdigest()}"'


def serve() -> None:
    """Print the port, and answer requests until the process is killed."""
    handler = type("Handler", (S3Handler,), {"store": Store()})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    serve()
