//! Declares a configuration struct and its variables in one place.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use super::{ConfigErrors, Environment, Live, Reader, Variable, parse_bytes, parse_duration};

/// A configuration, or a part of one, that is read from variables. [`variables!`](crate::variables) implements it.
pub trait Variables: Sized {
    /// Lists the variables that [`Self::read`] uses.
    fn variables() -> Vec<Variable>;

    /// Reads the values. Returns `None` if a value is invalid; the reader records the error.
    fn read(reader: &mut Reader<'_>) -> Option<Self>;

    /// Reads the values from an environment.
    ///
    /// # Errors
    /// All errors of the configuration.
    fn load(environment: &Environment) -> Result<Self, ConfigErrors> {
        let mut reader = Reader::new(environment);
        let config = Self::read(&mut reader);
        reader.finish(|| config)
    }
}

type Read<T> = Box<dyn Fn(&mut Reader<'_>, &Variable) -> Option<T>>;

/// A variable together with the function that reads its value.
pub struct Setting<T> {
    variable: Variable,
    read: Read<T>,
}

impl<T> Setting<T> {
    fn new(variable: Variable, read: impl Fn(&mut Reader<'_>, &Variable) -> Option<T> + 'static) -> Self {
        Self { variable, read: Box::new(read) }
    }

    /// Uses the documentation of the field for a variable that has none.
    #[must_use]
    pub fn documented(mut self, text: &'static str) -> Self {
        if self.variable.meaning.is_empty() {
            self.variable.meaning = text.trim();
        }
        self
    }

    /// Returns the variable.
    pub fn variable(&self) -> Variable {
        self.variable
    }

    /// Reads the value. Returns `None` if it is invalid; the reader records the error.
    pub fn read(&self, reader: &mut Reader<'_>) -> Option<T> {
        (self.read)(reader, &self.variable)
    }
}

impl Variable {
    /// Requires a value.
    pub fn required<T: FromStr<Err: Display> + 'static>(self) -> Setting<T> {
        self.required_with(T::from_str)
    }

    /// Requires a value, parsed by a function.
    pub fn required_with<T, E: Display + 'static>(
        self,
        parse: impl Fn(&str) -> Result<T, E> + 'static,
    ) -> Setting<T> {
        Setting::new(self, move |reader, variable| reader.required_with(variable, &parse))
    }

    /// Requires a secret that follows its file, parsed by a function.
    pub fn required_live<T: 'static, E: Display + 'static>(
        self,
        parse: impl Fn(&str) -> Result<T, E> + Clone + Send + Sync + 'static,
    ) -> Setting<Live<T>> {
        Setting::new(self, move |reader, secret| {
            let read = reader.required_with(secret, |text| with_text(text, &parse))?;
            Some(reader.live(secret, read, parse.clone()))
        })
    }

    /// Accepts a missing secret. One that is set follows its file and is parsed by a function.
    pub fn optional_live<T: 'static, E: Display + 'static>(
        self,
        parse: impl Fn(&str) -> Result<T, E> + Clone + Send + Sync + 'static,
    ) -> Setting<Option<Live<T>>> {
        Setting::new(self, move |reader, secret| {
            let read = reader.optional_with(secret, |text| with_text(text, &parse))?;
            Some(read.map(|read| reader.live(secret, read, parse.clone())))
        })
    }

    /// Requires a value between two bounds, both included.
    pub fn between<T>(self, min: T, max: T) -> Setting<T>
    where
        T: FromStr<Err: Display> + PartialOrd + Display + 'static,
    {
        self.required_with(within(min, max))
    }

    /// Accepts a missing value. One that is set is between two bounds, both included.
    pub fn optional_between<T>(self, min: T, max: T) -> Setting<Option<T>>
    where
        T: FromStr<Err: Display> + PartialOrd + Display + 'static,
    {
        self.optional_with(within(min, max))
    }

    /// Requires a duration between two bounds, both included.
    pub fn duration(self, min: Duration, max: Duration) -> Setting<Duration> {
        self.required_with(move |text| {
            let value = parse_duration(text)?;
            if (min..=max).contains(&value) {
                return Ok(value);
            }
            Err(format!("must be {} to {}", duration_text(min), duration_text(max)))
        })
    }

    /// Requires a size in bytes between two bounds, both included.
    pub fn bytes(self, min: u64, max: u64) -> Setting<u64> {
        self.required_with(move |text| match parse_bytes(text)? {
            bytes if (min..=max).contains(&bytes) => Ok(bytes),
            _ => Err(format!("must be {} to {}", size_text(min), size_text(max))),
        })
    }

    /// Requires one of several words.
    pub fn one_of<T: Clone + 'static, const N: usize>(self, words: [(&'static str, T); N]) -> Setting<T> {
        self.required_with(move |text| {
            let known = words.iter().find(|(word, _)| *word == text);
            known.map(|(_, value)| value.clone()).ok_or("unknown value")
        })
    }

    /// Accepts a missing value.
    pub fn optional<T: FromStr<Err: Display> + 'static>(self) -> Setting<Option<T>> {
        self.optional_with(T::from_str)
    }

    /// Accepts a missing value. A function parses a value that is set.
    pub fn optional_with<T, E: Display + 'static>(
        self,
        parse: impl Fn(&str) -> Result<T, E> + 'static,
    ) -> Setting<Option<T>> {
        Setting::new(self, move |reader, variable| reader.optional_with(variable, &parse))
    }
}

