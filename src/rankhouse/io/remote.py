"""Files and folders behind URLs (``s3://``, ``gs://``, ``https://`` ...), by fsspec, with clear errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Self

from rankhouse.core.errors import BadData, MissingInput, OutputFailed, RankhouseError, WrongUse, needs

_WEB: Final = frozenset({"http", "https"})
_PACKAGES: Final = {
    "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "abfss": "adlfs",
    "az": "adlfs", "http": "aiohttp", "https": "aiohttp",
}  # fmt: skip
_OBJECT_STORES: Final = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss", "r2"})
"""Schemes without folders to be made (nor buckets), where a file is there only when it is whole."""
_VERSIONS: Final = (
    "ETag", "etag", "md5Hash", "content_md5", "Content-MD5", "crc32c", "generation", "VersionId",
    "LastModified", "Last-Modified", "last_modified", "updated", "mtime", "created",
)  # fmt: skip
_no_bucket_said = re.compile(r"bucket does not exist|bucket not found|NoSuchBucket", re.IGNORECASE).search
_KEYLESS: Final = ("Credential", "RefreshError", "ProfileNotFound", "TokenRetrieval")
_UNREACHED: Final = ("Endpoint", "Connect", "Timeout", "ServerDisconnected")
_FIRST_ANSWER: Final = 60.0
"""Seconds until a store that does not say what it holds is given up; its library tries for many minutes."""
MARK: Final = ".rankhouse-upload"
"""A file that stands in a remote folder while it is written."""


class RemoteFile(NamedTuple):
    """A file as the store describes it: bytes (None: it does not say), and what changes with the content."""

    size: int | None
    version: str


Listing = dict[str, RemoteFile]
"""Name below a folder -> file; a single file has the name ""; empty where there is nothing."""


@dataclass(frozen=True)
class Remote:
    """A place behind a URL: fsspec's file system, and the path in it."""

    url: str
    fs: Any
    path: str

    @classmethod
    def at(cls, url: str) -> Self:
        """Look a URL's file system up; nothing is asked over the network yet.

        Raises MissingExtra without fsspec, WrongUse without the package for this kind of URL.
        """
        with needs("cluster", url):
            import fsspec  # noqa: PLC0415 - an optional package
        scheme = url.partition(":")[0].lower()
        package = _PACKAGES.get(scheme, "")
        try:
            with failures(url):
                fs, path = fsspec.core.url_to_fs(url)
        except RankhouseError as error:
            if not isinstance(error.__cause__, ImportError):
                raise
            needed = f" {package}" if package else ""
            raise WrongUse(
                f'{url}: needs packages that are not installed: run  pip install "rankhouse[cluster]"{needed}'
                f"  ({error.__cause__})"
            ) from error
        return cls(url, fs, path.rstrip("/"))

    @property
    def scheme(self) -> str:
        """Scheme of the URL."""
        return self.url.partition(":")[0].lower()

    @property
    def name(self) -> str:
        """The last part of the path, which a local copy has as its name."""
        return self.path.rsplit("/", 1)[-1].partition("?")[0] or "content"

    @property
    def key(self) -> str:
        """A folder's name for this URL."""
        return blake2b(self.url.rstrip("/").encode(), digest_size=10).hexdigest()

    def below(self, name: str) -> str:
        """Return the path of a file of a listing."""
        return f"{self.path}/{name}" if name else self.path

    def listing(self) -> Listing:
        """Ask what is there now; BadData for a name that no local file can have."""
        soon = {"timeout": _FIRST_ANSWER} if getattr(self.fs, "async_impl", False) else {}
        with failures(self.url):
            self.fs.invalidate_cache()
            try:
                if self.scheme in _WEB:
                    return {"": _file(self.fs.info(self.path, **soon))}
                found = self.fs.find(self.path, detail=True, **soon)
            except FileNotFoundError as error:
                if self.scheme in _WEB or _no_bucket_said(str(error)):
                    raise
                return {}
        files = {}
        for path, info in sorted(found.items()):
            name = path.removeprefix(self.path).lstrip("/")
            if info.get("type") == "file" and not path.endswith("/"):
                _check_name(name, self.url)
                files[name] = _file(info)
        return files

    def require_writable(self) -> None:
        """Refuse the web, which can only be read."""
        if self.scheme in _WEB:
            raise WrongUse(
                f"{self.url}: {self.scheme}:// is only read; write to a local path, s3://, gs:// or the like"
            )

    def put(self, source: str, name: str) -> None:
        """Upload a file below this place, or as the place itself (""); it is there when it is whole."""
        with failures(self.url, writing=True):
            path = self.below(name)
            if self.scheme in _OBJECT_STORES:
                self.fs.put_file(source, path)
                return
            folder, _, last = path.rpartition("/")
            self.fs.makedirs(folder, exist_ok=True)
            self.fs.put_file(source, f"{folder}/.{last}.part")
            self.fs.mv(f"{folder}/.{last}.part", path)

    def write(self, name: str, content: bytes) -> None:
        """Write a small file."""
        with failures(self.url, writing=True):
            if self.scheme not in _OBJECT_STORES:
                self.fs.makedirs(self.path, exist_ok=True)
            self.fs.pipe_file(self.below(name), content)

    def read(self, name: str) -> bytes:
        """Read a small file."""
        with failures(self.url):
            content: bytes = self.fs.cat_file(self.below(name))
        return content

    def remove(self, name: str) -> None:
        """Remove a file."""
        with failures(self.url, writing=True):
            self.fs.rm_file(self.below(name))


