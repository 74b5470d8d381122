//! Options: the global ones, which every command accepts, and arguments that several commands share.

use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{FalseyValueParser, PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, ColorChoice, ValueEnum, ValueHint};
use contract::Role;
use contract::identity::Delivery;
use serde::de::value::Error;
use serde::de::{DeserializeOwned, IntoDeserializer};
use tenancy::TenantId;

use crate::framework::configuration::ContextName;

/// Longest accepted duration. Keeps sums of durations far from overflow.
const MAX_DURATION: Duration = Duration::from_hours(24);

/// Global options. Precedence: option, environment variable, context, default.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Global options")]
#[expect(clippy::struct_excessive_bools, reason = "command line switches; only quiet and verbose conflict")]
pub(crate) struct Globals {
    /// Service URL [default: of the context, else `http://localhost:8080`].
    #[arg(long, global = true, value_name = "URL", value_hint = ValueHint::Url, env = "SVC_BASE_URL", hide_env_values = true)]
    pub(crate) base_url: Option<String>,
    /// Tenant id [default: of the context].
    #[arg(long, global = true, value_hint = ValueHint::Other, env = "SVC_TENANT", hide_env_values = true)]
    pub(crate) tenant: Option<TenantId>,
    /// Context with service and tenant, as `svc config list` shows it [default: the current one].
    #[arg(long, global = true, value_name = "NAME", value_hint = ValueHint::Other, env = "SVC_CONTEXT", hide_env_values = true)]
    pub(crate) context: Option<ContextName>,
    /// Output format.
    #[arg(
        long,
        short,
        global = true,
        value_name = "FORMAT",
        env = "SVC_OUTPUT",
        hide_env_values = true,
        default_value = "table"
    )]
    pub(crate) output: Format,
    /// Never prompt; exit with 12 if input is required.
    #[arg(long, global = true, env = "SVC_NO_INPUT", hide_env_values = true, value_parser = FalseyValueParser::new())]
    pub(crate) no_input: bool,
    /// Answer yes to confirmation prompts.
    #[arg(long, global = true)]
    pub(crate) yes: bool,
    /// Time limit of a request with retries.
    #[arg(long, global = true, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    /// PEM file of CA certificates to trust instead of the system's.
    #[arg(long, global = true, value_name = "FILE", env = "SVC_CA_FILE", hide_env_values = true)]
    pub(crate) ca_file: Option<PathBuf>,
    /// Print only data, warnings and errors.
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Log requests with status and id, never credentials.
    #[arg(long, short, global = true)]
    pub(crate) verbose: bool,
    /// Color messages; auto honors `NO_COLOR`.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: ColorChoice,
    /// Ids of the options on the command line, as opposed to variables and defaults.
    #[arg(skip)]
    given: Vec<String>,
}

impl Globals {
    /// Records which options are on the command line.
    pub(crate) fn record_given(&mut self, matches: &ArgMatches) {
        let ids = matches.ids().map(clap::Id::as_str);
        let given = ids.filter(|id| matches.value_source(id) == Some(ValueSource::CommandLine));
        self.given = given.map(str::to_owned).collect();
    }

    /// Returns whether the option with this id is on the command line.
    pub(crate) fn is_given(&self, id: &str) -> bool {
        self.given.iter().any(|given| given == id)
    }
}

/// Option of commands that are about one tenant or all.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct AllTenants {
    /// With the platform token: all tenants, also if the context names one.
    #[arg(long)]
    pub(crate) all_tenants: bool,
}

/// Output format. The values have no doc comments: clap would print the help of every command on several lines per value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    #[default]
    Table,
    Json,
    Ndjson,
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    match duration_of(text) {
        Ok(duration) if duration.is_zero() => Err("the duration must be above zero".to_owned()),
        Ok(duration) if duration > MAX_DURATION => Err("the duration must be at most 24h".to_owned()),
        Ok(duration) => Ok(duration),
        Err(error) => Err(format!("{error} (examples: 500ms, 30s, 5m)")),
    }
}

/// Parses a duration such as `30s` or `7d`.
pub(crate) fn duration_of(text: &str) -> Result<Duration, String> {
    // humantime panics when seconds and fractions together exceed the largest duration by a nanosecond. That needs a longer text.
    if text.len() > 20 {
        return Err("the text of a duration is too long".to_owned());
    }
    humantime::parse_duration(text).map_err(|error| error.to_string())
}

