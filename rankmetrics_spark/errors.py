"""Every error that a user can fix, as one small tree; each class has its exit code."""

import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, TypeVar
from unicodedata import category

from rankmetrics_spark.doors import data_of, settings_of, text_of

HIDDEN = "(hidden)"
#: Environment variable: any value shows the stack trace of an error beside its sentence.
TRACE = "RANKMETRICS_TRACE"

#: Extra of this package -> what it brings. Messages name these: every package index has them, and not this package.
PACKAGES: dict[str, list[str]] = data_of(__name__, "packages")


def installation(extra: str) -> str:
    """The command that adds what an extra of this package brings.

    >>> installation("mlflow")
    "pip install 'mlflow-skinny>=2.15'"
    """
    return " ".join(["pip install", *(f"'{package}'" for package in PACKAGES[extra])])


_SECRET_NAME = re.compile(text_of(__name__, "secret_names.txt"), re.IGNORECASE | re.VERBOSE)
_PUBLIC_NAME = re.compile(text_of(__name__, "public_names.txt"), re.IGNORECASE | re.VERBOSE)
#: A user and a password in front of a host, where no scheme tells an address.
_LOGIN = re.compile(r"(?!jdbc:|[\w+.-]+://)\S+:\S*@")
#: A number, a size or a switch, which is no secret unless its name says so.
_HARMLESS_VALUE = re.compile(
    r"(?i)\[?(?:true|false|yes|no|none|null|auto|-?\d{1,12}(?:\.\d{0,12})?(?:[a-z]{1,2}|%)?)\]?"
)
# A pattern starts only where a run of its first characters does, so that it looks at a long name only once.
_WORD = re.compile(r"[^\s'\"]+")
_SCHEME = re.compile(r"(?i)(?<![a-z0-9+.-])[a-z0-9+.-]+://")
# A port in front of a path with an @ is no password.
_PASSWORD = re.compile(r"[^/:@]*:(?!\d+[/?#,;])")
# container@account is a place.
_USER = re.compile(r"(?i)(?<![a-z0-9+.-])((?!abfss?:|wasbs?:|adl:)[a-z0-9+.-]+://)[^/\s:?'\"]+@")
# jdbc:oracle:thin:user/password@//host:1521/service; the password may be in quotes.
_ORACLE = r"(?i)(jdbc:oracle:\w{1,20}:)[^/\s@'\"]{0,200}/(?:\"[^\"]{0,200}\"|[^\s'\"]{0,200})@"
# Authorization: Bearer value, and the same without the name of the header.
_BEARER = r"(?i)(?<![a-z])(authorization[:=]\s{0,9}\w{1,20}\s{1,9}|bearer\s{1,9})[\w.~+/=-]{8,}"
# A JSON Web Token; its first part starts with an encoded brace and quote.
_JWT_TEXT = r"(?<![\w-])eyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*)?"
_PRIVATE_KEY = r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}-----|$)"
_HELD = (
    (re.compile(_PRIVATE_KEY, re.DOTALL), HIDDEN),
    (re.compile(_ORACLE), rf"\1{HIDDEN}@"),
    (re.compile(_BEARER), rf"\1{HIDDEN}"),
    (re.compile(_JWT_TEXT), HIDDEN),
)
# ...?sig=value, AccountKey=value, password = "value", "private_key": "value", --set spark.fs.azure.account.key.x=value
#: What may hold parameters of an address, to its end.
_PARAMETERS = re.compile(r"(?:://|jdbc:|\?)[^\s'\"]*")
_ASSIGNED = re.compile(r"(?<![\w.%-])([\w.%-]+)(\\{0,3}[\"'`]?\s{0,3}[=:](?!//)\s{0,3})")
_QUOTED = re.compile(r"(\\{0,3})([\"'])(?:(?!\1\2)(?:\\.|[^\\]))*(?:\1\2|$)|(?!\\*[\"'])", re.DOTALL)
#: A parameter of an address, the name of a folder or anything else -> the value without quotes.
_VALUES = {"?": re.compile(r"[^&;\s'\"]+"), "/": re.compile(r"[^/\s'\"]+"), "": re.compile(r"[^\s'\"]+")}
_SECRET_ASSIGNED = re.compile(text_of(__name__, "secret_keys.txt"), re.IGNORECASE | re.VERBOSE)


