//! `svc-ingest`: the ingest service.

use std::process::ExitCode;

use ingest::Ingest;
use service::process::Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    service::process::main::<Ingest>()
}
