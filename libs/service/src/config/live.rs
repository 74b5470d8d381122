//! Secrets that follow their files: a changed file takes effect without a restart.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};

/// A file is read at most this often, and only while its value is used. Kubernetes updates the files of a Secret within about a
/// minute.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A value that follows its file. Without a file it never changes. Clones share the value.
pub struct Live<T>(Arc<Inner<T>>);

struct Inner<T> {
    file: Option<LiveFile<T>>,
    value: RwLock<Arc<T>>,
}

type Parse<T> = Box<dyn Fn(&str) -> Option<T> + Send + Sync>;

struct LiveFile<T> {
    name: &'static str,
    path: PathBuf,
    parse: Parse<T>,
    next_check: Mutex<Instant>,
    /// The last content or error, so that each is parsed and logged once.
    seen: RwLock<Result<String, String>>,
}

impl<T> Live<T> {
    /// Returns a value that never changes.
    pub fn fixed(value: T) -> Self {
        Self(Arc::new(Inner { file: None, value: RwLock::new(Arc::new(value)) }))
    }

    /// Returns the value that was parsed from this content of the file.
    pub(super) fn from_file(
        name: &'static str,
        path: &Path,
        (value, text): (T, String),
        parse: impl Fn(&str) -> Option<T> + Send + Sync + 'static,
    ) -> Self {
        let source = LiveFile {
            name,
            path: path.into(),
            parse: Box::new(parse),
            next_check: Mutex::new(Instant::now() + CHECK_INTERVAL),
            seen: RwLock::new(Ok(text)),
        };
        Self(Arc::new(Inner { file: Some(source), value: RwLock::new(Arc::new(value)) }))
    }

    /// Returns the current value. Reads the file if the last check was more than a second ago. While the file is unreadable or
    /// invalid, the last value remains.
    pub fn get(&self) -> Arc<T> {
        if let Some(source) = &self.0.file
            && source.is_due()
        {
            self.check(source);
        }
        Arc::clone(&self.0.value.read())
    }

    fn check(&self, source: &LiveFile<T>) {
        let content = read(&source.path);
        let mut seen = source.seen.write();
        if content == *seen {
            return;
        }
        let (variable, path) = (source.name, source.path.display());
        match content.as_deref().map(&source.parse) {
            Ok(Some(value)) => {
                *self.0.value.write() = Arc::new(value);
                tracing::info!(variable, "secret changed");
            }
            Ok(None) => {
                tracing::warn!(variable, %path, "the changed secret is invalid; the last value remains");
            }
            Err(error) => {
                tracing::warn!(variable, error, "failed to read the secret; the last value remains");
            }
        }
        *seen = content;
    }
}

impl<T> Clone for Live<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> LiveFile<T> {
    /// Returns true for one caller per interval.
    fn is_due(&self) -> bool {
        let (now, mut next) = (Instant::now(), self.next_check.lock());
        let is_due = now >= *next;
        if is_due {
            *next = now + CHECK_INTERVAL;
        }
        is_due
    }
}

/// Reads the file of a secret without surrounding white space and without a byte order mark, which some editors write.
pub(super) fn read(path: &Path) -> Result<String, String> {
    match std::fs::read_to_string(path).map(|text| text.trim_start_matches('\u{feff}').trim().to_owned()) {
        Ok(text) if text.is_empty() => Err(format!("the file {} is empty", path.display())),
        Ok(text) => Ok(text),
        Err(error) => Err(format!("cannot read {}: {error}", path.display())),
    }
}

/// A secret during a rotation. The first line is the current value, which is sent. The second line is the previous value, which is
/// also accepted. Processes can therefore read a changed secret in any order.
#[derive(Clone, Debug)]
pub struct Rotating<T> {
    /// The value of the first line.
    pub current: T,
    /// The value of the second line.
    pub previous: Option<T>,
}

impl<T> Rotating<T> {
    /// Parses one or two lines.
    ///
    /// # Errors
    /// A value is invalid, or there are more lines.
    pub fn parse<E: Display>(text: &str, parse: impl Fn(&str) -> Result<T, E>) -> Result<Self, String> {
        let parse = |line: &str| parse(line.trim()).map_err(|error| error.to_string());
        let mut lines = text.trim().lines();
        let current = parse(lines.next().unwrap_or_default())?;
        let previous = lines.next().map(parse).transpose()?;
        match lines.next() {
            None => Ok(Self { current, previous }),
            Some(_) => Err("more than two lines".to_owned()),
        }
    }

    /// Iterates over the accepted values.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.current).chain(&self.previous)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, Reader, Variable};

    const KEY: Variable = Variable::new("SVC_KEY", "a number").secret();

    /// Reads the file regardless of the interval.
    fn now(live: &Live<u32>) -> u32 {
        live.check(live.0.file.as_ref().unwrap());
        *live.get()
    }

    #[test]
    fn a_value_follows_its_file_and_remains_while_the_file_is_invalid_or_missing() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        let write = |text: &str| std::fs::write(&file, text).unwrap();
        write("1\n");
        let environment = Environment::from_pairs([("SVC_KEY_FILE", file.to_str().unwrap())]);
        let live = KEY.required_live(str::parse::<u32>).read(&mut Reader::new(&environment)).unwrap();
        assert_eq!(now(&live), 1);
        write("2\n");
        assert_eq!(now(&live.clone()), 2);
        for invalid in ["many", ""] {
            write(invalid);
            assert_eq!(now(&live), 2);
        }
        std::fs::remove_file(&file).unwrap();
        assert_eq!(now(&live), 2);
        write("3");
        assert_eq!(now(&live), 3);
    }

    #[test]
    fn a_secret_has_no_byte_order_mark_and_no_surrounding_white_space() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        for text in ["\u{feff}1\r\n", " 1 \n", "\u{feff} 1"] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(read(&file).as_deref(), Ok("1"), "{text:?}");
        }
        std::fs::write(&file, "\u{feff}\r\n").unwrap();
        assert!(read(&file).unwrap_err().ends_with("is empty"));
    }

    #[test]
    fn a_value_of_a_variable_has_no_file() {
        let environment = Environment::from_pairs([("SVC_KEY", "1")]);
        let read = |environment: &Environment| {
            KEY.optional_live(str::parse::<u32>).read(&mut Reader::new(environment)).unwrap()
        };
        let live = read(&environment).unwrap();
        assert!(live.0.file.is_none() && *live.get() == 1);
        assert!(read(&Environment::default()).is_none());
    }

    #[test]
    fn a_secret_has_one_or_two_valid_lines() {
        let parse = |text: &str| {
            let rotating = Rotating::parse(text, str::parse::<u32>).ok()?;
            Some(rotating.iter().copied().collect::<Vec<_>>())
        };
        assert_eq!(parse("1"), Some(vec![1]));
        assert_eq!(parse("2\r\n1 \n"), Some(vec![2, 1]));
        for invalid in ["", "x", "2\nx", "2\n\n1", "3\n2\n1"] {
            assert_eq!(parse(invalid), None, "{invalid:?}");
        }
    }
}
