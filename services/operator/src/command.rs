//! Subcommands of `svc-operator`.

use std::process::ExitCode;

use kube::CustomResourceExt as _;
use service::process::CommandResult;

use crate::resources::{SvcConsumer, SvcProducer, SvcTenant};

/// Subcommands of `svc-operator`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Print the custom resource definitions as a JSON list, which `kubectl apply` reads
    Crds,
}

impl Command {
    pub(crate) fn execute(self) -> CommandResult {
        let Self::Crds = self;
        print!("{}", definitions()?);
        Ok(ExitCode::SUCCESS)
    }
}

/// A list of Kubernetes objects.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct List<T> {
    api_version: &'static str,
    kind: &'static str,
    items: T,
}

/// Returns the custom resource definitions (`helm/svc/files/crds.json`).
fn definitions() -> serde_json::Result<String> {
    let items = [SvcTenant::crd(), SvcProducer::crd(), SvcConsumer::crd()];
    let list = List { api_version: "v1", kind: "List", items };
    Ok(format!("{}\n", serde_json::to_string_pretty(&list)?))
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_definitions_of_the_chart_are_up_to_date() {
        let text = super::definitions().unwrap();
        let file = include_str!("../../../helm/svc/files/crds.json");
        assert!(file == text, "helm/svc/files is out of date; run `make gen`:\n{text}");
    }
}
