//! Medians, ranges, percentiles and fairness.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Summary {
    /// The middle value, or the mean of the middle two values if the number of values is even.
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Summary {
    /// Returns the median and the range of `values`; `None` if there are no values.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let sorted = sorted(values);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let upper = sorted.len() / 2;
        let lower = (sorted.len() - 1) / 2;

        Some(Self {
            median: f64::midpoint(sorted[lower], sorted[upper]),
            min,
            max,
        })
    }
}

/// Returns the nearest-rank percentile: the smallest value that is at least as large as `percent`
/// percent of the values. Returns `None` if there are no values.
pub(super) fn percentile(values: &[f64], percent: usize) -> Option<f64> {
    let sorted = sorted(values.iter().copied());
    let rank = (sorted.len() * percent).div_ceil(100).max(1);

    sorted.get(rank - 1).copied()
}

/// Returns Jain's fairness index: 1 if all n shares are equal, 1 / n if all but one are zero.
/// Returns `None` if all shares are zero.
pub(super) fn fairness(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();

    (squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}

fn sorted(values: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_odd_number_is_the_middle() {
        let summary = Summary::of([3.0, 1.0, 2.0]).unwrap();

        assert_eq!(
            summary,
            Summary {
                median: 2.0,
                min: 1.0,
                max: 3.0
            }
        );
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_two() {
        assert_eq!(Summary::of([4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
    }

    #[test]
    fn no_values_have_no_median() {
        assert_eq!(Summary::of([]), None);
        assert_eq!(percentile(&[], 50), None);
    }

    #[test]
    fn equal_shares_are_fair() {
        assert_eq!(fairness(&[2.0, 2.0, 2.0, 2.0]), Some(1.0));
        assert_eq!(fairness(&[8.0, 0.0, 0.0, 0.0]), Some(0.25));
        assert_eq!(fairness(&[0.0, 0.0]), None);
        assert_eq!(fairness(&[]), None);
    }

    #[test]
    fn percentiles_are_measured_values() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();

        assert_eq!(percentile(&values, 50), Some(100.0));
        assert_eq!(percentile(&values, 99), Some(198.0));
        assert_eq!(percentile(&values, 100), Some(200.0));
        assert_eq!(percentile(&[7.0], 1), Some(7.0));
    }
}
