//! User name and password from separate files, as Kubernetes operators provide them.

use std::path::Path;
use std::sync::Arc;

use super::{Live, Setting, Variable, live};

/// Content of the files `username` and `password` of a directory, as in a Kubernetes Secret of the type `kubernetes.io/basic-auth`. It
/// follows the files. Clones share the values.
#[derive(Clone)]
pub struct Login {
    username: Live<String>,
    password: Live<String>,
}

impl Login {
    fn open(variable: &Variable, directory: &Path) -> Result<Self, String> {
        let open = |file: &str| {
            let path = directory.join(file);
            let text = live::read(&path)?;
            let value = (text.clone(), text);
            Ok::<_, String>(Live::from_file(variable.name, &path, value, |text| Some(text.to_owned())))
        };
        Ok(Self { username: open("username")?, password: open("password")? })
    }

    /// Returns the current user name and password.
    pub fn get(&self) -> (Arc<String>, Arc<String>) {
        (self.username.get(), self.password.get())
    }
}

impl Variable {
    /// Declares an optional directory with user name and password.
    pub fn optional_login(self) -> Setting<Option<Login>> {
        self.optional_with(move |directory| Login::open(&self, Path::new(directory)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Environment, Reader};

    const LOGIN: Variable = Variable::new("SVC_LOGIN", "directory");

    #[test]
    fn reads_special_characters_as_they_are_and_reports_a_missing_file() {
        let directory = tempfile::tempdir().unwrap();
        let environment = Environment::from_pairs([("SVC_LOGIN", directory.path().to_str().unwrap())]);
        std::fs::write(directory.path().join("username"), "svc\n").unwrap();
        let mut reader = Reader::new(&environment);
        assert!(LOGIN.optional_login().read(&mut reader).is_none());
        let errors = reader.finish(|| Some(())).unwrap_err().0;
        assert!(errors[0].contains("password: No such file"), "{errors:?}");
        std::fs::write(directory.path().join("password"), "p:@/?#%41").unwrap();
        let login = LOGIN.optional_login().read(&mut Reader::new(&environment)).unwrap().unwrap();
        assert_eq!(login.get(), (Arc::new("svc".to_owned()), Arc::new("p:@/?#%41".to_owned())));
    }
}
