//! Subcommands of `svc-operator`.

use std::process::ExitCode;

use kube::CustomResourceExt as _;
use service::process::CommandResult;

use crate::resources::{SvcConsumer, SvcProducer, SvcTenant};

/// Subcommands of `svc-operator`.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Print the custom resource definitions as a JSON array
    Crds,
}

impl Command {
    pub(crate) fn execute(self) -> CommandResult {
        let Self::Crds = self;
        print!("{}", definitions()?);
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns the custom resource definitions (`helm/svc/files/crds.json`).
fn definitions() -> serde_json::Result<String> {
    let definitions = [SvcTenant::crd(), SvcProducer::crd(), SvcConsumer::crd()];
    Ok(format!("{}\n", serde_json::to_string_pretty(&definitions)?))
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
