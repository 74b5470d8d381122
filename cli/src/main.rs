//! Binary `svc`.

fn main() -> std::process::ExitCode {
    cli::run()
}
