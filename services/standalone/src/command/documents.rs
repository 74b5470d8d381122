//! The documents that `make gen` writes.

use contract::API_PREFIX;
use contract::paths::PREFIXES;
use serde_json::{Map, Value, json};
use service::config::Variable;
use service::operator;

use crate::wiring;

const CONFIGURATION_HEAD: &str = "\
# Configuration

All variables of the services. A service reads each variable from the environment, and a secret alternatively from the file
named by the variable with the suffix `_FILE`. Durations and sizes have a unit (`30s`, `5m`, `1h`, `7d`; `512MiB`). A service
reports all configuration errors at once and exits with code 64; an unknown `SVC_` variable is a warning.
`svc-<service> --check-config` prints the effective values with secrets redacted. `make gen` generates this file.

";

/// The variables of the services in this process and of the operator.
fn documented_variables() -> Vec<(&'static str, Vec<Variable>)> {
    let mut services = wiring::variables().to_vec();
    services.push((operator::NAME, operator::variables()));
    services
}

/// Returns the reference of all variables (`docs/configuration.md`).
pub(super) fn configuration() -> String {
    let variables = documented_variables();
    let tables: Vec<_> = variables.iter().map(|(service, table)| (*service, table.as_slice())).collect();
    format!("{CONFIGURATION_HEAD}{}", service::config::markdown(&tables))
}

/// Returns the path prefixes of the public API with their services (`helm/svc/files/routes.json`). A prefix ends at a
/// path segment; the longest one applies.
pub(super) fn routes() -> String {
    let routes = PREFIXES.iter().map(|(path, service)| json!({ "path": path, "component": service.name() }));
    let table = json!({ "prefix": API_PREFIX, "routes": routes.collect::<Vec<_>>() });
    format!("{table:#}\n")
}

/// Returns the variables of each service, plain ones and secrets, and those with a unit (`helm/svc/files/variables.json`).
pub(super) fn variables() -> String {
    let services = documented_variables().into_iter().map(|(service, mut variables)| {
        variables.sort_by_key(|variable| variable.name);
        let names = |is_listed: fn(&Variable) -> bool| -> Vec<_> {
            variables.iter().filter(|variable| is_listed(variable)).map(|variable| variable.name).collect()
        };
        let has_unit = |variable: &Variable| {
            ["duration", "size", "bytes per second"].iter().any(|kind| variable.form.starts_with(kind))
        };
        let (plain, secret) = (names(|variable| !variable.secret), names(|variable| variable.secret));
        (service.to_owned(), json!({ "plain": plain, "secret": secret, "unit": names(has_unit) }))
    });
    format!("{:#}\n", Value::Object(services.collect::<Map<_, _>>()))
}

#[cfg(test)]
mod tests {
    use service::process::LISTEN_INTERNAL;

    #[test]
    fn only_services_with_an_api_read_the_address_of_the_internal_one() {
        let reads =
            |variables: &[super::Variable]| variables.iter().any(|it| it.name == LISTEN_INTERNAL.name);
        let documented = super::documented_variables();
        let readers: Vec<_> = documented
            .iter()
            .filter(|(_, variables)| reads(variables))
            .map(|(service, _)| *service)
            .collect();
        assert_eq!(readers, ["identity", "session", "ingest"]);
    }

    #[test]
    fn each_number_and_size_has_a_documented_range() {
        let kinds = ["number", "count", "percentage", "size", "bytes", "duration"];
        for (service, variables) in super::documented_variables() {
            for variable in variables {
                let kind = variable.form.split([',', ' ']).next().unwrap_or_default();
                let has_range = variable.form.contains(" to ");
                assert!(
                    !kinds.contains(&kind) || has_range,
                    "{service}: {}: {}",
                    variable.name,
                    variable.form
                );
            }
        }
    }

    #[test]
    fn the_files_of_the_chart_are_up_to_date() {
        for (file, text) in [
            (include_str!("../../../../helm/svc/files/routes.json"), super::routes()),
            (include_str!("../../../../helm/svc/files/variables.json"), super::variables()),
        ] {
            assert!(file == text, "helm/svc/files is out of date; run `make gen`:\n{text}");
        }
    }
}
