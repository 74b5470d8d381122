//! Address and credential of the database. They follow their files.

use std::str::FromStr as _;
use std::sync::Arc;

use service::config::{Live, Login, Reader, Variable, Variables};
use sqlx::postgres::PgConnectOptions;
use url::Url;

/// The URL of the database.
const DATABASE_URL: Variable = url("SVC_DATABASE_URL").meaning(
    "URL of the Postgres database, with the runtime role of the service. A changed file takes effect when the database accepts \
        its URL.",
);
const DATABASE_LOGIN: Variable = login("SVC_DATABASE_LOGIN").meaning(
    "User and password of the runtime role, if `SVC_DATABASE_URL` has none. Changed files take effect as those of the URL.",
);
/// The URL that `migrate up` uses.
pub const MIGRATOR_DATABASE_URL: Variable = url("SVC_MIGRATOR_DATABASE_URL").meaning(
    "URL of the Postgres database, with the migrator role of the service. Only `migrate up` reads it.",
);
/// The user that `migrate up` uses.
pub const MIGRATOR_DATABASE_LOGIN: Variable = login("SVC_MIGRATOR_DATABASE_LOGIN")
    .meaning("User and password of the migrator role, if `SVC_MIGRATOR_DATABASE_URL` has none.");

const fn url(name: &'static str) -> Variable {
    Variable::new(name, "postgres://user:password@host:port/database").secret()
}

const fn login(name: &'static str) -> Variable {
    Variable::new(name, "directory with `username` and `password`")
}

/// Address and credential of the database. Clones share their values.
#[derive(Clone)]
pub struct DatabaseAccess {
    url: Live<String>,
    login: Option<Login>,
}

/// The texts of an address and a credential, to detect changes.
pub(crate) type Content = (Arc<String>, Option<(Arc<String>, Arc<String>)>);

impl DatabaseAccess {
    /// Returns an address with a credential that never changes.
    pub fn fixed(url: &str) -> Self {
        Self { url: Live::fixed(url.to_owned()), login: None }
    }

    /// Reads the variables of the migrator role.
    pub(crate) fn for_migrator(reader: &mut Reader<'_>) -> Option<Self> {
        Self::read_from(reader, &MIGRATOR_DATABASE_URL, MIGRATOR_DATABASE_LOGIN)
    }

    fn read_from(reader: &mut Reader<'_>, url: &Variable, login: Variable) -> Option<Self> {
        let (address, user) =
            (url.required_live(parse_url).read(reader), login.optional_login().read(reader));
        let access = Self { url: address?, login: user? };
        if access.login.is_some() && has_user(&access.url.get()) {
            reader.error(format!(
                "{} contains a user or password, and {} is set: remove one of them",
                url.name, login.name
            ));
            return None;
        }
        Some(access)
    }

    pub(crate) fn content(&self) -> Content {
        (self.url.get(), self.login.as_ref().map(Login::get))
    }

    /// Returns the current options of a connection.
    pub(crate) fn options(&self) -> Result<PgConnectOptions, sqlx::Error> {
        let (url, login) = self.content();
        // PgBouncer rejects parameters of the start that it does not know. No value of ours is a float as text.
        let options = PgConnectOptions::from_str(&url)?.extra_float_digits(None);
        Ok(match login {
            Some((username, password)) => options.username(&username).password(&password),
            None => options,
        })
    }
}

impl Variables for DatabaseAccess {
    fn variables() -> Vec<Variable> {
        vec![DATABASE_URL, DATABASE_LOGIN]
    }

    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        Self::read_from(reader, &DATABASE_URL, DATABASE_LOGIN)
    }
}

fn parse_url(text: &str) -> Result<String, &'static str> {
    let is_postgres = ["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme));
    match PgConnectOptions::from_str(text) {
        Ok(_) if is_postgres => Ok(text.to_owned()),
        _ => Err("malformed Postgres URL"),
    }
}

fn has_user(url: &str) -> bool {
    Url::parse(url).is_ok_and(|url| {
        !url.username().is_empty()
            || url.password().is_some()
            || url.query_pairs().any(|(name, _)| matches!(&*name, "user" | "password"))
    })
}

#[cfg(test)]
mod tests {
    use service::config::Environment;

    use super::*;

    #[test]
    fn user_and_password_come_from_the_url_or_from_the_files() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("username"), "svc_session").unwrap();
        std::fs::write(directory.path().join("password"), "p:@/?#%41\n").unwrap();
        let load = |url: &str, variables: &[(&str, &str)]| {
            DatabaseAccess::load(
                &Environment::from_pairs([("SVC_DATABASE_URL", url)]).with(variables.iter().copied()),
            )
        };
        let login = [("SVC_DATABASE_LOGIN", directory.path().to_str().unwrap())];
        let access = load("postgres://db:5433/svc?sslmode=require", &login).unwrap();
        let options = access.options().unwrap();
        assert_eq!(
            (options.get_host(), options.get_port(), options.get_database()),
            ("db", 5433, Some("svc"))
        );
        assert_eq!(options.get_username(), "svc_session");
        // The library has no getter of the password.
        let debug = format!("{options:?}");
        assert!(debug.contains(r#"password: Some("p:@/?#%41")"#), "{debug}");
        assert!(load("postgres://a:b@db/svc", &[]).is_ok());
        for url in ["postgres://a@db/svc", "postgres://:b@db/svc", "postgres://db/svc?password=b"] {
            assert_eq!(
                load(url, &login).err().unwrap().0,
                [
                    "SVC_DATABASE_URL contains a user or password, and SVC_DATABASE_LOGIN is set: remove one of them"
                ]
            );
        }
    }
}
