//! Reads typed values and records every error.

use std::any::Any;
use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use url::Url;

use super::{ConfigErrors, Environment, Live, Variable, live};

/// Reads values from an environment. A read of an invalid variable returns `None`; [`Reader::finish`] returns all errors.
pub struct Reader<'e> {
    environment: &'e Environment,
    errors: Vec<String>,
}

impl<'e> Reader<'e> {
    /// Creates a reader for an environment.
    pub fn new(environment: &'e Environment) -> Self {
        Self { environment, errors: Vec::new() }
    }

    /// Returns the text of a variable: its value, the content of its file, or its default.
    fn text(&mut self, variable: &Variable) -> Option<String> {
        let file_name = format!("{}_FILE", variable.name);
        let file = self.environment.get(&file_name).filter(|_| variable.secret);
        match (self.environment.get(variable.name), file) {
            (Some(_), Some(_)) => {
                self.error(format!("{} and {file_name} are both set: remove one of them", variable.name));
                None
            }
            (Some(text), None) => Some(text.to_owned()),
            (None, Some(path)) => match live::read(Path::new(path)) {
                Ok(text) => Some(text),
                Err(error) => {
                    self.error(format!("{file_name}: {error}"));
                    None
                }
            },
            (None, None) => variable.default.map(str::to_owned),
        }
    }

    /// Reads a required value with a parser.
    pub fn required_with<T, E: Display + 'static>(
        &mut self,
        variable: &Variable,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        let value = self.optional_with(variable, parse)?;
        if value.is_none() {
            let or_file =
                if variable.secret { format!(" (or {}_FILE)", variable.name) } else { String::new() };
            self.error(format!("{}{or_file} is not set: {}", variable.name, variable.meaning));
        }
        value
    }

    /// Reads an optional value with a parser: `Some(None)` if it is unset, `None` after an error.
    pub fn optional_with<T, E: Display + 'static>(
        &mut self,
        variable: &Variable,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<Option<T>> {
        let errors = self.errors.len();
        let Some(text) = self.text(variable) else {
            return (self.errors.len() == errors).then_some(None);
        };
        match parse(&text) {
            Ok(value) => return Some(Some(value)),
            // The parser's message can contain the value, unless it is a constant.
            Err(error) if variable.secret => {
                let constant = (&error as &dyn Any).downcast_ref::<&'static str>();
                self.error(format!(
                    "{}: {} (expected {})",
                    variable.name,
                    constant.unwrap_or(&"invalid value"),
                    variable.form
                ));
            }
            Err(error) => {
                self.error(format!("{}={text}: {error} (expected {})", variable.name, variable.form));
            }
        }
        None
    }

    /// Returns a secret that follows its file, from its value and text.
    pub(super) fn live<T: 'static, E>(
        &self,
        secret: &Variable,
        read: (T, String),
        parse: impl Fn(&str) -> Result<T, E> + Send + Sync + 'static,
    ) -> Live<T> {
        match self.environment.get(&format!("{}_FILE", secret.name)) {
            Some(path) => Live::from_file(secret.name, Path::new(path), read, move |text| parse(text).ok()),
            None => Live::fixed(read.0),
        }
    }

    /// Records an error that concerns several variables.
    pub fn error(&mut self, error: impl Into<String>) {
        self.errors.push(error.into());
    }

    /// Builds the configuration.
    ///
    /// # Errors
    /// All recorded errors.
    pub fn finish<T>(self, build: impl FnOnce() -> Option<T>) -> Result<T, ConfigErrors> {
        match build() {
            Some(config) if self.errors.is_empty() => Ok(config),
            _ => Err(ConfigErrors(self.errors)),
        }
    }
}

/// Parses a duration such as `30s`, `5m`, `1h` or `7d`.
///
/// # Errors
/// A message that describes the expected format.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    if text.len() > MAX_DURATION_TEXT {
        return Err("the text of a duration is too long".to_owned());
    }
    humantime::parse_duration(text).map_err(|error| match error {
        humantime::DurationError::UnknownUnit { .. } => "the unit must be s, m, h or d".to_owned(),
        error => error.to_string(),
    })
}

/// humantime panics when seconds and fractions together exceed the largest duration by a nanosecond. That needs a longer text.
const MAX_DURATION_TEXT: usize = 20;

/// Parses the address of a server: scheme `http` or `https`, and host.
///
/// # Errors
/// A message that describes the expected form.
pub fn parse_http_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err("must start with http:// or https:// and a host".to_owned());
    }
    Ok(url)
}

