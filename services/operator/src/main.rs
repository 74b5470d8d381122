//! `svc-operator`: the Kubernetes operator.

use std::process::ExitCode;

use operator::Operator;
use service::process::Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    service::process::main::<Operator>()
}
