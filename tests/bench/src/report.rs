//! The results, as a table for people and as JSON for programs.

use std::io::{self, Write as _};
use std::path::Path;

use anyhow::Context as _;
use serde::Serialize;

use crate::statistics;

/// The lines before and after the table in a Markdown file.
const BEGIN: &str = "<!-- Table of make bench -->";
const END: &str = "<!-- End of the table -->";

/// All results.
#[derive(Default, Serialize)]
pub(crate) struct Report {
    cores: usize,
    measurements: Vec<Row>,
    response_times: Vec<ResponseTimes>,
}

/// Response times of a kind of request, compared with those of the first kind.
#[derive(Serialize)]
pub(crate) struct ResponseTimes {
    request: String,
    samples: usize,
    median_ms: f64,
    ks_p: f64,
    welch_t: f64,
}

impl ResponseTimes {
    pub(crate) fn new(request: String, times: &[f64], comparison: statistics::Comparison) -> Self {
        let statistics::Comparison { ks_p, welch_t } = comparison;
        Self { request, samples: times.len(), median_ms: median(times.to_vec()), ks_p, welch_t }
    }

    fn line(&self) -> String {
        let Self { request, samples, median_ms, ks_p, welch_t } = self;
        format!("{request:36}  {samples:>7}  {median_ms:>9.2}  {ks_p:>6.3}  {welch_t:>7.2}\n")
    }
}

/// A measurement with its baseline, by round.
pub(crate) struct Comparison {
    pub(crate) name: &'static str,
    pub(crate) baseline: &'static str,
    /// The measured value and the value of the baseline.
    pub(crate) rounds: Vec<(f64, f64)>,
    /// The target of the ratio.
    pub(crate) target: Option<&'static str>,
}

#[derive(Serialize)]
struct Row {
    name: &'static str,
    value: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    baseline_value: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'static str>,
    rounds: Vec<f64>,
    baseline_rounds: Vec<f64>,
}

impl Report {
    /// Adds a measurement with its baseline. The ratio is the median of the ratios of the rounds, because other load on the
    /// machine affects both halves of a round.
    pub(crate) fn add_comparison(&mut self, comparison: Comparison) {
        let Comparison { name, baseline, rounds, target } = comparison;
        let ratios = rounds.iter().map(|(value, baseline)| value / baseline).collect();
        let (values, baselines): (Vec<_>, Vec<_>) = rounds.into_iter().unzip();
        self.measurements.push(Row {
            name,
            value: median(values.clone()),
            baseline: Some(baseline),
            baseline_value: Some(median(baselines.clone())),
            ratio: Some(median(ratios)),
            target,
            rounds: values,
            baseline_rounds: baselines,
        });
    }

    /// Adds a measurement without a baseline.
    pub(crate) fn add_value(&mut self, name: &'static str, rounds: Vec<f64>) {
        self.measurements.push(Row {
            name,
            value: median(rounds.clone()),
            baseline: None,
            baseline_value: None,
            ratio: None,
            target: None,
            rounds,
            baseline_rounds: Vec::new(),
        });
    }

    /// Adds the response times of a kind of request.
    pub(crate) fn add_response_times(&mut self, times: ResponseTimes) {
        self.response_times.push(times);
    }

    pub(crate) fn write(&mut self, path: &Path) -> anyhow::Result<()> {
        self.cores = std::thread::available_parallelism().map_or(0, usize::from);
        Ok(std::fs::write(path, serde_json::to_vec_pretty(self)?)?)
    }

    pub(crate) fn print(&self) -> io::Result<()> {
        io::stdout().write_all(self.table().as_bytes())?;
        io::stdout().write_all(self.response_time_table().as_bytes())
    }

    /// Replaces the table in a Markdown file, which is between two comments.
    ///
    /// # Errors
    /// The file has no such comments.
    pub(crate) fn write_into(&self, file: &Path) -> anyhow::Result<()> {
        let text = std::fs::read_to_string(file)?;
        let (before, rest) =
            text.split_once(BEGIN).with_context(|| format!("the file has no line {BEGIN}"))?;
        let (_, after) = rest.split_once(END).with_context(|| format!("the file has no line {END}"))?;
        Ok(std::fs::write(file, format!("{before}{BEGIN}\n{}{END}{after}", self.markdown()))?)
    }

