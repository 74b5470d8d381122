//! The command line as types: the global options, and the root of the tree of commands.

mod paging;

use std::error::Error;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, ValueEnum};
use tenancy::TenantId;

pub(crate) use paging::Paging;

use crate::commands::Commands;

/// Client of the svc service: users, sessions and events of a tenant.
#[derive(Parser)]
#[command(name = "svc", version, disable_help_subcommand = true)]
pub(crate) struct CommandLine {
    /// Options that every command takes.
    #[command(flatten)]
    pub(crate) globals: Globals,
    /// What is to be done.
    #[command(subcommand)]
    pub(crate) command: Commands,
}

/// Options that every command takes. A flag wins over its variable, that over the last login, that over the default.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Global options")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own; only quiet and verbose exclude one another"
)]
pub(crate) struct Globals {
    /// Address of the service [default: that of the last login, else `http://127.0.0.1:8080`].
    #[arg(long, global = true, value_name = "URL", env = "SVC_BASE_URL", hide_env_values = true)]
    pub(crate) base_url: Option<String>,
    /// Tenant to act in [default: that of the last login].
    #[arg(long, global = true, value_name = "TENANT", env = "SVC_TENANT", hide_env_values = true)]
    pub(crate) tenant: Option<TenantId>,
    /// How to print what comes out: for people, as one JSON document, or as one a line.
    #[arg(
        long,
        global = true,
        value_name = "FORMAT",
        env = "SVC_OUTPUT",
        hide_env_values = true,
        default_value = "table"
    )]
    pub(crate) output: Format,
    /// Never ask; fail with exit status 12 where somebody would have to be asked.
    #[arg(long, global = true)]
    pub(crate) no_input: bool,
    /// Confirm beforehand what a command would otherwise ask about.
    #[arg(long, global = true)]
    pub(crate) yes: bool,
    /// How long one request may take, with what it waits between tries: as 500ms, 30s, 2m.
    #[arg(long, global = true, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub(crate) timeout: Duration,
    /// Trust the certificates of this PEM file, instead of the system's.
    #[arg(long, global = true, value_name = "FILE", env = "SVC_CA_FILE", hide_env_values = true)]
    pub(crate) ca_file: Option<PathBuf>,
    /// Say nothing but data, warnings and errors.
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Tell each request, its status and its id; never a credential.
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,
    /// When to colour messages; auto heeds `NO_COLOR`.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,
}

/// How data is printed. The values are not documented one by one: clap would spread the help over a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    #[default]
    Table,
    Json,
    Ndjson,
}

/// When messages are coloured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    #[default]
    Auto,
    Always,
    Never,
}

impl From<Color> for clap::ColorChoice {
    fn from(color: Color) -> Self {
        match color {
            Color::Auto => Self::Auto,
            Color::Always => Self::Always,
            Color::Never => Self::Never,
        }
    }
}

/// Reads one of these words, which a vocabulary of the API consists of.
pub(crate) fn word_of<T>(words: impl IntoIterator<Item = &'static str>) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: Error + Send + Sync + 'static> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(words).try_map(|word| word.parse())
}

/// Reads a duration with its unit: `500ms`, `30s`, `2m`, `1h`.
fn duration(text: &str) -> Result<Duration, String> {
    let number_ends = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(number_ends);
    let number: u64 =
        number.parse().map_err(|_| "a duration is a whole number and a unit, as 30s".to_owned())?;
    let millis = match unit {
        "ms" => Some(number),
        "s" => number.checked_mul(1_000),
        "m" => number.checked_mul(60_000),
        "h" => number.checked_mul(3_600_000),
        _ => return Err("the unit is ms, s, m or h".to_owned()),
    };
    // A day is more than anybody waits, and keeps every sum of durations far from overflow.
    match millis {
        Some(millis @ 1..=86_400_000) => Ok(Duration::from_millis(millis)),
        _ => Err("a duration is more than nothing and at most 24h".to_owned()),
    }
}

/// What the raw arguments say of an option, for errors that come before they could be parsed.
pub(crate) fn before_parsing<T: ValueEnum + Default>(
    arguments: &[String],
    option: &str,
    variable: Option<String>,
) -> T {
    let said =
        arguments.iter().enumerate().find_map(|(place, argument)| match argument.strip_prefix(option)? {
            "" => arguments.get(place + 1).cloned(),
            value => value.strip_prefix('=').map(str::to_owned),
        });
    said.or(variable).and_then(|value| T::from_str(&value, false).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_carry_a_unit_and_have_bounds() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_mins(2)));
        assert_eq!(duration("24h"), Ok(Duration::from_hours(24)));
        for bad in ["", "s", "30", "0s", "25h", "-1s", "1.5s", "30 s", "1d", "99999999999999999999s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_format_is_known_before_the_arguments_are_understood() {
        let format = |line: &str, variable: Option<&str>| {
            let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
            before_parsing::<Format>(&words, "--output", variable.map(str::to_owned))
        };
        assert_eq!(format("svc --output json nonsense", None), Format::Json);
        assert_eq!(format("svc --output=ndjson nonsense", None), Format::Ndjson);
        assert_eq!(format("svc nonsense", Some("json")), Format::Json);
        assert_eq!(format("svc --output table", Some("json")), Format::Table);
        assert_eq!(format("svc --output", None), Format::Table);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_duration_parser_panic(text in "\\PC{0,12}") {
            if let Ok(read) = duration(&text) {
                prop_assert!(read <= Duration::from_hours(24));
            }
        }
    }
}
