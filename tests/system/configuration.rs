//! What the services' binaries say of their configuration, before anything runs.

use contract::paths::Upstream;
use e2e::{Services, output_of};

const ALL: [Upstream; 3] = [Upstream::Identity, Upstream::Session, Upstream::Ingest];

#[tokio::test]
async fn the_effective_configuration_is_shown_without_secrets() {
    let services = Services::prepare().await;
    for service in ALL {
        let mut command = services.command(service);
        let secret = |name: &std::ffi::OsStr| {
            let ends = ["SERVICE_TOKEN", "PLATFORM_TOKEN", "LIMITER_KEY", "DATABASE_URL", "NATS_URL"];
            ends.iter().any(|end| name.to_str().unwrap().ends_with(end))
        };
        let secrets: Vec<_> = command.get_envs().filter(|(name, _)| secret(name)).collect();
        let secrets: Vec<_> =
            secrets.into_iter().map(|(_, value)| value.unwrap().to_str().unwrap().to_owned()).collect();
        command.arg("--check-config");
        let output = output_of(command).await;
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let shown = String::from_utf8(output.stdout).unwrap();
        assert!(shown.contains("SVC_SERVICE_TOKEN=[redacted]\n"), "{shown}");
        assert!(shown.contains(&format!("SVC_PUBLIC_URL=http://{}\n", services.address)), "{shown}");
        for secret in &secrets {
            assert!(!shown.contains(secret.as_str()), "{} shows {secret}", service.name());
        }
        assert!(secrets.len() >= 2);
    }
}

#[tokio::test]
async fn all_faults_are_told_at_once_and_no_secret_with_them() {
    let services = Services::prepare().await;
    for (service, faults) in [
        (Upstream::Identity, ["SVC_ARGON2_TIME_COST", "SVC_INVITE_TTL"]),
        (Upstream::Session, ["SVC_SESSION_IDLE", "SVC_DEVICE_MAX"]),
        (Upstream::Ingest, ["SVC_STREAM_MODE", "SVC_STREAM_MAX_BYTES"]),
    ] {
        for arguments in [&["--check-config"][..], &[]] {
            let mut command = services.command(service);
            command
                .args(arguments)
                .env("SVC_SERVICE_TOKEN", "too-short")
                .env(faults[0], "x")
                .env(faults[1], "y");
            let output = output_of(command).await;
            assert_eq!(output.status.code(), Some(64), "{output:?}");
            let said = String::from_utf8(output.stderr).unwrap();
            for name in ["SVC_SERVICE_TOKEN", faults[0], faults[1]] {
                assert!(said.contains(name), "{}: {name} is missing in {said}", service.name());
            }
            assert!(!said.contains("too-short"), "{said}");
        }
    }
}
