//! `svc`: command line client.

fn main() -> std::process::ExitCode {
    cli::run()
}