def is_secret(name: str, value: object = None) -> bool:
    """Whether the value of a setting with this name is hidden: where the name may be that of a secret.

    With a value, of a setting that anybody may have named: unless its name is known to be public.

    >>> [is_secret(name) for name in ("fs.azure.account.key.x", "fs.azure.sas.x", "api_key", "spark.sql.ansi.enabled")]
    [True, True, True, False]
    >>> [is_secret(name, value) for name, value in (("x", "hush"), ("x", "8g"), ("sep", "\\t"), ("pat", "1"))]
    [True, False, False, True]
    """
    if _SECRET_NAME.search(name):
        return True
    if value is None or _HARMLESS_VALUE.fullmatch(str(value)):
        return False
    return not _PUBLIC_NAME.fullmatch(name) or bool(_LOGIN.match(str(value)))


def without_secrets(text: str, is_filter: bool = False) -> str:
    """The text without passwords: users and parameters of addresses that are not known to be public, and assignments.

    A filter compares columns of any name, so it assigns nothing, and hides parameters whose name is that of a secret.

    >>> without_secrets("cannot read s3a://AKIA1:abc/def@logs/day or https://x/y?sv=1&sig=abc%3D&se=2")
    'cannot read s3a://(hidden)@logs/day or https://x/y?sv=1&sig=(hidden)&se=2'
    >>> without_secrets("jdbc:oracle:thin:scott/tiger@//host:1521/x Authorization: Bearer abcdefgh.ijk")
    'jdbc:oracle:thin:(hidden)@//host:1521/x Authorization: Bearer (hidden)'
    >>> without_secrets("abfss://logs@account.dfs.core.windows.net/a hdfs://nn:8020/user@home/key=1")
    'abfss://logs@account.dfs.core.windows.net/a hdfs://nn:8020/user@home/key=1'
    >>> without_secrets("https://a:b@c@host/x?code=d&sv=2020 password='e f'")
    'https://(hidden)@host/x?code=(hidden)&sv=2020 password=(hidden)'
    """
    text = _USER.sub(rf"\1{HIDDEN}@", _WORD.sub(_without_password, text))
    for pattern, shown_instead in _HELD:
        text = pattern.sub(shown_instead, text)
    parts, end, addresses = [], 0, 0
    ends = {found.start(): found.end() for found in _PARAMETERS.finditer(text)}
    starts = iter([*ends, len(text)])
    following = next(starts)
    for name in _ASSIGNED.finditer(text):
        while following < name.start():
            addresses, following = ends[following], next(starts)
        before = text[name.start() - 1 : name.start()] if name[2] == "=" else ""
        in_query = name.start() < addresses and before in ("?", "&", ";")
        is_secret_name = _SECRET_ASSIGNED.search(name[1]) and not is_filter
        if name.start() < end or not (in_query or is_secret_name):
            continue
        if ":" in name[2] and name[1].endswith(("Error", "Exception")):
            continue
        value = _QUOTED.match(text, name.end())
        kind = "?" if in_query else "/" if before == "/" else ""
        value = value if value and value[0] else _VALUES[kind].match(text, name.end())
        if not value or value[0] == HIDDEN or (kind == "/" and _HARMLESS_VALUE.fullmatch(value[0])):
            continue
        if not in_query or is_secret(name[1], None if is_filter else value[0]):
            parts += [text[end : value.start()], HIDDEN]
            end = value.end()
    return "".join([*parts, text[end:]])


def _without_password(word: re.Match[str]) -> str:
    """A word without user:password@ of an address in it, up to the last @, which a password may hold."""
    text, last = word[0], word[0].rfind("@")
    for address in _SCHEME.finditer(text, 0, max(last, 0)):
        if _PASSWORD.match(text, address.end(), last):
            return f"{text[: address.end()]}{HIDDEN}{text[last:]}"
    return text


def shape(name: object) -> str:
    """What a message shows of a user or an item: letters become a or A, digits 9, and only the first 40 count.

    >>> shape("Anna_007@x.org"), shape(None), shape("x" * 50)
    ('Aaaa_999@a.aaa', 'None', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa... (50 characters)')
    """
    if name is None:
        return "None"
    text = str(name)
    pattern = "".join("9" if c.isdigit() else ("A" if c.isupper() else "a") if c.isalpha() else c for c in text[:40])
    return pattern if len(text) <= 40 else f"{pattern}... ({len(text):,} characters)"


def printable(text: str) -> str:
    r"""The text with its control characters escaped: no name can break a line, colour a terminal or turn a text around.

    >>> printable("a\nb\x1b[1m \u202ec\u00a0d")
    'a\\nb\\x1b[1m \\u202ec\xa0d'
    """
    if text.isprintable():
        return text
    return "".join(c.encode("unicode_escape").decode() if _is_control(c) else c for c in text)


