//! Binary `svc`: hands over to the library, which answers with an exit status.

fn main() -> std::process::ExitCode {
    cli::run()
}
