//! Configuration of the service binaries: `--check-config` and configuration errors.

use contract::paths::Upstream;
use e2e::{ALL_SERVICES, Services, output_of};

#[tokio::test]
async fn check_config_prints_the_effective_configuration_without_secrets() {
    const SECRETS: [&str; 6] =
        ["SERVICE_TOKEN", "PLATFORM_TOKEN", "LIMITER_KEY", "FACTOR_KEY", "DATABASE_URL", "NATS_URL"];
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

/// The chart sets the variables of the client library of Postgres (`database.sslMode`, `database.ca`).
#[tokio::test]
async fn pgsslmode_applies_to_a_url_without_sslmode() {
    let services = Services::prepare().await;
    for (mode, rejects) in [("prefer", false), ("verify-full", true)] {
        let mut command = services.command(Upstream::Session);
        command.args(["migrate", "status"]).env("PGSSLMODE", mode);
        let output = output_of(command).await;
        // The schema is not migrated yet.
        assert_eq!(output.status.code(), Some(if rejects { 69 } else { 1 }), "{mode}: {output:?}");
        let output = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.contains("server does not support TLS"), rejects, "{mode}: {output}");
    }
}

#[tokio::test]
async fn an_internal_url_has_a_scheme_and_a_host() {
    let services = Services::prepare().await;
    for (service, name) in [
        (Upstream::Identity, "SVC_SESSION_URL"),
        (Upstream::Session, "SVC_IDENTITY_URL"),
        (Upstream::Ingest, "SVC_SESSION_URL"),
        (Upstream::Ingest, "SVC_KUBERNETES_URL"),
    ] {
        for value in ["session:8081", "ftp://x"] {
            let mut command = services.command(service);
            command.arg("--check-config").env(name, value);
            let output = output_of(command).await;
            assert_eq!(output.status.code(), Some(64), "{output:?}");
            let expected = format!("{name}={value}: must start with http:// or https:// and a host");
            let stderr = String::from_utf8(output.stderr).unwrap();
            assert!(stderr.contains(&expected), "{stderr}");
        }
    }
}

#[tokio::test]
async fn the_listeners_of_a_service_have_different_ports() {
    let services = Services::prepare().await;
    for (public, other, address, code) in [
        ("127.0.0.1:8080", "SVC_LISTEN_INTERNAL", "127.0.0.1:8080", 64),
        ("127.0.0.1:8080", "SVC_LISTEN_INTERNAL", "[::]:8080", 64),
        ("0.0.0.0:8080", "SVC_LISTEN_ADMIN", "127.0.0.1:8080", 64),
        ("127.0.0.2:8080", "SVC_LISTEN_ADMIN", "127.0.0.1:8080", 0),
        ("127.0.0.1:0", "SVC_LISTEN_ADMIN", "127.0.0.1:0", 0),
    ] {
        let mut command = services.command(Upstream::Session);
        command.arg("--check-config").env("SVC_LISTEN", public).env(other, address);
        let output = output_of(command).await;
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        let expected = format!("SVC_LISTEN and {other} have the same port: use different ones");
        assert_eq!(stderr.contains(&expected), code == 64, "{stderr}");
    }
}

#[tokio::test]
async fn check_config_warns_about_unknown_variables() {
    let services = Services::prepare().await;
    for (service, (name, value), warning) in [
        (
            Upstream::Identity,
            ("SVC_LIMIT_LOGN", "1/s"),
            "unknown variable SVC_LIMIT_LOGN; did you mean SVC_LIMIT_LOGIN?",
        ),
        (
            Upstream::Ingest,
            ("SVC_NATS_URLL", "x"),
            "unknown variable SVC_NATS_URLL; did you mean SVC_NATS_URL?",
        ),
    ] {
        let mut command = services.command(service);
        command.arg("--check-config").env(name, value);
        let output = output_of(command).await;
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains(warning), "{stderr}");
    }
}

#[tokio::test]
async fn a_service_reports_all_configuration_errors_at_once_without_secrets() {
    const COMMON: [(&str, &str); 7] = [
        ("SVC_SERVICE_TOKEN", "too-short"),
        ("SVC_LISTEN", "8080"),
        ("SVC_LOG", "bogus=foo=bar"),
        ("SVC_NATS_URL", "http://too-short"),
        ("SVC_PUBLIC_URL", "ftp://svc.example/path"),
        ("SVC_TRUSTED_PROXIES", "10.0.0.1/33"),
        ("SVC_CONNECTIONS_PER_ADDRESS", "0"),
    ];
    const IDENTITY: [&str; 10] = [
        "SVC_DATABASE_URL",
        "SVC_INVITE_TTL",
        "SVC_ARGON2_TIME_COST",
        "SVC_ARGON2_MEMORY_COST",
        "SVC_ARGON2_PARALLELISM",
        "SVC_ARGON2_HASH_LEN",
        "SVC_ARGON2_SALT_LEN",
        "SVC_STREAM_MODE",
        "SVC_STREAM_MAX_BYTES",
        "SVC_AUDIT_MAX_AGE",
    ];
    let services = Services::prepare().await;
    for (service, invalid) in [
        (Upstream::Identity, &IDENTITY[..]),
        (Upstream::Session, &["SVC_DATABASE_URL", "SVC_SESSION_IDLE", "SVC_DEVICE_MAX"]),
        (Upstream::Ingest, &["SVC_STREAM_MODE", "SVC_STREAM_MAX_BYTES"]),
    ] {
        for arguments in [&["--check-config"][..], &[]] {
            let mut command = services.command(service);
            command.args(arguments).envs(COMMON).envs(invalid.iter().map(|name| (name, "0x")));
            let output = output_of(command).await;
            assert_eq!(output.status.code(), Some(64), "{output:?}");
            let stderr = String::from_utf8(output.stderr).unwrap();
            for name in COMMON.iter().map(|(name, _)| name).chain(invalid) {
                assert!(stderr.contains(name), "{}: {name} is missing in {stderr}", service.name());
            }
            assert!(!stderr.contains("too-short"), "{stderr}");
        }
    }
}
