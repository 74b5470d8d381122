//! The table of all variables, for `docs/configuration.md`, and the effective values, for `--check-config`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Environment, Variable};

/// The variables of several services as one Markdown table, each variable once, by name.
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
    /// What a process would run with, a line a variable, with secrets withheld.
    pub fn effective(&self, variables: &[Variable]) -> String {
        let mut text = String::new();
        for variable in variables {
            let set = self
                .get(variable.name)
                .or_else(|| self.get(&format!("{}_FILE", variable.name)).filter(|_| variable.secret));
            let value = match (set, variable.default) {
                (Some(_), _) if variable.secret => "[withheld]",
                (Some(value), _) => value,
                (None, Some(default)) => default,
                (None, None) => "[not set]",
            };
            let _ = writeln!(text, "{}={value}", variable.name);
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const URL: Variable =
        Variable { name: "SVC_NATS_URL", form: "URL", default: None, secret: true, meaning: "The broker." };
    const LOG: Variable = Variable {
        name: "SVC_LOG",
        form: "level",
        default: Some("info"),
        secret: false,
        meaning: "What is logged.",
    };

    #[test]
    fn a_variable_stands_once_with_all_its_readers() {
        let table = markdown(&[("identity", &[LOG]), ("ingest", &[URL, LOG])]);
        assert!(
            table.contains("| `SVC_LOG` | level | `info` | identity, ingest | What is logged. |"),
            "{table}"
        );
        assert!(table.contains("| `SVC_NATS_URL` or `SVC_NATS_URL_FILE` |"), "{table}");
        assert_eq!(table.lines().count(), 4);
    }

    #[test]
    fn effective_values_withhold_secrets() {
        let environment = Environment::from_pairs([("SVC_NATS_URL", "nats://a:b@c")]);
        assert_eq!(environment.effective(&[URL, LOG]), "SVC_NATS_URL=[withheld]\nSVC_LOG=info\n");
    }
}
