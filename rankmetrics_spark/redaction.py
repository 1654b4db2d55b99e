"""Secrets in names, settings and addresses: what of them may be stored in a run record or printed in a message."""

from __future__ import annotations

import re

HIDDEN = "(hidden)"

_SECRET_NAME = re.compile(
    r"secret|passw|passphrase|passcode|pwd|token|credential|signature|key|(?<![a-z])(?:auth|pass|pat|sas|sig)(?![a-z])",
    re.IGNORECASE,
)
_ADDRESSES = (
    # user:password@host; a port in front of a path with an @ is no password, and container@account is no secret.
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^/\s:@'\"]*:(?!\d+[/?#])[^\s@'\"]*@"), rf"\1{HIDDEN}@"),
    (re.compile(r"(?i)\b(https?://)[^/\s:@'\"]+@"), rf"\1{HIDDEN}@"),
    # ...?sig=value, AccountKey=value, --set spark.fs.azure.account.key.x=value
    (
        re.compile(
            r"(?i)((?:[\w.%-]*(?:secret|passw|pwd|token|signature|credential|(?:access|account|api|private|encryption"
            r"|shared)[._-]?key)[\w.%-]*|[?&;](?:sas|sig|key))=)[^&;,\s'\"#]+"
        ),
        rf"\1{HIDDEN}",
    ),
)


def is_secret(name: str) -> bool:
    """Whether the value of a setting with this name is hidden; a doubtful name counts as a secret.

    >>> [is_secret(name) for name in ("fs.azure.account.key.x", "fs.azure.sas.x", "api_key", "spark.sql.ansi.enabled")]
    [True, True, True, False]
    """
    return _SECRET_NAME.search(name) is not None


def without_secrets(text: str) -> str:
    """The text without the passwords and signatures of the addresses and assignments in it.

    >>> without_secrets("cannot read s3a://AKIA1:abc/def@logs/day or https://x/y?sv=1&sig=abc%3D&se=2")
    'cannot read s3a://(hidden)@logs/day or https://x/y?sv=1&sig=(hidden)&se=2'
    >>> without_secrets("abfss://logs@account.dfs.core.windows.net/a hdfs://nn:8020/user@home/key=1")
    'abfss://logs@account.dfs.core.windows.net/a hdfs://nn:8020/user@home/key=1'
    """
    for pattern, replacement in _ADDRESSES:
        text = pattern.sub(replacement, text)
    return text
