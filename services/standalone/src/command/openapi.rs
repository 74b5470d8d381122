//! `svc-standalone openapi`: the document that the services answer at `/api/v1/openapi.json`.

use std::io::{self, Write as _};
use std::process::ExitCode;

pub(super) fn run() -> anyhow::Result<ExitCode> {
    write!(io::stdout(), "{}", identity::openapi::pretty_document())?;
    Ok(ExitCode::SUCCESS)
}