/// Parses a size in bytes: a whole number followed by `B`, `KiB`, `MiB`, `GiB` or `TiB`.
///
/// # Errors
/// A message that describes the expected format.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| "expected a whole number and a unit".to_owned())?;
    let shift = match unit.trim() {
        "B" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        "TiB" => 40,
        _ => return Err("the unit must be B, KiB, MiB, GiB or TiB".to_owned()),
    };
    number.checked_mul(1 << shift).ok_or_else(|| "the value is too large".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: Variable = Variable::new("SVC_COUNT", "a number").default("3").meaning("Number of things.");
    const KEY: Variable = Variable::new("SVC_KEY", "a number").secret().meaning("A key.");

    fn read(pairs: &[(&str, &str)]) -> Result<(u32, u64), ConfigErrors> {
        let environment = Environment::from_pairs(pairs.iter().copied());
        let mut read = Reader::new(&environment);
        let (count, key) = (read.required_with(&COUNT, str::parse), read.required_with(&KEY, str::parse));
        read.finish(|| Some((count?, key?)))
    }

    #[test]
    fn a_duration_beyond_the_largest_one_is_an_error() {
        assert_eq!(parse_duration("365days 23h 59m 59s"), Ok(Duration::from_secs(31_622_399)));
        for text in ["18446744073709551614.9s1.1s", "18446744073709551615s1s", "99999999999999999y", "1x", ""]
        {
            parse_duration(text).unwrap_err();
        }
    }

    #[test]
    fn the_address_of_a_server_has_a_scheme_and_a_host() {
        for good in ["http://session:8081", "https://svc.example/base"] {
            assert!(parse_http_url(good).is_ok(), "{good}");
        }
        for bad in ["", "session", "session:8081", "ftp://session", "http://", "/session"] {
            assert!(parse_http_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn reads_a_value_from_the_variable_its_file_or_its_default() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "42\n").unwrap();
        let path = file.path().to_str().unwrap();
        assert_eq!(read(&[("SVC_KEY_FILE", path)]), Ok((3, 42)));
        assert_eq!(read(&[("SVC_KEY", "7"), ("SVC_COUNT", "5")]), Ok((5, 7)));
    }

    #[test]
    fn reports_all_errors_without_secret_values() {
        let ConfigErrors(errors) = read(&[("SVC_COUNT", "many"), ("SVC_KEY", "hunter2")]).unwrap_err();
        assert_eq!(
            errors,
            [
                "SVC_COUNT=many: invalid digit found in string (expected a number)",
                "SVC_KEY: invalid value (expected a number)"
            ]
        );
        let ConfigErrors(errors) = read(&[("SVC_KEY", "")]).unwrap_err();
        assert_eq!(errors, ["SVC_KEY (or SVC_KEY_FILE) is not set: A key."]);
        let ConfigErrors(errors) = read(&[("SVC_KEY", "1"), ("SVC_KEY_FILE", "/missing")]).unwrap_err();
        assert_eq!(errors, ["SVC_KEY and SVC_KEY_FILE are both set: remove one of them"]);
        let ConfigErrors(errors) = read(&[("SVC_KEY_FILE", "/missing")]).unwrap_err();
        assert!(errors[0].starts_with("SVC_KEY_FILE: cannot read /missing"), "{errors:?}");
    }

    #[test]
    fn checks_the_bounds_of_a_duration() {
        const TTL: Variable = Variable::new("SVC_TTL", "duration, 5m to 30d");
        let ttl = |text: &str| {
            let environment = Environment::from_pairs([("SVC_TTL", text)]);
            let mut read = Reader::new(&environment);
            let ttl = TTL.duration(Duration::from_mins(5), Duration::from_hours(30 * 24)).read(&mut read);
            read.finish(|| ttl)
        };
        for (text, minutes) in [("5m", 5), ("30min", 30), ("72 h", 72 * 60), ("30d", 30 * 24 * 60)] {
            assert_eq!(ttl(text), Ok(Duration::from_mins(minutes)), "{text}");
        }
        let ConfigErrors(errors) = ttl("4m").unwrap_err();
        assert_eq!(errors, ["SVC_TTL=4m: must be 5m to 30d (expected duration, 5m to 30d)"]);
        assert_eq!(parse_duration("48").unwrap_err(), "the unit must be s, m, h or d");
        for bad in ["", "5", "s", "-1s", "99999999999999999999s", "18446744073709551615d"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn checks_the_bounds_of_a_size_and_of_an_optional_number() {
        const SIZE: Variable = Variable::new("SVC_SIZE", "size, 8MiB to 1TiB");
        const JOBS: Variable = Variable::new("SVC_JOBS", "number, 1 to 9");
        let read = |size: &str, jobs: &str| {
            let environment = Environment::from_pairs([("SVC_SIZE", size), ("SVC_JOBS", jobs)]);
            let mut read = Reader::new(&environment);
            let size = SIZE.bytes(8 << 20, 1 << 40).read(&mut read);
            let jobs = JOBS.optional_between(1_u8, 9).read(&mut read);
            read.finish(|| Some((size?, jobs?)))
        };
        assert_eq!(read("8MiB", ""), Ok((8 << 20, None)));
        assert_eq!(read("1TiB", "9"), Ok((1 << 40, Some(9))));
        assert_eq!(
            read("1B", "0").unwrap_err().0,
            [
                "SVC_SIZE=1B: must be 8MiB to 1TiB (expected size, 8MiB to 1TiB)",
                "SVC_JOBS=0: must be 1 to 9 (expected number, 1 to 9)",
            ]
        );
        assert!(read("2TiB", "10").is_err());
    }

    #[test]
    fn sizes_need_a_number_and_a_known_unit() {
        assert_eq!([parse_bytes("2MiB"), parse_bytes("1TiB")], [Ok(2 << 20), Ok(1 << 40)]);
        for bad in ["", "5", "MiB", "1MB", "-1B", "99999999999999999999B", "18446744073709551615GiB"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }
}