def _is_control(character: str) -> bool:
    # A space of any width is one.
    return not character.isprintable() and category(character) != "Zs"


def printable_json(text: str) -> str:
    r"""JSON with the control characters of its texts escaped as JSON escapes them, so its values stay the same.

    >>> print(printable_json('{"a\u202eb":\n "\x9b"}'))
    {"a\u202eb":
     "\u009b"}
    """
    return "\n".join(
        line if line.isprintable() else "".join(json.dumps(c)[1:-1] if _is_control(c) else c for c in line)
        for line in text.split("\n")
    )


def every_text(value: Any, change: Callable[[str], str]) -> Any:
    """Nested mappings and lists with each text in them changed; keys stay as they are."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {name: every_text(item, change) for name, item in value.items()}
    return [every_text(item, change) for item in value] if isinstance(value, (list, tuple)) else value


def values_without_secrets(value: Any, name: object = "") -> Any:
    """The same of a config or a record, whose texts lose their secrets; a filter is called ``where`` or ``filter``."""
    if isinstance(value, Mapping):
        return {key: values_without_secrets(item, key) for key, item in value.items()}
    return every_text(value, lambda text: without_secrets(text, name in ("where", "filter")))


#: Characters without a space that a message shows in full; a longer name is cut.
LONGEST_WORD = 300
#: Characters of a message; a longer one loses its middle, so that its end still says what is allowed.
LONGEST_MESSAGE = 2_000
_LONGEST_CHECKED = 2_000
_SPACE = re.compile(r"[\s\x1c-\x1f\x85\u2028\u2029]+")


#: Name -> a sentence that would take several lines of code, with places for values.
SENTENCES = settings_of(__name__, "sentences")

ErrorT = TypeVar("ErrorT", bound="RankmetricsError")


def said(sentence: str, /, **values: object) -> str:
    """A sentence by its name, with values; those of a list have commas between them.

    >>> said("by_date_without_files", path="out")[:45]
    "cannot write to 'out' with sink.layout 'by_da"
    """
    lists = {name: ", ".join(map(str, value)) for name, value in values.items() if isinstance(value, (list, tuple))}
    return SENTENCES[sentence].format(**values | lists)


class RankmetricsError(Exception):
    """Root of every error that this package raises on purpose; no message holds a password. Exit code 1.

    A message is one line of bounded length, whatever a name in a config or in the data holds: see ``one_line``.
    """

    exit_code = 1
    #: What was checked before, as ``schemas.Check``, with what failed.
    checks: tuple[Any, ...] = ()
    #: Of a run whose numbers were refused: its record, with ``means``, ``comparisons``, ``verdict`` and ``checks``.
    record: Mapping[str, Any] = MappingProxyType({})
    #: The page of these numbers, marked as not published; None if none could be written.
    page: str | None = None
    #: The outcome of a run that has published other tests than those of these numbers.
    published: Any = None

    def __init__(self, message: str = "") -> None:
        """An error with its one sentence, without the secrets that a path or a setting in it may hold."""
        super().__init__(one_line(str(message)))

    @classmethod
    def of(cls: type[ErrorT], sentence: str, /, **values: object) -> ErrorT:
        """An error with a sentence of ``sentences.properties``, which has places for these values."""
        return cls(said(sentence, **values))

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the sentence; with ``RANKMETRICS_TRACE`` set, everything."""
        if os.environ.get(TRACE):
            return "".join(traceback.format_exception(self)).splitlines()
        return [f"{type(self).__name__}: {self}"]


class ConfigError(RankmetricsError):
    """A wrong argument or config value. Exit code 2."""

    exit_code = 2

    def __init__(self, message: str = "", allowed: str = "", path: str = "") -> None:
        """An error with its one sentence.

        Args:
            message: The sentence.
            allowed: What may stand in place of a value, in words.
            path: Of the value that a rule refuses.
        """
        super().__init__(message)
        self.allowed, self.path = allowed, path


class InputError(RankmetricsError):
    """An input that cannot be read, is empty, or lacks a requested column. Exit code 3."""

    exit_code = 3


class OutputError(RankmetricsError):
    """A table that cannot be written. Exit code 1."""


class DifferenceError(RankmetricsError):
    """What was published is not what the record says, or not what is derived from it again. Exit code 6."""

    exit_code = 6


