//! `svc-session`: the session service as a separate process.

use std::process::ExitCode;

use service::process::Allocator;
use session::Session;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    service::process::main::<Session>()
}
