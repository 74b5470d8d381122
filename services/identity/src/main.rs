//! `svc-identity`: the identity service as a single process.

use std::process::ExitCode;

use identity::Identity;
use service::process::Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    service::process::main::<Identity>()
}
