"""Tools around the product: the demo log, and the self-test against golden values."""

from typing import TYPE_CHECKING

from rankmetrics_spark.doors import lazy

if TYPE_CHECKING:
    from rankmetrics_spark.tools.demo import BEST_FIRST, FAULTS, FILES, SLOTS, USERS_PER_FAULT, DemoLog, make_log
    from rankmetrics_spark.tools.first_config import FirstConfig
    from rankmetrics_spark.tools.guessing import Guess, guesses, numbers, present, unusable, unusable_names
    from rankmetrics_spark.tools.log_sample import FORMAT_OF, SAMPLE_ROWS, LogSample, checked_sample, sample
    from rankmetrics_spark.tools.selftest import by_kernels, by_spark, golden_checks

__getattr__ = lazy(
    __name__,
    {
        "demo": "BEST_FIRST DemoLog FAULTS FILES SLOTS USERS_PER_FAULT make_log",
        "first_config": "FirstConfig",
        "guessing": "Guess guesses numbers present unusable unusable_names",
        "log_sample": "FORMAT_OF LogSample SAMPLE_ROWS checked_sample sample",
        "selftest": "by_kernels by_spark golden_checks",
    },
)
