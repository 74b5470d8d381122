//! Comparison of two samples of response times: the two-sample Kolmogorov-Smirnov test for the distributions, Welch's t-test
//! for the means.

/// The difference between two samples.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comparison {
    /// The asymptotic p-value of the Kolmogorov-Smirnov test.
    pub(crate) ks_p: f64,
    /// Welch's t: the difference of the means in standard errors.
    pub(crate) welch_t: f64,
}

impl Comparison {
    pub(crate) fn of(one: &[f64], other: &[f64]) -> Self {
        Self { ks_p: ks_p(one, other), welch_t: welch_t(one, other) }
    }
}

fn ks_p(one: &[f64], other: &[f64]) -> f64 {
    let distance = ks_distance(one, other);
    let size = (count(one) * count(other) / (count(one) + count(other))).sqrt();
    // Stephens' correction for small samples, then Kolmogorov's series.
    let lambda = (size + 0.12 + 0.11 / size) * distance;
    let term = |k: i32| {
        let k = f64::from(k);
        (-2.0 * k * k * lambda * lambda).exp()
    };
    let sum: f64 = (1..=100).map(|k| if k % 2 == 1 { term(k) } else { -term(k) }).sum();
    // The series does not converge near 0, where the samples are equal.
    if lambda < 0.2 { 1.0 } else { (2.0 * sum).clamp(0.0, 1.0) }
}

/// The largest difference of the two cumulative distributions.
fn ks_distance(one: &[f64], other: &[f64]) -> f64 {
    let share_up_to = |values: &[f64], limit: f64| {
        let below: Vec<_> = values.iter().copied().filter(|value| *value <= limit).collect();
        count(&below) / count(values)
    };
    let distances =
        one.iter().chain(other).map(|value| (share_up_to(one, *value) - share_up_to(other, *value)).abs());
    distances.fold(0.0, f64::max)
}

fn welch_t(one: &[f64], other: &[f64]) -> f64 {
    let error = (variance(one) / count(one) + variance(other) / count(other)).sqrt();
    (mean(one) - mean(other)) / error
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / count(values)
}

fn variance(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count(values) - 1.0)
}

#[expect(clippy::cast_precision_loss, reason = "samples are small")]
fn count(values: &[f64]) -> f64 {
    values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(from: i32, to: i32) -> Vec<f64> {
        (from..to).map(f64::from).collect()
    }

    #[test]
    fn equal_samples_do_not_differ_and_shifted_samples_do() {
        let same = Comparison::of(&sample(0, 60), &sample(0, 60));
        assert!(same.ks_p > 0.99 && same.welch_t.abs() < 1e-9, "{same:?}");
        let shifted = Comparison::of(&sample(0, 60), &sample(40, 100));
        assert!(shifted.ks_p < 1e-6 && shifted.welch_t < -10.0, "{shifted:?}");
    }

    /// The critical distance of two samples of 60 values is 1.358 / sqrt(30) = 0.248 at 5 %, according to the table of the test.
    #[test]
    fn the_kolmogorov_smirnov_test_matches_its_table() {
        let at = |shift| Comparison::of(&sample(0, 60), &sample(shift, 60 + shift)).ks_p;
        assert!(at(13) > 0.05 && at(16) < 0.05, "{} {}", at(13), at(16));
    }

    /// Means 2 and 4, variances 1 and 4, three values each: t = -2 / sqrt(1/3 + 4/3).
    #[test]
    fn welchs_t_matches_a_manual_calculation() {
        let t = welch_t(&[1.0, 2.0, 3.0], &[2.0, 4.0, 6.0]);
        assert!((t + 2.0 / (5.0_f64 / 3.0).sqrt()).abs() < 1e-9, "{t}");
    }
}