/// Value of an option in raw arguments, else in a variable, else the default. For errors that occur before clap has
/// parsed the arguments. `short` is the letter of the option.
pub(crate) fn value_before_parsing<T: ValueEnum + Default>(
    arguments: &[String],
    option: &str,
    short: Option<char>,
    variable: Option<String>,
) -> T {
    let parsed = |value: String| T::from_str(&value, false).ok();
    let written = |(index, argument): (usize, &String)| {
        let next = || arguments.get(index + 1).cloned();
        if let Some(value) = argument.strip_prefix(option) {
            return if value.is_empty() { next() } else { value.strip_prefix('=').map(str::to_owned) };
        }
        // A letter can follow those of switches: `-qo json`.
        let letters = argument.strip_prefix('-')?.trim_start_matches(['q', 'v']);
        let value = letters.strip_prefix(short?)?;
        if value.is_empty() { next() } else { Some(value.trim_start_matches('=').to_owned()) }
    };
    // The value of another option can begin with the letter.
    let argument = arguments.iter().enumerate().find_map(|argument| written(argument).and_then(parsed));
    argument.or_else(|| variable.and_then(parsed)).unwrap_or_default()
}

/// Parser of a number from 1.
pub(crate) fn up_to<T>(most: T) -> impl TypedValueParser<Value = T>
where
    T: FromStr + PartialOrd + From<u8> + Display + Copy + Send + Sync + 'static,
{
    move |text: &str| -> Result<T, String> {
        let number = text.parse::<T>().ok().filter(|number| (T::from(1_u8)..=most).contains(number));
        number.ok_or_else(|| format!("expected a number from 1 to {most}"))
    }
}

/// Parser of `--role` and `ROLE`.
pub(crate) fn role_parser() -> impl TypedValueParser<Value = Role> {
    enum_parser([
        PossibleValue::new("member").help("Own profile, sessions and password; sends events"),
        PossibleValue::new("admin").help("Full access to the tenant"),
    ])
}

/// Parser of `--delivery`.
pub(crate) fn delivery_parser() -> impl TypedValueParser<Value = Delivery> {
    enum_parser([
        PossibleValue::new("email").help("Send a mail; the output contains no token"),
        PossibleValue::new("response").help("Print the token; no mail is sent"),
    ])
}

/// Parser of an option that takes a value of an enumeration of the API.
pub(crate) fn enum_parser<T>(
    values: impl IntoIterator<Item = impl Into<PossibleValue>>,
) -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(values)
        .try_map(|value| T::deserialize(IntoDeserializer::<Error>::into_deserializer(value)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_durations_with_units() {
        for (text, duration) in [
            ("500ms", Duration::from_millis(500)),
            ("30s", Duration::from_secs(30)),
            ("2m", Duration::from_mins(2)),
            ("5min", Duration::from_mins(5)),
            ("1m 30s", Duration::from_secs(90)),
            ("24h", Duration::from_hours(24)),
            ("1d", Duration::from_hours(24)),
        ] {
            assert_eq!(parse_duration(text), Ok(duration), "{text}");
        }
    }

    #[test]
    fn rejects_durations_without_unit_or_out_of_range() {
        for text in ["", "s", "30", "0s", "25h", "-1s", "30x", "99999999999999999999s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn finds_the_output_format_before_parsing() {
        let format = |line: &str, variable: Option<&str>| {
            let words: Vec<_> = line.split(' ').map(str::to_owned).collect();
            value_before_parsing::<Format>(&words, "--output", Some('o'), variable.map(str::to_owned))
        };
        assert_eq!(format("svc --output json nonsense", None), Format::Json);
        assert_eq!(format("svc --output=ndjson nonsense", None), Format::Ndjson);
        for line in ["svc -o json", "svc -ojson", "svc -o=json", "svc -qo json", "svc x -vojson"] {
            assert_eq!(format(line, None), Format::Json, "{line}");
        }
        assert_eq!(format("svc audit list --after -oplQz -o json nonsense", None), Format::Json);
        assert_eq!(format("svc --other json", None), Format::Table);
        assert_eq!(format("svc nonsense", Some("json")), Format::Json);
        assert_eq!(format("svc --output table", Some("json")), Format::Table);
        assert_eq!(format("svc --output", None), Format::Table);
    }

    proptest! {
        #[test]
        fn duration_parser_accepts_only_durations_in_range(text in "\\PC{0,12}") {
            if let Ok(duration) = parse_duration(&text) {
                prop_assert!(!duration.is_zero() && duration <= MAX_DURATION);
            }
        }
    }
}
