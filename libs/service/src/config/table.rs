//! Output about a list of variables: the table of `docs/configuration.md`, the values of `--check-config`, and warnings
//! about unknown names.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Environment, Variable};

/// Variables of the client `svc`. No service warns about them, also not one that does not read them.
const CLIENT: [&str; 12] = [
    "SVC_API_KEY",
    "SVC_API_KEY_FILE",
    "SVC_BASE_URL",
    "SVC_CA_FILE",
    "SVC_CONTEXT",
    "SVC_NO_INPUT",
    "SVC_OUTPUT",
    "SVC_PLATFORM_TOKEN",
    "SVC_PLATFORM_TOKEN_FILE",
    "SVC_TENANT",
    "SVC_TOKEN",
    "SVC_TOKEN_FILE",
];
/// Variables of all services, plain ones and secrets, and those with a unit. `make gen` writes the file from their declarations.
const SERVICES: &str = include_str!("../../../../helm/svc/files/variables.json");
/// Prefix of all names.
const PREFIX: &str = "SVC_";
/// A known name at a larger edit distance is not suggested.
const MAX_EDIT_DISTANCE: usize = 4;

/// Returns the variables of several services as one Markdown table, sorted by name.
pub fn markdown(services: &[(&str, &[Variable])]) -> String {
    let mut rows: BTreeMap<&str, (Variable, Vec<&str>)> = BTreeMap::new();
    for (service, variables) in services {
        for variable in *variables {
            rows.entry(variable.name).or_insert((*variable, Vec::new())).1.push(service);
        }
    }
    let mut text =
        String::from("| Variable | Form | Default | Read by | Meaning |\n| --- | --- | --- | --- | --- |\n");
    for (name, (variable, readers)) in rows {
        let default = variable.default.map_or_else(|| "none".to_owned(), |value| format!("`{value}`"));
        let file = if variable.secret { format!(" or `{name}_FILE`") } else { String::new() };
        let readers = readers.join(", ");
        let _ = writeln!(
            text,
            "| `{name}`{file} | {} | {default} | {readers} | {} |",
            variable.form, variable.meaning
        );
    }
    text
}

impl Environment {
    /// Returns the effective configuration, one line per variable, with secrets redacted.
    pub fn effective(&self, variables: &[Variable]) -> String {
        let mut text = String::new();
        for variable in variables {
            let set = self
                .get(variable.name)
                .or_else(|| self.get(&format!("{}_FILE", variable.name)).filter(|_| variable.secret));
            let value = match (set, variable.default) {
                (Some(_), _) if variable.secret => "[redacted]",
                (Some(value), _) => value,
                (None, Some(default)) => default,
                (None, None) => "[not set]",
            };
            let _ = writeln!(text, "{}={value}", variable.name);
        }
        text
    }
}

/// Returns a warning for each `SVC_` variable that is not known, with the most similar known name. Services can share an environment
/// file, so the variables of other services are known too.
pub fn unknown_names(environment: &Environment, own: &[Variable]) -> Vec<String> {
    let own = own.iter().map(|variable| (variable.name, variable.secret));
    let known: Vec<_> = own.chain(of_services()).collect();
    let is_known = |name: &str| {
        let reads = |&(known, is_secret): &(&str, bool)| {
            known == name || (is_secret && name.strip_suffix("_FILE") == Some(known))
        };
        CLIENT.contains(&name) || known.iter().any(reads)
    };
    let unknown = |name: &&str| {
        // The project's tests use `SVC_TEST_…`.
        name.starts_with(PREFIX) && !name.starts_with("SVC_TEST_") && !is_known(name)
    };
    environment.names().filter(unknown).map(|name| describe(name, &known)).collect()
}

/// Returns the variables of all services, and whether they are secrets.
fn of_services() -> Vec<(&'static str, bool)> {
    // A test reads the file, so it is valid.
    let services: BTreeMap<&str, BTreeMap<&str, Vec<&str>>> =
        serde_json::from_str(SERVICES).unwrap_or_default();
    let tables = services.into_values().flatten();
    tables.flat_map(|(kind, names)| names.into_iter().map(move |name| (name, kind == "secret"))).collect()
}

