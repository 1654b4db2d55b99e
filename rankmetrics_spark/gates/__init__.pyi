from .counts import Counts as Counts
from .counts import Inspected as Inspected
from .counts import total_counts as total_counts
from .limits import Findings as Findings
from .limits import gate_checks as gate_checks
from .quality import Previous as Previous
from .quality import check_quality as check_quality
