"""Secrets in names, settings and addresses: what of them may be stored in a run record or printed in a message."""

from __future__ import annotations

import re

HIDDEN = "(hidden)"

_SECRET_NAME = re.compile(
    r"secret|passw|passphrase|passcode|pwd|token|credential|signature|key|(?<![a-z])(?:auth|pass|pat|sas|sig)(?![a-z])",
    re.IGNORECASE,
)
# A pattern starts only where a run of its first characters does, so that it looks at a long name only once.
_ADDRESSES = (
    # user:password@host; a port in front of a path with an @ is no password, and container@account is no secret.
    re.compile(r"(?i)(?<![a-z0-9+.-])([a-z0-9+.-]+://)[^/\s:@'\"]*:(?!\d+[/?#])[^\s@'\"]*@"),
    re.compile(r"(?i)(?<![a-z0-9+.-])(https?://)[^/\s:@'\"]+@"),
)
# ...?sig=value, AccountKey=value, --set spark.fs.azure.account.key.x=value
_ASSIGNED = re.compile(r"(?<![\w.%-])([\w.%-]+)=")
_VALUE = re.compile(r"[^&;,\s'\"#]+")
_SECRET_ASSIGNED = re.compile(
    r"(?i)secret|passw|pwd|token|signature|credential|(?:access|account|api|private|encryption|shared)[._-]?key"
)
_SECRET_PARAMETERS = ("sas", "sig", "key")


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
    for pattern in _ADDRESSES:
        text = pattern.sub(rf"\1{HIDDEN}@", text)
    shown, done = [], 0
    for name in _ASSIGNED.finditer(text):
        hidden = name.start() >= done and _is_secret_in(text, name)
        if hidden and (value := _VALUE.match(text, name.end())):
            shown += [text[done : value.start()], HIDDEN]
            done = value.end()
    return "".join([*shown, text[done:]])


def _is_secret_in(text: str, name: re.Match[str]) -> bool:
    if _SECRET_ASSIGNED.search(name[1]):
        return True
    return name[1].lower() in _SECRET_PARAMETERS and text[max(name.start() - 1, 0)] in "?&;"
