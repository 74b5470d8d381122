//! Address and credential of the database. They follow their files.

use std::str::FromStr as _;
use std::sync::Arc;

use service::config::{Live, Login, Reader, Variable, Variables};
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use url::{ParseError, Url};

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
        let parsed = Url::parse(&access.url.get()).ok()?;
        for (name, file) in parsed.query_pairs().filter(|(name, _)| is_file(name)) {
            // The library also accepts the content.
            if !file.trim().starts_with("-----BEGIN")
                && let Err(error) = std::fs::read(&*file)
            {
                reader.error(format!("{}: cannot read the file of {name}: {error}", url.name));
            }
        }
        let has = |name: &str| parsed.query_pairs().any(|(parameter, _)| parameter == name);
        let has_user = !parsed.username().is_empty() || has("user");
        let problem = match &access.login {
            Some(_) if has_user || parsed.password().is_some() || has("password") => {
                format!("contains a user or password, and {} is set: remove one of them", login.name)
            }
            None if !has_user => format!("contains no user, and {} is not set: set one of them", login.name),
            _ => return Some(access),
        };
        reader.error(format!("{} {problem}", url.name));
        None
    }

    pub(crate) fn content(&self) -> Content {
        (self.url.get(), self.login.as_ref().map(Login::get))
    }

    /// Returns the current options of a connection.
    pub(crate) fn options(&self) -> Result<PgConnectOptions, sqlx::Error> {
        let (url, login) = self.content();
        // PgBouncer rejects parameters of the start that it does not know. No value of ours is a float as text.
        let options = PgConnectOptions::from_str(&url)?.extra_float_digits(None);
        // The library keeps the brackets of an IPv6 address.
        let host = options.get_host().trim_matches(['[', ']']).to_owned();
        let options = options.host(&host);
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

/// Returns whether a parameter of a URL names a file.
fn is_file(name: &str) -> bool {
    matches!(name, "sslrootcert" | "ssl-root-cert" | "ssl-ca" | "sslcert" | "ssl-cert" | "sslkey" | "ssl-key")
}

/// Returns whether a parameter of a URL has an effect. The library ignores others, and logs their values.
fn is_known(name: &str) -> bool {
    let is_address = matches!(name, "host" | "hostaddr" | "port" | "dbname" | "user" | "password");
    let is_option = name == "options" || (name.starts_with("options[") && name.ends_with(']'));
    is_address
        || is_option
        || is_file(name)
        || matches!(name, "sslmode" | "ssl-mode" | "statement-cache-capacity")
}

/// Returns a URL that the library can use as it is meant, or why it cannot.
fn parse_url(text: &str) -> Result<String, &'static str> {
    let url = Url::parse(text).map_err(|error| match error {
        ParseError::EmptyHost => {
            "no host after the user: that of a socket is its directory, as `%2Fvar%2Frun%2Fpostgresql`"
        }
        ParseError::InvalidPort => {
            "invalid port: encode `/`, `?` and `#` of the password (`%2F`, `%3F`, `%23`), and name one host"
        }
        _ => "malformed URL",
    })?;
    let is_any =
        |matches: &dyn Fn(&str, &str) -> bool| url.query_pairs().any(|(name, value)| matches(&name, &value));
    let is_list = |name: &str, value: &str| matches!(name, "host" | "hostaddr") && value.contains(',');
    if !["postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme)) {
        return Err("the URL must start with postgres://");
    }
    if url.fragment().is_some() || url.path().contains('@') {
        return Err("encode `/` and `#` of the password (`%2F`, `%23`)");
    }
    if url.host_str().is_some_and(|host| host.contains(',')) || is_any(&is_list) {
        return Err("several hosts: name one, the address of the primary");
    }
    if is_any(&|name, _| !is_known(name)) {
        return Err(
            "a parameter without effect, such as channel_binding, connect_timeout or target_session_attrs: remove it, or encode `?` of \
            the password (`%3F`)",
        );
    }
    let options = PgConnectOptions::from_str(text)
        .map_err(|_| "user, password, database or a parameter has an invalid value")?;
    let is_verified = matches!(options.get_ssl_mode(), PgSslMode::VerifyCa | PgSslMode::VerifyFull);
    if !is_verified && is_any(&|name, _| matches!(name, "sslrootcert" | "ssl-root-cert" | "ssl-ca")) {
        return Err("sslrootcert has no effect without sslmode=verify-full or verify-ca");
    }
    if options.get_database().is_none_or(str::is_empty) {
        return Err("no database after the host");
    }
    Ok(text.to_owned())
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

    fn error_of(url: &str) -> String {
        let environment = Environment::from_pairs([("SVC_DATABASE_URL", url)]);
        DatabaseAccess::load(&environment).err().unwrap().to_string()
    }

    #[test]
    fn an_error_names_the_defect_of_the_url_and_not_the_password() {
        for (url, reason) in [
            ("mysql://u:hunter2@db/svc", "must start with postgres://"),
            ("postgres://u:hunter2/x@db/svc", "encode `/`"),
            ("postgres://u:12/hunter2@db/svc", "encode `/`"),
            ("postgres://u:12#hunter2@db/svc", "encode `/` and `#`"),
            ("postgres://u:12/svc?hunter2@db/svc", "encode `?` of the password"),
            ("postgres://u:hunter2@/svc?host=/var/run/postgresql", "that of a socket is its directory"),
            ("postgres://u:hunter2@a,b/svc", "several hosts"),
            ("postgres://u:hunter2@a:5432,b:5432/svc", "name one host"),
            ("postgres://u:hunter2@/svc?host=a,b", "no host"),
            ("postgres://u:hunter2@a/svc?host=a,b", "several hosts"),
            ("postgres://u:hunter2@db/svc?target_session_attrs=primary", "a parameter without effect"),
            ("postgres://u:hunter2@db/svc?application_name=a", "a parameter without effect"),
            ("postgres://u:hunter2@db/svc?sslmode=always", "a parameter has an invalid value"),
            ("postgres://u:%ff@db/svc", "user, password, database or"),
            ("postgres://u:hunter2@db/svc?sslmode=require&sslrootcert=ca.crt", "sslrootcert has no effect"),
            ("postgres://u:hunter2@db", "no database"),
            ("postgres://u:hunter2@db/", "no database"),
            ("postgres://db/svc", "contains no user, and SVC_DATABASE_LOGIN is not set"),
            ("postgres://:hunter2@db/svc", "contains no user"),
        ] {
            let error = error_of(url);
            assert!(error.contains(reason) && !error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[test]
    fn files_that_the_url_names_can_be_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = file.path().to_str().unwrap().to_owned();
        let url = format!(
            "postgres://u:p@db/svc?sslmode=verify-full&sslrootcert={path}&sslcert={path}&sslkey={path}"
        );
        let load = |url: &str| DatabaseAccess::load(&Environment::from_pairs([("SVC_DATABASE_URL", url)]));
        assert!(load(&url).is_ok());
        assert_eq!(
            error_of(&format!("{url}x"))
                .matches("SVC_DATABASE_URL: cannot read the file of sslkey: ")
                .count(),
            1
        );
        let content = "postgres://u:p@db/svc?sslkey=%0A-----BEGIN%20PRIVATE%20KEY-----%0AMII";
        assert!(load(content).is_ok());
        assert!(!error_of("postgres://u:p@db/svc?sslkey=MII").contains("MII"));
    }

    #[test]
    fn the_host_is_a_name_an_address_or_the_directory_of_a_socket() {
        for (url, host) in [
            ("postgres://u:p@db/svc", "db"),
            ("postgres://u:p@192.0.2.1:5433/svc", "192.0.2.1"),
            ("postgres://u:p@[2001:db8::1]:5432/svc", "2001:db8::1"),
            ("postgres://u:p@[::1]/svc?options[lock_timeout]=5s", "::1"),
        ] {
            let environment = Environment::from_pairs([("SVC_DATABASE_URL", url)]);
            let options = DatabaseAccess::load(&environment).unwrap().options().unwrap();
            assert_eq!((options.get_host(), options.get_database()), (host, Some("svc")), "{url}");
        }
        for url in [
            "postgres://u:p@%2Fvar%2Frun%2Fpostgresql/svc",
            "postgres:///svc?host=/var/run/postgresql&user=u",
        ] {
            let environment = Environment::from_pairs([("SVC_DATABASE_URL", url)]);
            let options = DatabaseAccess::load(&environment).unwrap().options().unwrap();
            assert_eq!(options.get_socket().unwrap().to_str(), Some("/var/run/postgresql"), "{url}");
        }
    }
}