    /// The table in Markdown, without the details of measurements.
    fn markdown(&self) -> String {
        let head =
            "| Measurement | Result | Baseline | Ratio | Baseline is |\n| --- | --: | --: | --: | --- |\n";
        let rows = self.measurements.iter().filter(|row| !row.name.starts_with(' '));
        let lines = rows.map(|row| {
            let [name, value, baseline_value, ratio, _, baseline] = row.cells();
            format!("| {name} | {value} | {baseline_value} | {ratio} | {baseline} |\n")
        });
        std::iter::once(head.to_owned()).chain(lines).collect()
    }

    /// The table of response times. Of eight comparisons about one has p < 0.1 by chance. With p < 0.01 or |t| > 3 the
    /// response time reveals the kind of request.
    fn response_time_table(&self) -> String {
        if self.response_times.is_empty() {
            return String::new();
        }
        let (request, samples, median, p, t) =
            ("response time of", "samples", "median ms", "KS p", "Welch t");
        let head = format!("\n{request:36}  {samples:>7}  {median:>9}  {p:>6}  {t:>7}\n");
        std::iter::once(head).chain(self.response_times.iter().map(ResponseTimes::line)).collect()
    }

    fn table(&self) -> String {
        let head = ["measurement", "result", "baseline", "ratio", "target", "baseline is"].map(str::to_owned);
        let rows: Vec<_> = std::iter::once(head).chain(self.measurements.iter().map(Row::cells)).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; 5] = std::array::from_fn(width);
        let line = |[name, value, baseline_value, ratio, target, baseline]: &[String; 6]| {
            let [w0, w1, w2, w3, w4] = widths;
            let line = format!(
                "{name:w0$}  {value:>w1$}  {baseline_value:>w2$}  {ratio:>w3$}  {target:>w4$}  {baseline}"
            );
            format!("{}\n", line.trim_end())
        };
        rows.iter().map(line).collect()
    }
}

impl Row {
    fn cells(&self) -> [String; 6] {
        let number = |value: Option<f64>| value.map(formatted).unwrap_or_default();
        let ratio = self.ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        [
            self.name.to_owned(),
            formatted(self.value),
            number(self.baseline_value),
            ratio,
            text(self.target),
            text(self.baseline),
        ]
    }
}

/// Formats a number with at least three digits and with thousands separators.
fn formatted(value: f64) -> String {
    if value < 10.0 {
        return format!("{value:.2}");
    }
    if value < 100.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The median; of an even number of values, the upper one of the two in the middle. NaN for an empty list.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_medians_and_the_median_of_the_ratios_and_details_are_not_in_a_document() {
        let mut report = Report::default();
        let rounds = vec![(50.0, 100.0), (12_345.0, 24_690.0), (30.0, 40.0)];
        report
            .add_comparison(Comparison { name: "events", baseline: "raw", rounds, target: Some("≥ 0.7") });
        report.add_value("memory", vec![1_234_567.0]);
        let expected = "measurement     result  baseline  ratio  target  baseline is\n\
                        events            50.0       100   0.50   ≥ 0.7  raw\n\
                        memory       1,234,567\n";
        assert_eq!(report.table(), expected);
        report.add_value("  detail", vec![1.0]);
        let expected = "| Measurement | Result | Baseline | Ratio | Baseline is |\n\
                        | --- | --: | --: | --: | --- |\n\
                        | events | 50.0 | 100 | 0.50 | raw |\n\
                        | memory | 1,234,567 |  |  |  |\n";
        let file = tempfile::NamedTempFile::new().unwrap();
        for old in ["", "old\n"] {
            std::fs::write(&file, format!("# A\n{BEGIN}\n{old}{END}\nB\n")).unwrap();
            report.write_into(file.path()).unwrap();
            let text = std::fs::read_to_string(&file).unwrap();
            assert_eq!(text, format!("# A\n{BEGIN}\n{expected}{END}\nB\n"));
        }
    }
}
