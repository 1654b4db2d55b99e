"""Statistics as plain arithmetic on arrays: NumPy and SciPy, no Spark; SciPy is loaded on first use."""

from typing import TYPE_CHECKING

from rankmetrics_spark.doors import lazy

if TYPE_CHECKING:
    from rankmetrics_spark.statistics.corrections import (
        CORRECTIONS,
        adjusted_levels,
        adjusted_p_values,
        strictest_level,
        tukey_levels,
        tukey_p_values,
    )
    from rankmetrics_spark.statistics.exact_sums import (
        LARGEST_SUMMAND,
        LIMB_EXPONENTS,
        LIMB_UNIT,
        POWERS,
        SQUARE_EXPONENTS,
        Floats,
        Moments,
        PairMoments,
        RatioPairSums,
        RatioSums,
        Whole,
        exact_mean,
        exact_total,
        group_sums,
        limb_columns,
        limbs_of,
        limbs_of_products,
        t_interval,
        total_of,
    )
    from rankmetrics_spark.statistics.planning import FURTHEST, Arrivals, Design, first_day, new_users, round_below
    from rankmetrics_spark.statistics.ratios import (
        Denominator,
        denominator_independent,
        denominator_paired,
        fieller,
        nonzero,
        one_sided_p,
        share_independent,
        shifted,
        with_decision,
        with_share,
    )
    from rankmetrics_spark.statistics.resampling import (
        POISSON_COUNTS,
        RESAMPLING_LIMBS,
        aa_share_independent,
        aa_share_paired,
        acceleration_of_difference,
        bca,
        interpolated,
        percentile,
        poisson_weights,
        quantile_ranks,
        random_bits,
        random_signs,
        weighted_sums,
        weighted_totals,
    )
    from rankmetrics_spark.statistics.segments import decompose, splits
    from rankmetrics_spark.statistics.sequential import (
        MOST_LOOKS,
        SPENDING,
        AnyLook,
        Looks,
        PlannedLook,
        always_valid_bound,
        always_valid_p,
        critical_value,
        mixture_rho,
        over_looks,
        spending_bounds,
    )
    from rankmetrics_spark.statistics.shares import bounds_without_spread, left_out_p, most_others, sample_ratio_p
    from rankmetrics_spark.statistics.significance import (
        Estimate,
        difference_of_differences,
        effect_size_independent,
        effect_size_paired,
        minimum_detectable_effect,
        paired_t,
        permutation_p,
        sign_flip_p,
        signed_rank,
        users_needed,
        welch,
    )
    from rankmetrics_spark.statistics.variance_reduction import (
        CovariateMoments,
        cuped_denominator_independent,
        cuped_denominator_paired,
        cuped_independent,
        cuped_paired,
        theta,
        variance_reduction_of,
    )

__getattr__ = lazy(
    __name__,
    {
        "corrections": "CORRECTIONS adjusted_levels adjusted_p_values strictest_level tukey_levels tukey_p_values",
        "exact_sums": (
            "Floats LARGEST_SUMMAND LIMB_EXPONENTS LIMB_UNIT POWERS SQUARE_EXPONENTS exact_mean exact_total "
            "group_sums limb_columns limbs_of limbs_of_products total_of Moments PairMoments "
            "RatioPairSums RatioSums Whole t_interval"
        ),
        "ratios": (
            "Denominator denominator_independent denominator_paired fieller nonzero one_sided_p share_independent "
            "shifted with_decision with_share"
        ),
        "resampling": (
            "POISSON_COUNTS RESAMPLING_LIMBS aa_share_independent aa_share_paired acceleration_of_difference bca "
            "interpolated percentile poisson_weights quantile_ranks random_bits random_signs weighted_sums "
            "weighted_totals"
        ),
        "planning": "Arrivals Design FURTHEST first_day new_users round_below",
        "segments": "decompose splits",
        "sequential": (
            "AnyLook Looks MOST_LOOKS PlannedLook SPENDING always_valid_bound always_valid_p critical_value "
            "mixture_rho over_looks spending_bounds"
        ),
        "shares": "bounds_without_spread left_out_p most_others sample_ratio_p",
        "significance": (
            "Estimate difference_of_differences effect_size_independent effect_size_paired "
            "minimum_detectable_effect paired_t permutation_p sign_flip_p signed_rank users_needed welch"
        ),
        "variance_reduction": (
            "CovariateMoments cuped_denominator_independent cuped_denominator_paired cuped_independent cuped_paired "
            "theta variance_reduction_of"
        ),
    },
)
