//! Reads typed values and remembers every fault.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use super::{ConfigErrors, Environment, Variable, parse_duration};

/// Reads a configuration. Every read of a faulty variable returns `None`, and [`Reader::finish`] tells of all of them.
pub struct Reader<'e> {
    environment: &'e Environment,
    faults: Vec<String>,
}

impl<'e> Reader<'e> {
    /// Reads from this environment.
    pub fn new(environment: &'e Environment) -> Self {
        Self { environment, faults: Vec::new() }
    }

    /// The text of a variable, from itself, its file, or its default.
    pub fn text(&mut self, variable: &Variable) -> Option<String> {
        let file_name = format!("{}_FILE", variable.name);
        let file = self.environment.get(&file_name).filter(|_| variable.secret);
        match (self.environment.get(variable.name), file) {
            (Some(_), Some(_)) => {
                self.fault(format!("{} and {file_name} are both set: keep one of them", variable.name));
                None
            }
            (Some(text), None) => Some(text.to_owned()),
            (None, Some(path)) => match std::fs::read_to_string(path) {
                Ok(text) if text.trim().is_empty() => {
                    self.fault(format!("{file_name}: the file {path} is empty"));
                    None
                }
                Ok(text) => Some(text.trim().to_owned()),
                Err(error) => {
                    self.fault(format!("{file_name}: cannot read {path}: {error}"));
                    None
                }
            },
            (None, None) => variable.default.map(str::to_owned),
        }
    }

    /// A value that must be there, read by a function.
    pub fn required_with<T, E: Display>(
        &mut self,
        variable: &Variable,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        let faults_before = self.faults.len();
        let Some(text) = self.text(variable) else {
            if self.faults.len() == faults_before {
                let or_file =
                    if variable.secret { format!(" (or {}_FILE)", variable.name) } else { String::new() };
                self.fault(format!("{}{or_file} is not set: {}", variable.name, variable.meaning));
            }
            return None;
        };
        self.parse(variable, &text, parse)
    }

    /// A value that must be there.
    pub fn required<T: FromStr<Err: Display>>(&mut self, variable: &Variable) -> Option<T> {
        self.required_with(variable, T::from_str)
    }

    /// A length of time that must be there, within bounds.
    pub fn duration(&mut self, variable: &Variable, least: Duration, most: Duration) -> Option<Duration> {
        self.required_with(variable, |text| {
            let value = parse_duration(text)?;
            if (least..=most).contains(&value) {
                return Ok(value);
            }
            Err(format!("must be between {least:?} and {most:?}"))
        })
    }

    /// A value that may be missing: `Some(None)` when it is.
    pub fn optional_with<T, E: Display>(
        &mut self,
        variable: &Variable,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<Option<T>> {
        let faults_before = self.faults.len();
        match self.text(variable) {
            Some(text) => self.parse(variable, &text, parse).map(Some),
            None if self.faults.len() > faults_before => None,
            None => Some(None),
        }
    }

    /// A value that may be missing: `Some(None)` when it is.
    pub fn optional<T: FromStr<Err: Display>>(&mut self, variable: &Variable) -> Option<Option<T>> {
        self.optional_with(variable, T::from_str)
    }

    /// Notes a fault that no single variable has.
    pub fn fault(&mut self, fault: impl Into<String>) {
        self.faults.push(fault.into());
    }

    /// Puts the configuration together.
    ///
    /// # Errors
    /// Every fault that was found.
    pub fn finish<T>(self, build: impl FnOnce() -> Option<T>) -> Result<T, ConfigErrors> {
        match build() {
            Some(config) if self.faults.is_empty() => Ok(config),
            _ => Err(ConfigErrors(self.faults)),
        }
    }

    fn parse<T, E: Display>(
        &mut self,
        variable: &Variable,
        text: &str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        match parse(text) {
            Ok(value) => Some(value),
            Err(error) if variable.secret => {
                // The parser's message may quote the value.
                drop(error);
                self.fault(format!("{}: not of the form {}", variable.name, variable.form));
                None
            }
            Err(error) => {
                self.fault(format!("{}={text}: {error} (expected {})", variable.name, variable.form));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: Variable = Variable {
        name: "SVC_COUNT",
        form: "a number",
        default: Some("3"),
        secret: false,
        meaning: "How many.",
    };
    const KEY: Variable =
        Variable { name: "SVC_KEY", form: "a number", default: None, secret: true, meaning: "A key." };

    fn read(pairs: &[(&str, &str)]) -> Result<(u32, u64), ConfigErrors> {
        let environment = Environment::from_pairs(pairs.iter().copied());
        let mut read = Reader::new(&environment);
        let (count, key) = (read.required(&COUNT), read.required(&KEY));
        read.finish(|| Some((count?, key?)))
    }

    #[test]
    fn values_come_from_the_variable_its_file_or_its_default() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "42\n").unwrap();
        let path = file.path().to_str().unwrap();
        assert_eq!(read(&[("SVC_KEY_FILE", path)]), Ok((3, 42)));
        assert_eq!(read(&[("SVC_KEY", "7"), ("SVC_COUNT", "5")]), Ok((5, 7)));
    }

    #[test]
    fn all_faults_are_told_at_once_and_a_secret_is_never_quoted() {
        let ConfigErrors(faults) = read(&[("SVC_COUNT", "many"), ("SVC_KEY", "hunter2")]).unwrap_err();
        assert_eq!(
            faults,
            [
                "SVC_COUNT=many: invalid digit found in string (expected a number)",
                "SVC_KEY: not of the form a number"
            ]
        );
        let ConfigErrors(faults) = read(&[("SVC_KEY", "")]).unwrap_err();
        assert_eq!(faults, ["SVC_KEY (or SVC_KEY_FILE) is not set: A key."]);
        let ConfigErrors(faults) = read(&[("SVC_KEY", "1"), ("SVC_KEY_FILE", "/nowhere")]).unwrap_err();
        assert_eq!(faults, ["SVC_KEY and SVC_KEY_FILE are both set: keep one of them"]);
        let ConfigErrors(faults) = read(&[("SVC_KEY_FILE", "/nowhere")]).unwrap_err();
        assert!(faults[0].starts_with("SVC_KEY_FILE: cannot read /nowhere"), "{faults:?}");
    }
}
