"""A config can do no more than read its input: filters, table names, secrets, and no code that runs a user's text."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

import rankmetrics_spark
from rankmetrics_spark.config import KNOWN, Source, as_dict, condition, from_mapping, refuse, table_name
from rankmetrics_spark.errors import HIDDEN, ConfigError, InputError, is_secret, shape, without_secrets
from rankmetrics_spark.sources import failed_filter
from tests.helpers.messages import messages, texts

PACKAGE = Path(rankmetrics_spark.__file__).parent
JOBS = PACKAGE.parent / "jobs"

# ---- filters


@pytest.mark.parametrize("given", texts("filters that are allowed"))
def test_a_filter_may_compute_with_the_columns_of_its_row(given: str) -> None:
    assert condition("source.where", given) == given


def nested(opening: str, inner: str, closing: str, times: int) -> str:
    return opening * times + inner + closing * times


WORK = "makes more than 10,000 times the work or text of a value with '{}'; allowed: less nesting, lengths and texts"
LIMITS = [
    (" or ".join(["n <= 1"] * 400), " or ".join(["n <= 1"] * 401), "has 401 operators in a row; allowed: at most 400,"),
    (" and ".join(["n between 1 and 2"] * 400), " + ".join(["n"] * 402), "has 401 operators in a row; allowed: at"),
    (nested("(n + n + ", "1", ")", 29), nested("(", "n", f"{' + n' * 15})", 30), "has 450 operators in a row; allowed"),
    (" or ".join(["abs(n) in (1)"] * 400), f"coalesce({'abs(n), ' * 4_000}n) = 1", "has 4,002 operators and parent"),
    (nested("(", "n", ")", 30) + " = 1", nested("(", "n", ")", 3000) + " = 1", "is nested more than 30 deep; allowed"),
    ("not " * 30 + "n = 1", "not " * 31 + "n = 1", "is nested more than 30 deep; allowed: at most 30"),
    ("n = " + "- " * 30 + "n", "n = " + "- " * 31 + "n", "is nested more than 30 deep; allowed: at most 30"),
    (f"n in ({'-9, ' * 40_000}1)", f"s in ({'s, ' * 99_995}s)", "has 100,001 characters outside"),
    (
        "s in (" + ", ".join(["'2026-11-20'"] * 70_000) + ")",
        f"s = ''{' ' * 999_995}",
        "has 1,000,001 characters; allowed: at",
    ),
    (f"s = '{'x' * 998}'", f"s = '{'x' * 999}'", "holds a text of 1,001 characters; allowed: at most 1,000"),
    (
        nested("replace(", "s", ", '-', t)", 4) + " = 'x'",
        nested("replace(", "s", ", '-', t)", 5) + " = 'x'",
        WORK.format("replace"),
    ),
    (
        nested("replace(", "s", f", '-', '{'x' * 98}')", 2) + " = 'x'",
        nested("replace(", "s", f", '-', '{'x' * 99}')", 2) + " = 'x'",
        WORK.format("replace"),
    ),
    (
        nested("coalesce(", "s", ", t)", 8) + " = 'x'",
        nested("coalesce(", "s", ", t)", 9) + " = 'x'",
        WORK.format("coalesce"),
    ),
    (
        nested("case when n = 1 then ", "1", " end", 8) + " = 1",
        nested("case when n = 1 then ", "1", " end", 9) + " = 1",
        WORK.format("case"),
    ),
    (
        f"date_format(at, '{'y' * 998}') = s",
        f"date_format(at, '{'y' * 9999}') = s",
        "holds a text of 10,001 characters; allowed: at",
    ),
]


@pytest.mark.outcome("a filter on which an engine crashes or takes all memory", "exit 2: `source.where` {message} ...")
@pytest.mark.parametrize(("most", "given", "message"), LIMITS, ids=[f"{m} {g[:20]}" for _, g, m in LIMITS])
def test_a_filter_that_ends_or_stalls_an_engine_is_refused_with_numbers(most: str, given: str, message: str) -> None:
    assert condition("source.where", most) == most
    with pytest.raises(ConfigError) as caught:
        condition("source.where", given)
    assert str(caught.value).startswith(f"source.where {message}")


@pytest.mark.outcome("the filter {given}", "exit 2: `source.where` {message} ...")
@pytest.mark.parametrize(("given", "message"), messages("filters"))
def test_a_filter_that_could_do_more_is_refused_before_spark_sees_it(given: str, message: str) -> None:
    for section in ("source", "judgements"):
        document: dict[str, Any] = {"source": {"path": "logs"}, "judgements": {"path": "truth"}}
        document[section]["where"] = given
        with pytest.raises(ConfigError) as caught:
            from_mapping(document)
        assert str(caught.value).startswith(f"{section}.where {message}")
        assert "\n" not in str(caught.value)


def test_no_known_function_reaches_beyond_the_row() -> None:
    bad = re.compile(r"java|reflect|file|user|catalog|session|schema|secret|uuid|rand|avro|protobuf|xml|xpath|variable")
    assert [name for name in sorted(KNOWN) if bad.search(name)] == []


# ---- table names


@pytest.mark.parametrize("given", ["logs", "main.ranking.impressions", "`click logs`.`2026-01`", "main.`x``y`.z"])
def test_a_table_has_a_name_with_parts(given: str) -> None:
    assert table_name("source.table", given) == given


@pytest.mark.outcome("the table {given}", "exit 2: what the name of a table is")
@pytest.mark.parametrize("given", [*texts("tables that are more than a name"), "a\n"])
@pytest.mark.parametrize("section", ["source", "judgements", "sink"])
def test_a_table_name_that_is_more_than_a_name_is_refused(section: str, given: str) -> None:
    document: dict[str, Any] = {"source": {"path": "logs"}, "sink": {"format": "delta"}}
    document[section] = document.get(section, {}) | {"table": given}
    if section == "source":
        del document["source"]["path"]
    with pytest.raises(ConfigError, match=rf"^{section}\.table (is .*; allowed: the name of a table|holds '\$\{{')"):
        from_mapping(document)


@pytest.mark.outcome("a column name with `${...}`, which Spark would replace", "exit 2")
@pytest.mark.parametrize("part", [{"columns": {"user": "${env:HOME}"}}, {"list": "${x}"}, {"segments": ["a", "${x}"]}])
def test_a_column_name_that_spark_would_replace_is_refused(part: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"^source: the column '\$\{.*\}' holds '\$\{', which Spark replaces"):
        from_mapping({"source": {"path": "logs"} | part})


def test_a_delta_folder_that_spark_would_replace_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^sink\.path holds '\$\{', which Spark replaces"):
        from_mapping({"source": {"path": "logs"}, "sink": {"format": "delta", "path": "out/${env:HOME}"}})


# ---- secrets

ADDRESSES = [
    *texts("addresses with a secret"),
    f"https://x/y {'eyJhbGciOiJIUzI1NiJ9.hushhushhush.hush'}",
    *(
        f"https://x/y?a=1&{name}=hu%3Dhush#hush"
        for name in ["pass", "auth", "authkey", "pat", "subscription-key", "code", "sv2"]
    ),
    *(f"https://x/y?{name}=hush,hush" for name in ("pass", "X-Goog-Credential", "whatever")),
    "https://x/y -----BEGIN RSA PRIVATE KEY-----\nhush\nhush\n-----END RSA PRIVATE KEY-----",
    *(f"https://x/y {name}=hush" for name in ("pass", "pat", "authkey", "auth_key", "subscription-key", "PGPASSWORD")),
]


@pytest.mark.outcome(
    "a setting whose name says key, secret, token, password, sas, credential, ...",
    "its value is `(hidden)` in the run record and in messages",
)
@pytest.mark.parametrize("name", texts("settings that are secret"))
def test_the_value_of_a_secret_setting_is_not_stored_and_not_printed(name: str) -> None:
    assert is_secret(name)
    document = {"source": {"path": "logs", "options": {name: "hush"}}, "spark": {name: "hush"}}
    stored = json.dumps(as_dict(from_mapping(document)))
    assert "hush" not in stored and stored.count(HIDDEN) == 2
    assert "hush" not in str(refuse(f"spark.{name}", ["hush"], "a text"))


@pytest.mark.outcome(
    "a password, key or signature in a path or an option", "`(hidden)` in the run record and in messages"
)
@pytest.mark.parametrize("address", ADDRESSES)
def test_a_password_in_an_address_is_not_stored_and_not_printed(address: str) -> None:
    documents: list[dict[str, Any]] = [
        {"source": {"path": [address], "options": {"url": address}}},
        {"source": {"path": "logs"}, "sink": {"path": address}},
    ]
    stored = json.dumps([as_dict(from_mapping(document)) for document in documents])
    assert "hush" not in stored and stored.count(HIDDEN) >= 3
    assert "hush" not in str(InputError(f"cannot read parquet from '{address}': no such file {address}"))


@pytest.mark.parametrize("address", ["hdfs://user:{}@nn:8020/x", "https://u:{}@h/x", "redis://:{}@h:6379"])
def test_a_password_of_digits_is_no_port(address: str) -> None:
    assert "123456" not in str(InputError(f"cannot read parquet from '{address.format(123456)}'"))


@pytest.mark.parametrize("plain", texts("texts without a secret"))
def test_what_holds_no_secret_stays_as_it_is(plain: str) -> None:
    assert without_secrets(plain) == plain


@pytest.mark.parametrize(
    "name", ["spark.sql.shuffle.partitions", "header", "sep", "spark.sql.ansi.enabled", "pathGlobFilter", "spark.x"]
)
def test_other_settings_are_stored(name: str) -> None:
    assert as_dict(from_mapping({"source": {"path": "logs"}, "spark": {name: "5"}}))["spark"] == {name: "5"}


@pytest.mark.parametrize("name", ["spark.executor.extraJavaOptions", "kafka.sasl.x", "spark.executorEnv.A", "mine"])
@pytest.mark.outcome(
    "a text as the value of an option or a setting whose name is not known to be public: {name}",
    "`(hidden)` in the run record and in messages; numbers, sizes and switches are shown",
)
def test_a_setting_is_hidden_unless_it_is_known_to_be_public(name: str) -> None:
    more = {"sep": "\t", "dateFormat": "yyyy-MM-dd", "spark.sql.session.timeZone": "UTC", "spark.driver.memory": "8g"}
    more |= dict.fromkeys(PUBLIC.split(), "plain")
    more |= {"spark.hadoop.fs.s3a.bucket.logs.endpoint": "https://s3.local:9000"}
    document = {"source": {"path": "logs", "options": {name: "hush", **more}}, "spark": {name: "hush", **more}}
    stored = as_dict(from_mapping(document))
    assert stored["spark"] == stored["source"]["options"] == {name: HIDDEN, **more}
    for place in ("spark", "source.options"):
        assert "hush" not in str(refuse(f"{place}.{name}", ["hush"], "a text"))
    # Where a service is may hold who enters.
    for value in ("me:hush@host:9000", "https://me:hush@host", "https://host?sig=hush"):
        options = {"endpoint": value, "spark.sql.catalog.x.uri": value}
        stored = as_dict(from_mapping({"source": {"path": "logs", "options": options}}))["source"]["options"]
        assert "hush" not in str(stored) and all(HIDDEN in each for each in stored.values())


PUBLIC = """unescapedQuoteHandling charToEscapeQuoteEscaping startingTimestamp customSchema table path sheetName
    snapshotId snapshot-id sfWarehouse lineSep endpoint spark.yarn.queue spark.kubernetes.namespace spark.pyspark.python
    spark.archives spark.files spark.kubernetes.container.image spark.sql.catalog.lake.s3.endpoint"""


def test_experiments_filters_and_folders_may_be_called_as_secrets() -> None:
    where = "token = 'abc' AND password_reset = 1 AND page LIKE '%?q=shoes&api_key=hush'"
    document = {
        "source": {"path": {"token": "logs/a", "secret_key": "s3a://me:hush@b/c"}, "where": where},
        "comparison": {"shares": {"token": 0.5, "secret_key": 0.5}, "baseline": "token"},
    }
    stored = as_dict(from_mapping(document))
    assert stored["source"]["path"] == {"token": ["logs/a"], "secret_key": [f"s3a://{HIDDEN}@b/c"]}
    assert stored["source"]["where"] == where.replace("hush", HIDDEN)
    assert stored["comparison"]["shares"] == {"token": 0.5, "secret_key": 0.5}
    assert "1.5" in str(refuse("comparison.shares.secret_key", 1.5, "a share"))
    assert without_secrets("s3a://b/token=abc/day=1/x") == f"s3a://b/token={HIDDEN}/day=1/x"


# ---- nothing of a user is run


MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "code", "runpy", "ctypes"}
NEEDED = {"sail/server.py": {"ctypes"}}
"""File -> what it needs all the same: the filter of a port is handed to the kernel as a C structure."""


def sources() -> list[Path]:
    return sorted([*PACKAGE.rglob("*.py"), *JOBS.rglob("*.py")])


@pytest.mark.parametrize("file", sources(), ids=lambda file: str(file.relative_to(PACKAGE.parent)))
def test_no_module_evaluates_or_unpickles_anything(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
            refused = MODULES - NEEDED.get(file.relative_to(file.parents[1]).as_posix(), set())
            assert not refused & {name.partition(".")[0] for name in names}, f"line {node.lineno}"
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in ("eval", "exec", "compile", "__import__", "os.system", "os.popen"), (
                f"line {node.lineno}"
            )
            if called.endswith((".load", ".load_all", ".unsafe_load", ".full_load")) and called.startswith("yaml"):
                loaders = [ast.unparse(word.value) for word in node.keywords if word.arg == "Loader"]
                assert (called, loaders) == ("yaml.load", ["_Loader"]), f"line {node.lineno}"
            for word in node.keywords:
                if word.arg in ("shell", "allow_pickle"):
                    assert ast.unparse(word.value) == "False", f"line {node.lineno}"


@pytest.mark.outcome("a YAML tag that would make an object or call a function", "exit 2: the line; nothing is called")
def test_yaml_tags_that_make_objects_are_refused(tmp_path: Path) -> None:
    from rankmetrics_spark.config import load

    for content in ("!!python/object/apply:os.system ['id']", "!!python/name:os.system", "!!python/tuple [1]"):
        (tmp_path / "c.yaml").write_text(f"source: {content}\n")
        with pytest.raises(ConfigError, match="is not valid YAML: line 1, column 9: could not determine a constructor"):
            load(tmp_path / "c.yaml")


@pytest.mark.parametrize(
    "part", ["n", "n.", "secret", "a=", "?", "://", "x;", "'", "\\", "a:", "x://a:", "-----BEGIN "]
)
def test_a_long_text_takes_no_time_to_look_for_secrets(part: str) -> None:
    text = part * (600_000 // len(part))
    # A search that starts again at every character would take hours.
    assert without_secrets(text) == text


def test_a_secret_inside_of_a_value_is_found() -> None:
    assert without_secrets("url=x?a=1&token=hush&b=2 c=api_key=hush") == (
        f"url=x?a=1&token={HIDDEN}&b=2 c=api_key={HIDDEN}"
    )
    assert without_secrets("1s3a://me:hush@bucket") == f"1s3a://{HIDDEN}@bucket"


def test_a_long_secret_leaves_no_part_of_it() -> None:
    payload = "hush" * 1_000
    for text in (f"eyJhbGciOiJIUzI1NiJ9.{payload}.{payload}", f"Bearer {payload}", f"a/b eyJx.{payload}"):
        assert "hush" not in str(InputError(f"cannot read '{text}'"))


# ---- dates outside quotes


@pytest.mark.parametrize("where", ["day = {date}", "day >= 2026-11-20", "a = 'x' and day<{date}", "day in (2026-1-2)"])
@pytest.mark.outcome("a date outside quotes in a filter: {where}", "exit 2: in quotes; 2026-11-20 is the number 1995")
def test_a_date_outside_quotes_is_refused_since_it_is_arithmetic(where: str) -> None:
    with pytest.raises(
        ConfigError, match=r"outside quotes, where a date is arithmetic \(2026-11-20 is 1995\); allowed: '"
    ):
        condition("source.where", where)


@pytest.mark.parametrize("where", texts("filters with a date in quotes"))
def test_a_date_in_quotes_is_not(where: str) -> None:
    assert condition("source.where", where) == where


@pytest.mark.parametrize(
    ("name", "shown"), [("Anna_7", "Aaaa_9"), ("٣é", "9a"), ("", ""), ("7" * 41, "9" * 40 + "... (41 characters)")]
)
def test_a_message_shows_the_shape_of_an_id(name: str, shown: str) -> None:
    assert shape(name) == shown


def test_a_failing_filter_names_no_value_of_the_log() -> None:
    section = Source(path=("logs",), where="cast(user_id as int) = 1 and s rlike '('")
    for value in ("u", "Anna", "O'Neil", "user_id"):
        message = str(failed_filter(ValueError(f"[CAST_INVALID_INPUT] The value '{value}' of the type"), [section]))
        assert f"[CAST_INVALID_INPUT] The value {HIDDEN} of the type; allowed: " in message
    kept = failed_filter(ValueError("[INVALID_PARAMETER_VALUE.PATTERN] invalid: '('. SQLSTATE: 22023"), [section])
    assert "invalid: '('" in str(kept)
