"""A Hadoop of one node on loopback: HDFS and YARN, each of their four daemons as a process of its own."""

import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from rankmetrics_spark.engines import QUICK_JAVA
from tests.helpers.commands import ROOT, ran, spark_environment, succeeded
from tests.platforms.support import Running

JARS = ROOT / ".jars" / "yarn"

# Port 0: the system chooses a free port, so no other process can take it first.
ANY = "127.0.0.1:0"
HDFS = dict.fromkeys((f"dfs.datanode.{kind}address" for kind in ("", "http.", "ipc.")), ANY)
HDFS |= {"dfs.namenode.http-address": ANY, "dfs.replication": "1"}
SCHEDULER = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler"
YARN = {
    "yarn.resourcemanager.webapp.address": ANY,
    **dict.fromkeys((f"yarn.nodemanager.{kind}address" for kind in ("", "localizer.", "webapp.")), ANY),
    # The default one needs a file with queues.
    "yarn.resourcemanager.scheduler.class": SCHEDULER,
    "yarn.scheduler.minimum-allocation-mb": "256",
    "yarn.nodemanager.resource.memory-mb": "4096",
    # Java reserves much more virtual memory than it uses.
    "yarn.nodemanager.vmem-check-enabled": "false",
    # A node takes no work while its disk is nearly full, by default.
    "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": "100",
    # `yarn logs` reads the logs of applications that have ended from HDFS.
    "yarn.log-aggregation-enable": "true",
}
# Services of the ResourceManager; the first one is for clients.
SERVICES = [f"yarn.resourcemanager.{name}address" for name in ("", "scheduler.", "resource-tracker.", "admin.")]


@dataclass(frozen=True)
class Hadoop:
    """A Hadoop whose settings (in ``conf``), files and logs are in one folder, and the daemons that were started."""

    folder: Path
    running: list[Running] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        return spark_environment(HADOOP_CONF_DIR=str(self.folder / "conf"))

    def run(self, program: str, *arguments: object) -> str:
        """Run a program until it ends, and return what it prints."""
        done = succeeded(ran(self._command(program, *arguments), self.folder, self.environment, 120))
        return done.stdout

    def start(self, program: str) -> Running:
        log = self.folder / f"{program.rpartition('.')[2]}.log"
        self.running.append(Running.start(self._command(program), log, self.environment, self.folder))
        return self.running[-1]

    def _command(self, program: str, *arguments: object) -> list[str]:
        """The command that runs a class of Hadoop, as its scripts ``hdfs`` and ``yarn`` do."""
        environment = self.environment
        jars = (self.folder / "conf", JARS / "*", Path(environment["SPARK_HOME"], "jars", "*"))
        return [
            f"{environment['JAVA_HOME']}/bin/java",
            *("-Xmx256m", *QUICK_JAVA.split(), f"-Djava.io.tmpdir={self.folder}"),
            # From Spark's jars: everything goes to stderr.
            "-Dlog4j2.configurationFile=org/apache/spark/log4j2-defaults.properties",
            *("-cp", ":".join(map(str, jars)), f"org.apache.hadoop.{program}", *map(str, arguments)),
        ]

    def configure(self, name: str, settings: Mapping[str, str]) -> None:
        """Write the settings of ``core``, ``hdfs`` or ``yarn``."""
        root = ElementTree.Element("configuration")
        for key, value in settings.items():
            one = ElementTree.SubElement(root, "property")
            ElementTree.SubElement(one, "name").text = key
            ElementTree.SubElement(one, "value").text = value
        ElementTree.ElementTree(root).write(self.folder / "conf" / f"{name}-site.xml")


@contextmanager
def hadoop(folder: Path) -> Iterator[Hadoop]:
    """Run HDFS and YARN in a new folder, ready for ``spark-submit --master yarn``, until the block ends."""
    (folder / "conf").mkdir(parents=True)
    node = Hadoop(folder)
    try:
        start_hdfs(node)
        start_yarn(node)
        yield node
    finally:
        # Stop the newest first: the NodeManager ends its containers.
        for process in reversed(node.running):
            process.stop()


def start_hdfs(node: Hadoop) -> None:
    core = {"hadoop.tmp.dir": str(node.folder / "data")}
    node.configure("core", core | {"fs.defaultFS": f"hdfs://{ANY}"})
    node.configure("hdfs", HDFS)
    node.run("hdfs.server.namenode.NameNode", "-format", "-nonInteractive")
    port = node.start("hdfs.server.namenode.NameNode").wait_for(r"RPC up at: \S+:(\d+)", 120)[1]
    node.configure("core", core | {"fs.defaultFS": f"hdfs://127.0.0.1:{port}"})
    node.start("hdfs.server.datanode.DataNode").wait_for("Successfully sent block report", 120)


def start_yarn(node: Hadoop) -> None:
    folders = {
        "yarn.nodemanager.log-dirs": str(node.folder / "logs"),
        "yarn.node-attribute.fs-store.root-dir": (node.folder / "attributes").as_uri(),
    }
    node.configure("yarn", YARN | folders | dict.fromkeys(SERVICES, ANY))
    manager = node.start("yarn.server.resourcemanager.ResourceManager")
    manager.wait_for("Transitioned to active state", 120)
    node.configure("yarn", YARN | folders | services(manager.wait_for(r"Web app cluster started at (\d+)", 10)[1]))
    node.start("yarn.server.nodemanager.NodeManager").wait_for("Registered with ResourceManager", 120)


def services(port: str) -> dict[str, str]:
    """The addresses of a ResourceManager's services, from its web page with all settings."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}/conf", headers={"Accept": "text/xml"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        settings = ElementTree.parse(answer).iter("property")
    result = {str(one.findtext("name")): str(one.findtext("value")) for one in settings}
    return {name: result[name] for name in SERVICES}
