"""Statistics as plain arithmetic on arrays: NumPy and SciPy, no Spark; SciPy is loaded on first use."""

from typing import TYPE_CHECKING

from rankmetrics_spark.doors import lazy

if TYPE_CHECKING:
    from rankmetrics_spark.statistics.corrections import CORRECTIONS, adjusted_p_values, strictest_level
    from rankmetrics_spark.statistics.exact_sums import (
        LARGEST_SUMMAND,
        LIMB_EXPONENTS,
        LIMB_UNIT,
        POWERS,
        SQUARE_EXPONENTS,
        Floats,
        exact_mean,
        exact_total,
        limb_columns,
        limbs_of,
        total_of,
    )
    from rankmetrics_spark.statistics.moments import Moments, PairMoments, Whole, t_interval
    from rankmetrics_spark.statistics.nonparametric import sign_flip_p, signed_rank
    from rankmetrics_spark.statistics.replicates import (
        aa_share_independent,
        aa_share_paired,
        acceleration_of_difference,
        bca,
        percentile,
    )
    from rankmetrics_spark.statistics.resampling import (
        POISSON_COUNTS,
        RESAMPLING_LIMBS,
        poisson_weights,
        random_bits,
        random_signs,
        weighted_sums,
        weighted_totals,
    )
    from rankmetrics_spark.statistics.segments import decompose, splits
    from rankmetrics_spark.statistics.significance import (
        Estimate,
        effect_size_independent,
        effect_size_paired,
        minimum_detectable_effect,
        paired_t,
        relative_independent,
        relative_paired,
        sample_ratio_p,
        users_needed,
        welch,
    )
    from rankmetrics_spark.statistics.variance_reduction import (
        CovariateMoments,
        Interval,
        cuped_independent,
        cuped_paired,
        relative_cuped_independent,
        relative_cuped_paired,
        theta,
        variance_reduction_of,
    )

__getattr__ = lazy(
    __name__,
    {
        "corrections": "CORRECTIONS adjusted_p_values strictest_level",
        "exact_sums": (
            "Floats LARGEST_SUMMAND LIMB_EXPONENTS LIMB_UNIT POWERS SQUARE_EXPONENTS exact_mean exact_total "
            "limb_columns limbs_of total_of"
        ),
        "moments": "Moments PairMoments Whole t_interval",
        "nonparametric": "sign_flip_p signed_rank",
        "replicates": "aa_share_independent aa_share_paired acceleration_of_difference bca percentile",
        "resampling": (
            "POISSON_COUNTS RESAMPLING_LIMBS poisson_weights random_bits random_signs weighted_sums weighted_totals"
        ),
        "segments": "decompose splits",
        "significance": (
            "Estimate effect_size_independent effect_size_paired minimum_detectable_effect paired_t "
            "relative_independent relative_paired sample_ratio_p users_needed welch"
        ),
        "variance_reduction": (
            "CovariateMoments Interval cuped_independent cuped_paired relative_cuped_independent "
            "relative_cuped_paired theta variance_reduction_of"
        ),
    },
)