class QualityError(RankmetricsError):
    """More faulty rows than the quality gate allows, or users who do not follow the planned shares. Exit code 4."""

    exit_code = 4


class QualityWarning(UserWarning):
    """What is odd about a log, but stops nothing."""


class MetricGateError(RankmetricsError):
    """A metric below the limit of its gate; ``record`` and ``page`` have the numbers. Exit code 5."""

    exit_code = 5


def one_line(message: str) -> str:
    r"""The message in one line of bounded length: line breaks become spaces, control characters are escaped.

    Names that are too long are cut, and the secrets of addresses are hidden.

    >>> one_line("unknown column 'a\nb\x1b[1m'")
    "unknown column 'a b\\x1b[1m'"
    >>> one_line("unknown column '" + "x" * 100_000 + "'; known: a").replace("x" * 150, "xxx")
    "unknown column 'xxx... (100,000 characters)'; known: a"
    """
    line = _SPACE.sub(" ", message).strip()
    line = printable(line)
    # The patterns of secrets take long on a long word. What is left of it must not hold a part of a secret.
    line = _cut_words(line, _LONGEST_CHECKED, re.compile("[^:=@.]*"))
    line = _cut_words(without_secrets(line), LONGEST_WORD, re.compile(".*"))
    if len(line) <= LONGEST_MESSAGE:
        return line
    return f"{line[: LONGEST_MESSAGE - 600]} ... ({len(line):,} characters) ... {line[-500:]}"