/// Returns a parser of values between two bounds, both included.
fn within<T>(min: T, max: T) -> impl Fn(&str) -> Result<T, String>
where
    T: FromStr<Err: Display> + PartialOrd + Display,
{
    move |text| match T::from_str(text) {
        Ok(value) if (&min..=&max).contains(&&value) => Ok(value),
        Ok(_) => Err(format!("must be {min} to {max}")),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns a duration in whole seconds as [`parse_duration`] accepts it, with the largest unit of which it is a multiple.
fn duration_text(duration: Duration) -> String {
    with_unit(duration.as_secs(), [(86_400, "d"), (3_600, "h"), (60, "m"), (1, "s")])
}

/// Returns a size as [`parse_bytes`] accepts it, with the largest unit of which it is a multiple.
fn size_text(bytes: u64) -> String {
    with_unit(bytes, [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")])
}

fn with_unit<const N: usize>(value: u64, units: [(u64, &str); N]) -> String {
    let unit = units.into_iter().find(|(unit, _)| value.is_multiple_of(*unit));
    unit.map(|(unit, name)| format!("{}{name}", value / unit)).unwrap_or_default()
}

fn with_text<T, E>(text: &str, parse: impl Fn(&str) -> Result<T, E>) -> Result<(T, String), E> {
    parse(text).map(|value| (value, text.to_owned()))
}

/// Declares a configuration struct and the variable of each field.
///
/// A field is a [`Setting`], or a part of type [`Variables`] if it has no expression. The doc comment of a field is
/// the documentation of its variable.
///
/// ```
/// use service::config::{Environment, Variable, Variables as _};
///
/// service::variables! {
///     /// Configuration of a job.
///     #[derive(Debug)]
///     pub struct Config {
///         /// Number of parallel jobs.
///         pub jobs: u8 = Variable::new("SVC_JOBS", "number, 1 to 9").default("3").between(1, 9),
///         /// Limits of the job.
///         pub limits: Limits,
///     }
/// }
///
/// service::variables! {
///     /// Limits of a job.
///     #[derive(Debug)]
///     pub struct Limits {
///         /// Maximum runtime of a job.
///         pub runtime: Option<u64> = Variable::new("SVC_RUNTIME", "seconds").optional(),
///     }
/// }
///
/// let config = Config::load(&Environment::from_pairs([("SVC_JOBS", "4")])).unwrap();
/// assert_eq!((config.jobs, config.limits.runtime), (4, None));
/// assert_eq!(Config::variables()[1].meaning, "Maximum runtime of a job.");
/// ```
#[macro_export]
macro_rules! variables {
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident {
            $(
                $(#[doc = $doc:literal])*
                $field_visibility:vis $field:ident: $type:ty $(= $setting:expr)?
            ),* $(,)?
        }
    ) => {
        $(#[$attribute])*
        $visibility struct $name {
            $($(#[doc = $doc])* $field_visibility $field: $type,)*
        }

        impl $crate::config::Variables for $name {
            fn variables() -> ::std::vec::Vec<$crate::config::Variable> {
                let mut variables = ::std::vec::Vec::new();
                $($crate::variables!(@list variables, concat!($($doc),*), $type $(, $setting)?);)*
                variables
            }

            fn read(reader: &mut $crate::config::Reader<'_>) -> ::std::option::Option<Self> {
                // All fields are read before the first `None` returns, so that all errors are recorded.
                $(let $field = $crate::variables!(@read reader, concat!($($doc),*), $type $(, $setting)?);)*
                ::std::option::Option::Some(Self { $($field: $field?),* })
            }
        }
    };
    (@list $variables:ident, $doc:expr, $type:ty) => {
        $variables.extend(<$type as $crate::config::Variables>::variables())
    };
    (@list $variables:ident, $doc:expr, $type:ty, $setting:expr) => {{
        let setting: $crate::config::Setting<$type> = $setting;
        $variables.push(setting.documented($doc).variable());
    }};
    (@read $reader:ident, $doc:expr, $type:ty) => {
        <$type as $crate::config::Variables>::read($reader)
    };
    (@read $reader:ident, $doc:expr, $type:ty, $setting:expr) => {{
        let setting: $crate::config::Setting<$type> = $setting;
        setting.documented($doc).read($reader)
    }};
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Mode {
        Verify,
        Ensure,
    }

    crate::variables! {
        #[derive(Debug, PartialEq, Eq)]
        struct Config {
            /// Number of copies
            /// of each event.
            replicas: u8 = Variable::new("SVC_REPLICAS", "number, 1 to 5").default("3").between(1, 5),
            /// Whether to create a missing stream.
            mode: Mode = Variable::new("SVC_MODE", "`verify` or `ensure`")
                .default("verify")
                .one_of([("verify", Mode::Verify), ("ensure", Mode::Ensure)]),
            secrets: Secrets,
        }
    }

    crate::variables! {
        #[derive(Debug, PartialEq, Eq)]
        struct Secrets {
            /// Key of the service.
            key: Option<u64> = Variable::new("SVC_KEY", "number").secret().optional(),
        }
    }

    fn load(pairs: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
        Config::load(&Environment::from_pairs(pairs.iter().copied()))
    }

    #[test]
    fn reads_fields_and_nested_parts() {
        let defaults = Config { replicas: 3, mode: Mode::Verify, secrets: Secrets { key: None } };
        assert_eq!(load(&[]), Ok(defaults));
        let config = load(&[("SVC_REPLICAS", "5"), ("SVC_MODE", "ensure"), ("SVC_KEY", "7")]);
        assert_eq!(config, Ok(Config { replicas: 5, mode: Mode::Ensure, secrets: Secrets { key: Some(7) } }));
    }

    #[test]
    fn lists_variables_with_the_documentation_of_their_fields() {
        let key = Variable::new("SVC_KEY", "number").secret().meaning("Key of the service.");
        let variables = Config::variables();
        assert_eq!(variables[0].meaning, "Number of copies of each event.");
        assert_eq!((variables.len(), variables[2]), (3, key));
    }

    #[test]
    fn reports_the_errors_of_all_fields() {
        let ConfigErrors(errors) =
            load(&[("SVC_REPLICAS", "6"), ("SVC_MODE", "x"), ("SVC_KEY", "hunter2")]).unwrap_err();
        assert_eq!(
            errors,
            [
                "SVC_REPLICAS=6: must be 1 to 5 (expected number, 1 to 5)",
                "SVC_MODE=x: unknown value (expected `verify` or `ensure`)",
                "SVC_KEY: invalid value (expected number)",
            ]
        );
    }
}
