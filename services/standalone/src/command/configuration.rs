//! `svc-standalone configuration`: the reference of every variable, from the tables that the services read them by.

use std::io::{self, Write as _};
use std::process::ExitCode;

use service::config::markdown;

use crate::wiring;

const HEAD: &str = "\
# Configuration

Every variable that a service reads. Each is read from the environment; a secret also from the file that the variable with
`_FILE` at its end names. Durations and sizes are written with their unit (`30min`, `512MiB`). All faults are reported at
once with exit code 64; an unknown `SVC_` variable is a warning. `svc-<service> --check-config` prints what would hold, with
secrets withheld. This table is made by `make gen`.

";

pub(super) fn run() -> anyhow::Result<ExitCode> {
    let variables = wiring::variables();
    let tables: Vec<_> = variables.iter().map(|(service, table)| (*service, table.as_slice())).collect();
    write!(io::stdout(), "{HEAD}{}", markdown(&tables))?;
    Ok(ExitCode::SUCCESS)
}