def _cut_words(line: str, longest: int, head: re.Pattern[str]) -> str:
    """The line with each longer word cut to what ``head`` matches at its start, at most half of ``LONGEST_WORD``."""

    def cut(word: re.Match[str]) -> str:
        opening = word[0][0] if word[0][0] in "'\"(" else ""
        text = word[0][len(opening) :].rstrip("'\");:,.") or word[0]
        match = head.match(text[: LONGEST_WORD // 2])
        closing = word[0][len(opening) + len(text) :]
        return f"{opening}{match[0] if match else ''}... ({len(text):,} characters){closing[:10]}"

    return re.sub(rf"\S{{{longest},}}", cut, line)


def unknown(what: str, value: object, known: Iterable[str]) -> str:
    """A message for an unknown name: the wrong value, the nearest known name if there is one, and all known names.

    >>> unknown("metric", "ndgc", ["ap", "ndcg"])
    "unknown metric 'ndgc'; did you mean 'ndcg'? known: ap, ndcg"
    >>> unknown("column", "item", ["_c0", "user", ""]), unknown("column", "item", ["_c0", "_c1"])
    ("unknown column 'item'; known: user", "unknown column 'item'; known: _c0, _c1")
    """
    names = list(known)
    # A column of CSV without a name: empty on Sail, and _c0 on Spark, where a file without a header has these alone.
    if what == "column" and names[:2] != ["_c0", "_c1"]:
        names = [name for at, name in enumerate(names) if name not in ("", f"_c{at}")]
    near = get_close_matches(str(value).lower(), names, n=1, cutoff=0.5)
    hint = f"; did you mean '{near[0]}'?" if near else ";"
    return f"unknown {what} '{value}'{hint} known: {', '.join(names)}"


def check_known(what: str, names: Iterable[object], known: Collection[str], at: str = "") -> None:
    """Refuse the first of some names that is not known; None is no name.

    Raises:
        ConfigError: Says where it stands (``at``), and the nearest of the known ones.
    """
    for name in names:
        if name is not None and name not in known:
            raise ConfigError(f"{at}: " * bool(at) + unknown(what, name, known or ["none"]))


def first_sentence(error: Exception) -> str:
    r"""The first line of an error message from Spark, without Java class names, query plans and stack traces.

    >>> first_sentence(OSError("An error occurred while calling o1.save.\n: java.io.IOException: full.\n  at x"))
    'full'
    """
    lines = [line for line in str(error).strip().splitlines() if not line.startswith("An error occurred while calling")]
    return _plain(lines[0].split(" SQLSTATE")[0]) if lines else type(error).__name__


def root_cause(error: Exception) -> str:
    r"""The innermost message of an error from Spark, without Java class names, tasks and stack traces.

    >>> root_cause(OSError("[TASK_WRITE_FAILED] Failed.\n\tat x\nCaused by: java.io.IOException: No space left\n"))
    'No space left'
    >>> root_cause(OSError("Lost task 0.0 in stage 1.0 (TID 2) (localhost executor driver): java.io.IOException: No"))
    'No'
    """
    causes = [line.removeprefix("Caused by: ") for line in str(error).splitlines() if line.startswith("Caused by: ")]
    return _plain(causes[-1]) if causes else first_sentence(error)


def _plain(line: str) -> str:
    line = re.sub(r"^.*?Lost task [^()]*\([^()]*\) \([^()]*\): ", "", line)
    return re.sub(r"^:? ?([\w.$]*(Exception|Error): )+", "", line).strip().rstrip(".;")


_OTHER_PYTHON = re.compile(
    r"No module named '(?:numpy|pandas|pyarrow|pyspark|rankmetrics_spark|scipy)[\w.]*'"
    r"|Python in worker has different version[^,]*"
)


def raised_by_python(error: Exception) -> RankmetricsError | None:
    r"""The error of this package that ended a Python function of Spark, from the trace that Spark hands on.

    >>> trace = "Traceback (most recent call last):\n  File x\n{}.ConfigError: a is 1\n\n\tat org.x".format(__name__)
    >>> raised_by_python(OSError(trace))
    ConfigError('a is 1')
    >>> raised_by_python(OSError("External error: RuntimeError: External error: InputError: b is 2"))  # of Sail
    InputError('b is 2')
    >>> print(str(raised_by_python(OSError("ModuleNotFoundError: No module named 'numpy'")))[:75])
    Spark's workers run another Python than this process: No module named 'nump
    """
    if isinstance(error, RankmetricsError):
        return error
    for match in re.finditer(
        rf"(?:^{re.escape(__name__)}\.|External error: )(?=(\w+): (.*)$)", str(error), re.MULTILINE
    ):
        kind = globals().get(match[1])
        if isinstance(kind, type) and issubclass(kind, RankmetricsError):
            return kind(match[2])
    if found := _OTHER_PYTHON.search(str(error)):
        # As where a virtual environment is not activated: the workers then run the first python3 on the PATH.
        cure = f"PYSPARK_PYTHON={sys.executable} in the environment before the session starts"
        if "rankmetrics_spark" in found[0]:
            cure = "rankmetrics_spark.engines.spark.send_package(spark) once per session of a Spark Connect server"
        return RankmetricsError.of("other_python", problem=found[0], cure=cure)
    return None


_OUT_OF_MEMORY = re.compile(r"java\.lang\.OutOfMemoryError|Java heap space|GC overhead limit exceeded")


def lost_engine(error: BaseException) -> RankmetricsError | None:
    """The sentence for the end of Spark's Java process, or of its memory; None for any other error.

    What is called after that end, such as the stop of the session, fails too, and hides the first error in its own.

    >>> print(str(lost_engine(ConnectionRefusedError(111, "Connection refused")))[:69])
    Spark's Java process has ended, as it does when it runs out of memory
    >>> lost_engine(FileNotFoundError("a")) is None
    True
    """
    failure: RankmetricsError | None = None
    cause: BaseException | None = error
    seen: set[int] = set()  # a user's error may be its own cause
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        if isinstance(cause, RankmetricsError):
            # The sentence of an input or an output may have the end of the engine as its cause.
            end = lost_engine(cause.__cause__) if cause.__cause__ else None
            return end or (cause if failure else None)
        if _OUT_OF_MEMORY.search(str(cause)):
            failure = RankmetricsError.of("lost_engine", what="Spark ran out of memory")
        # A class of py4j is known by its name, since a client of Connect has no py4j.
        elif isinstance(cause, (ConnectionRefusedError, ConnectionResetError)) or (
            type(cause).__name__ == "Py4JNetworkError"
        ):
            what = "Spark's Java process has ended, as it does when it runs out of memory or is killed"
            failure = failure or RankmetricsError.of("lost_engine", what=what)
        cause = cause.__cause__ or cause.__context__
    return failure


def no_file_system(place: str, error: Exception) -> str | None:
    """What to say where a session lacks the file system of a path; None if the error is about something else.

    >>> no_file_system("foo://a/b", OSError('UnsupportedFileSystemException: No FileSystem for scheme "foo"'))
    "this session has no file system for 'foo'; start it with the jar of one, or use another path"
    """
    if not re.search(r"No FileSystem for scheme|Class [\w.$]*(FileSystem|\.fs\.)[\w.$]* not found", str(error)):
        return None
    scheme = place.partition(":")[0]
    return f"this session has no file system for '{scheme}'; start it with the jar of one, or use another path"