def version_of(files: Listing) -> str:
    """Return a folder's name for what a listing shows; changed by every change."""
    shown = "\n".join(f"{name}\t{file.size}\t{file.version}" for name, file in sorted(files.items()))
    return blake2b(shown.encode(), digest_size=10).hexdigest()


def _file(info: dict[str, Any]) -> RemoteFile:
    size = info.get("size")
    facts = [str(info[key]) for key in _VERSIONS if info.get(key)]
    return RemoteFile(None if size is None else int(size), "|".join(facts))


def _check_name(name: str, url: str) -> None:
    parts = name.split("/") if name else []
    if any(part in {"", ".", ".."} for part in parts) or "\\" in name or not name.isprintable():
        raise BadData(f'{url}: holds "{name}", which no local file can be named; rename it', None)


@contextmanager
def failures(url: str, *, writing: bool = False) -> Iterator[None]:
    """Turn what a store's library raises into MissingInput or OutputFailed, which say what to do."""
    try:
        yield
    except RankhouseError:
        raise
    except Exception as error:  # each store's library has errors of its own
        kind = OutputFailed if writing else MissingInput
        raise kind(f"{url}: {_reason(url, error, writing=writing)}") from error


def _reason(url: str, error: Exception, *, writing: bool) -> str:
    """Say what went wrong, and what to do about it."""
    cause = error.__cause__ or error
    name, text = type(cause).__name__, str(cause) or type(cause).__name__
    if isinstance(error, TimeoutError) and not str(error):
        text = f"no answer in {_FIRST_ANSWER:.0f} s"
    status = getattr(cause, "status", 0)
    scheme, act = url.partition(":")[0].lower(), "written" if writing else "read"
    if any(mark in type(error).__name__ or mark in name for mark in _KEYLESS):
        return f"there are no credentials to read or write it with ({text}); {_credentials(scheme)}"
    if isinstance(error, PermissionError) or status in {401, 403}:
        return f"may not be {act} with these credentials ({text}); {_credentials(scheme)}"
    if isinstance(error, ConnectionError | TimeoutError) or any(mark in name for mark in _UNREACHED):
        return f"cannot be reached ({text}); check the network and the endpoint, then run this again"
    if isinstance(error, FileNotFoundError) and status in {0, 404}:
        if _no_bucket_said(str(error)):
            return f"there is no such bucket ({error}); check its name, or make it first"
        return "there is no such file or folder; check the name (it is case-sensitive)"
    if isinstance(error, ValueError) and "rotocol" in text:
        return "no file system is known for it; s3://, gs://, abfs://, https:// and fsspec's others are"
    return f"cannot be {act} ({name}: {text})"


def _credentials(scheme: str) -> str:
    if scheme in {"s3", "s3a"}:
        return (
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE; for a public bucket, "
            """FSSPEC_S3='{"anon": true}'"""
        )
    if scheme in {"gs", "gcs"}:
        return 'set GOOGLE_APPLICATION_CREDENTIALS; for a public bucket, FSSPEC_GS=\'{"token": "anon"}\''
    return f"give them as fsspec reads them, FSSPEC_{scheme.upper()}='{{...}}'"