fn describe(name: &str, known: &[(&str, bool)]) -> String {
    // A short name has few letters in common with one at this distance.
    let max_distance = MAX_EDIT_DISTANCE.min((name.len() - PREFIX.len()) / 3);
    let nearest = known
        .iter()
        .map(|(known, _)| (strsim::damerau_levenshtein(name, known), *known))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, _)| *distance <= max_distance);
    match nearest {
        Some((_, nearest)) => format!("unknown variable {name}; did you mean {nearest}?"),
        None => format!("unknown variable {name}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    const URL: Variable = Variable::new("SVC_NATS_URL", "URL").secret().meaning("URL of the broker.");
    const LOG: Variable = Variable::new("SVC_LOG", "level").default("info").meaning("Log level.");

    #[test]
    fn the_table_lists_each_variable_once_with_all_its_readers() {
        let table = markdown(&[("identity", &[LOG]), ("ingest", &[URL, LOG])]);
        assert!(table.contains("| `SVC_LOG` | level | `info` | identity, ingest | Log level. |"), "{table}");
        assert!(table.contains("| `SVC_NATS_URL` or `SVC_NATS_URL_FILE` |"), "{table}");
        assert_eq!(table.lines().count(), 4);
    }

    #[test]
    fn effective_values_redact_secrets() {
        let environment = Environment::from_pairs([("SVC_NATS_URL", "nats://a:b@c")]);
        assert_eq!(environment.effective(&[URL, LOG]), "SVC_NATS_URL=[redacted]\nSVC_LOG=info\n");
    }

    /// Collects the environment variables of a part of the catalog: those of options, and those of credentials in the notes for agents.
    fn collect_variables<'a>(part: &'a Value, names: &mut BTreeSet<&'a str>) {
        match part {
            Value::Object(fields) => {
                let text = |field: &str| fields.get(field).and_then(Value::as_str);
                let credential = text("agent_notes").and_then(|notes| notes.split_once("Credential: "));
                let credential =
                    credential.and_then(|(_, notes)| notes.split(". ").next()).unwrap_or_default();
                names.extend(text("env"));
                names.extend(credential.split([' ', ',']).filter(|word| word.starts_with("SVC_")));
                fields.values().for_each(|field| collect_variables(field, names));
            }
            Value::Array(elements) => elements.iter().for_each(|element| collect_variables(element, names)),
            _ => {}
        }
    }

    #[test]
    fn variables_of_the_client_are_those_of_its_catalog() {
        let catalog: Value =
            serde_json::from_str(include_str!("../../../../catalog/svc.catalog.json")).unwrap();
        let mut names = BTreeSet::new();
        collect_variables(&catalog, &mut names);
        assert_eq!(BTreeSet::from(CLIENT), names);
        let environment = Environment::from_pairs(CLIENT.map(|name| (name, "x")));
        assert_eq!(unknown_names(&environment, &[]), Vec::<String>::new());
    }

    #[test]
    fn variables_of_other_services_are_known() {
        let names = [
            "SVC_SMTP_URL",
            "SVC_SMTP_URL_FILE",
            "SVC_LEASE",
            "SVC_DATABASE_CONNECTIONS",
            "SVC_SMTP_ULR",
            // Only a secret can come from a file.
            "SVC_LOG_FILE",
        ];
        let environment = Environment::from_pairs(names.map(|name| (name, "x")));
        assert_eq!(
            unknown_names(&environment, &[URL]),
            [
                "unknown variable SVC_LOG_FILE; did you mean SVC_LOGO_FILE?",
                "unknown variable SVC_SMTP_ULR; did you mean SVC_SMTP_URL?",
            ]
        );
    }

    #[test]
    fn warns_about_unknown_names_and_suggests_the_nearest() {
        let environment = Environment::from_pairs(
            ["SVC_NATS_URL", "SVC_NATS_URL_FILE", "SVC_NATSURL", "SVC_TENANT", "SVC_TYPO", "HOME"]
                .map(|name| (name, "x")),
        );
        assert_eq!(
            unknown_names(&environment, &[URL]),
            ["unknown variable SVC_NATSURL; did you mean SVC_NATS_URL?", "unknown variable SVC_TYPO"]
        );
    }
}
