"""An archive of the classes that Java loads for Spark: with it, Spark starts faster.

``rankmetrics_spark.tools.archive_classes`` makes it. A Java that finds no archive, or one that does not fit, loads its
classes from the jars, as always.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from rankmetrics_spark.engines import cache

JAVA_OF_AOT = 25
"""The first Java whose messages about archives carry the tag ``aot``; an older one refuses an unknown tag."""
CONFUSED_BY_TWICE = range(18, 25)
"""Javas that take a class path with a jar twice for another one than that of the archive. Spark's class path is such a
one: it names a jar by itself, and again by a wildcard."""
# A part of the script that runs such a Java with an archive. One argument may have 128 kB.
EACH_JAR_ONCE = r"""add() {
  for path do
    case "$once" in *":$path:"*) ;; *) once="$once$path:" ;; esac
  done
}
each_once() {
  IFS=: once=:
  set -f
  for entry in $1; do
    set +f
    case "$entry" in
      */\*) add "${entry%\*}"*.jar ;;
      *) add "$entry" ;;
    esac
  done
  once=${once#:}
  if [ ${#once} -gt 120000 ]; then once=$1:; fi
  printf '%s\n' "${once%:}"
}
case "$*" in
  *-XX:SharedArchiveFile=* | *-XX:ArchiveClassesAtExit=*)
    before=
    for argument do
      shift
      if [ "$before" = -cp ]; then argument=$(each_once "$argument"); fi
      set -- "$@" "$argument"
      before=$argument
    done
    ;;
esac
"""
# Where Java and Spark's launcher take options for the JVM from, besides the settings of a session.
VARIABLES = ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
_ARCHIVE_OPTION = re.compile(r"-Xshare|-XX:(?:SharedArchiveFile|ArchiveClassesAtExit|[+-]AutoCreateSharedArchive|AOT)")


_PLAIN = "/;:@&=+$,!*'()"
"""Besides letters and digits, what Java does not encode in the URL of a file."""


@dataclass(frozen=True)
class ClassArchive:
    """The archive of one Java and one Spark, which may not have been made.

    Attributes:
        java: The executable that runs, no script that starts it.
        major: Its major version.
        spark: The folder of Spark, with its jars.
    """

    java: Path
    major: int
    spark: Path

    @property
    def stem(self) -> Path | None:
        """How its files are called; None where none can be kept. Another Java or other jars have another stem."""
        folder = cache.folder()
        # Java reads a path with this character as two paths, and archives no class of a jar whose path a URL encodes.
        encoded = quote(str(self.spark), safe=_PLAIN) != str(self.spark)
        if folder != cache.lasting_folder() or os.pathsep in str(folder) or encoded:
            return None
        return folder / f"classes-{hashlib.sha256(self._made_of().encode()).hexdigest()[:12]}"

    @property
    def path(self) -> Path | None:
        """Where it is; None if it has not been made, or if a file has not the size that its name gives."""
        stem = self.stem
        if stem is None:
            return None
        # Java 17 crashes on an archive that was cut off; it notices everything else.
        files = list(stem.parent.glob(f"{stem.name}.*.jsa"))
        made = [file for file in files if ".base." not in file.name]
        return made[0] if made and all(map(_is_whole, files)) else None

    @property
    def silence(self) -> str:
        """The option that keeps Java from saying on stdout that an archive does not fit."""
        return "-Xlog:cds*=off" + (",aot*=off" if self.major >= JAVA_OF_AOT else "")

    def options(self, given: str = "") -> str:
        """The options with which a JVM uses it, quoted for Spark's launcher; empty if there is none to use.

        Args:
            given: The user's own options. If they, or those of the environment, name an archive, that one is used.
        """
        own = " ".join([given, *(os.environ.get(name, "") for name in VARIABLES)])
        path = None if _ARCHIVE_OPTION.search(own) else self.path
        # Where there is a base, its name is in the archive.
        return f"{shlex.quote(f'-XX:SharedArchiveFile={path}')} {self.silence}" if path else ""

    def _made_of(self) -> str:
        """What it depends on: Java compares its own version, and the path, size and date of each jar."""
        java = self.java.resolve()
        release = java.parent.parent / "release"
        files = [java, *([release] if release.is_file() else []), *sorted(self.spark.glob("jars/*"))]
        found = [(str(file), file.stat()) for file in files]
        return repr([self.major, sys.prefix, *((name, stat.st_size, stat.st_mtime_ns) for name, stat in found)])


def _is_whole(file: Path) -> bool:
    size = file.name.split(".")[-2]
    return size == str(file.stat().st_size)
