//! Configuration of the service binaries: `--check-config` and configuration errors.

use contract::paths::Upstream;
use e2e::{ALL_SERVICES, Services, output_of};

#[tokio::test]
async fn check_config_prints_the_effective_configuration_without_secrets() {
    const SECRETS: [&str; 5] = ["SERVICE_TOKEN", "PLATFORM_TOKEN", "LIMITER_KEY", "DATABASE_URL", "NATS_URL"];
    let services = Services::prepare().await;
    for service in ALL_SERVICES {
        let mut command = services.command(service);
        let is_secret =
            |name: &std::ffi::OsStr| SECRETS.iter().any(|end| name.to_str().unwrap().ends_with(end));
        let secrets: Vec<_> = command
            .get_envs()
            .filter(|(name, _)| is_secret(name))
            .map(|(_, value)| value.unwrap().to_str().unwrap().to_owned())
            .collect();
        command.arg("--check-config");
        let output = output_of(command).await;
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert!(stdout.contains("SVC_SERVICE_TOKEN=[redacted]\n"), "{stdout}");
        assert!(stdout.contains(&format!("SVC_PUBLIC_URL=http://{}\n", services.address)), "{stdout}");
        for secret in &secrets {
            assert!(!stdout.contains(secret.as_str()), "{} prints {secret}", service.name());
        }
        assert!(secrets.len() >= 2);
    }
}

#[tokio::test]
async fn a_service_reports_all_configuration_errors_at_once_without_secrets() {
    let services = Services::prepare().await;
    for (service, invalid) in [
        (Upstream::Identity, ["SVC_ARGON2_TIME_COST", "SVC_INVITE_TTL"]),
        (Upstream::Session, ["SVC_SESSION_IDLE", "SVC_DEVICE_MAX"]),
        (Upstream::Ingest, ["SVC_STREAM_MODE", "SVC_STREAM_MAX_BYTES"]),
    ] {
        for arguments in [&["--check-config"][..], &[]] {
            let mut command = services.command(service);
            command
                .args(arguments)
                .env("SVC_SERVICE_TOKEN", "too-short")
                .env(invalid[0], "x")
                .env(invalid[1], "y");
            let output = output_of(command).await;
            assert_eq!(output.status.code(), Some(64), "{output:?}");
            let stderr = String::from_utf8(output.stderr).unwrap();
            for name in ["SVC_SERVICE_TOKEN", invalid[0], invalid[1]] {
                assert!(stderr.contains(name), "{}: {name} is missing in {stderr}", service.name());
            }
            assert!(!stderr.contains("too-short"), "{stderr}");
        }
    }
}
