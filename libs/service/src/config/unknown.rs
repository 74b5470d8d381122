//! A misspelt variable would be a default that nobody asked for; it gets a warning with the nearest known name.

use super::{Environment, Variable};

/// Further names that are known, but not read by a service: the client's.
const CLIENT: [&str; 8] = [
    "SVC_BASE_URL",
    "SVC_TENANT",
    "SVC_TOKEN",
    "SVC_API_KEY",
    "SVC_OUTPUT",
    "SVC_CONTEXT",
    "SVC_PLATFORM_TOKEN",
    "SVC_CONFIG_DIR",
];

/// A sentence for each `SVC_` variable that nobody reads.
pub fn unknown_names(environment: &Environment, known: &[Variable]) -> Vec<String> {
    let is_known = |name: &str| {
        CLIENT.contains(&name)
            || known
                .iter()
                .any(|v| v.name == name || (v.secret && name.strip_suffix("_FILE") == Some(v.name)))
    };
    // `SVC_TEST_…` belongs to the project's own test runs.
    let ours = |name: &&str| name.starts_with("SVC_") && !name.starts_with("SVC_TEST_");
    environment
        .names()
        .filter(ours)
        .filter(|name| !is_known(name))
        .map(|name| describe(name, known))
        .collect()
}

fn describe(name: &str, known: &[Variable]) -> String {
    let nearest = known
        .iter()
        .map(|variable| (strsim::damerau_levenshtein(name, variable.name), variable.name))
        .min()
        .filter(|(distance, _)| *distance <= 4);
    match nearest {
        Some((_, nearest)) => format!("the variable {name} is not known; did you mean {nearest}?"),
        None => format!("the variable {name} is not known"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_told_with_its_nearest() {
        const URL: Variable = Variable {
            name: "SVC_NATS_URL",
            form: "URL",
            default: None,
            secret: true,
            meaning: "The broker.",
        };
        let environment = Environment::from_pairs(
            ["SVC_NATS_URL", "SVC_NATS_URL_FILE", "SVC_NATSURL", "SVC_TENANT", "SVC_ZZZZZZZZZZZZZZZ", "HOME"]
                .map(|name| (name, "x")),
        );
        assert_eq!(
            unknown_names(&environment, &[URL]),
            [
                "the variable SVC_NATSURL is not known; did you mean SVC_NATS_URL?",
                "the variable SVC_ZZZZZZZZZZZZZZZ is not known"
            ]
        );
    }
}
