//! The figures, for people as a table and for programs as JSON.

use std::io::{self, Write as _};
use std::path::Path;

use serde::Serialize;

use crate::likeness::Likeness;

/// Everything that was measured.
#[derive(Default, Serialize)]
pub(crate) struct Report {
    cores: usize,
    figures: Vec<Row>,
    alike: Vec<Alike>,
}

/// Times of a kind of request, which should be like those of the first kind.
#[derive(Serialize)]
pub(crate) struct Alike {
    kind: String,
    samples: usize,
    median_ms: f64,
    ks_p: f64,
    welch_t: f64,
}

impl Alike {
    pub(crate) fn new(kind: String, times: &[f64], likeness: Likeness) -> Self {
        let Likeness { ks_p, welch_t } = likeness;
        Self { kind, samples: times.len(), median_ms: median(times.to_vec()), ks_p, welch_t }
    }

    fn line(&self) -> String {
        let Self { kind, samples, median_ms, ks_p, welch_t } = self;
        format!("{kind:32}  {samples:>7}  {median_ms:>9.2}  {ks_p:>6.3}  {welch_t:>7.2}\n")
    }
}

/// A figure of ours beside a limit, round by round.
pub(crate) struct Pair {
    pub(crate) figure: &'static str,
    pub(crate) limit: &'static str,
    /// Ours and the limit's.
    pub(crate) rounds: Vec<(f64, f64)>,
    /// What the ratio should be.
    pub(crate) aim: Option<&'static str>,
}

#[derive(Serialize)]
struct Row {
    figure: &'static str,
    ours: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    beside: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aim: Option<&'static str>,
    ours_rounds: Vec<f64>,
    limit_rounds: Vec<f64>,
}

impl Report {
    /// Adds a figure beside its limit. The ratio is the median of the rounds' ratios: what slows the machine down slows both
    /// halves of a round.
    pub(crate) fn add(&mut self, pair: Pair) {
        let Pair { figure, limit, rounds, aim } = pair;
        let ratios = rounds.iter().map(|(ours, limit)| ours / limit).collect();
        let (ours, limits): (Vec<_>, Vec<_>) = rounds.into_iter().unzip();
        self.figures.push(Row {
            figure,
            ours: median(ours.clone()),
            beside: Some(limit),
            limit: Some(median(limits.clone())),
            ratio: Some(median(ratios)),
            aim,
            ours_rounds: ours,
            limit_rounds: limits,
        });
    }

    /// Adds a figure that has no limit.
    pub(crate) fn add_alone(&mut self, figure: &'static str, rounds: Vec<f64>) {
        self.figures.push(Row {
            figure,
            ours: median(rounds.clone()),
            beside: None,
            limit: None,
            ratio: None,
            aim: None,
            ours_rounds: rounds,
            limit_rounds: Vec::new(),
        });
    }

    /// Adds a kind of request that should not be told from others by its time.
    pub(crate) fn add_alike(&mut self, alike: Alike) {
        self.alike.push(alike);
    }

    pub(crate) fn write(&mut self, path: &Path) -> anyhow::Result<()> {
        self.cores = std::thread::available_parallelism().map_or(0, usize::from);
        Ok(std::fs::write(path, serde_json::to_vec_pretty(self)?)?)
    }

    pub(crate) fn print(&self) -> io::Result<()> {
        io::stdout().write_all(self.table().as_bytes())?;
        io::stdout().write_all(self.likenesses().as_bytes())
    }

    /// The kinds that should be alike. Of eight comparisons one has a p below 0.1 by chance; below 0.01, or a t beyond 3,
    /// the kinds can be told apart.
    fn likenesses(&self) -> String {
        if self.alike.is_empty() {
            return String::new();
        }
        let (kind, samples, median, p, t) = ("kind", "samples", "median ms", "KS p", "Welch t");
        let head = format!("\n{kind:32}  {samples:>7}  {median:>9}  {p:>6}  {t:>7}\n");
        std::iter::once(head).chain(self.alike.iter().map(Alike::line)).collect()
    }

    fn table(&self) -> String {
        let head = ["figure", "ours", "limit", "ratio", "aim", "limit is"].map(str::to_owned);
        let rows: Vec<_> = std::iter::once(head).chain(self.figures.iter().map(Row::cells)).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; 5] = std::array::from_fn(width);
        let line = |[figure, ours, limit, ratio, aim, beside]: &[String; 6]| {
            let [w0, w1, w2, w3, w4] = widths;
            let line = format!("{figure:w0$}  {ours:>w1$}  {limit:>w2$}  {ratio:>w3$}  {aim:>w4$}  {beside}");
            format!("{}\n", line.trim_end())
        };
        rows.iter().map(line).collect()
    }
}

impl Row {
    fn cells(&self) -> [String; 6] {
        let number = |value: Option<f64>| value.map(shown).unwrap_or_default();
        let ratio = self.ratio.map(|ratio| format!("{ratio:.2}")).unwrap_or_default();
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        [
            self.figure.to_owned(),
            shown(self.ours),
            number(self.limit),
            ratio,
            text(self.aim),
            text(self.beside),
        ]
    }
}

/// Three digits at least, with commas from a thousand on.
fn shown(value: f64) -> String {
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

/// The middle one; of an even number, the upper of the two in the middle. Of none, none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_medians_and_the_median_of_the_ratios() {
        let mut report = Report::default();
        let rounds = vec![(50.0, 100.0), (12_345.0, 24_690.0), (30.0, 40.0)];
        report.add(Pair { figure: "events", limit: "raw", rounds, aim: Some("≥ 0.7") });
        report.add_alone("memory", vec![1_234_567.0]);
        let expected = "figure       ours  limit  ratio    aim  limit is\n\
                        events       50.0    100   0.50  ≥ 0.7  raw\n\
                        memory  1,234,567\n";
        assert_eq!(report.table(), expected);
    }
}
