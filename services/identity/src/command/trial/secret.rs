//! The Secret of a trial: all passwords, URLs and tokens, and the configuration of NATS. One object, so that it is created
//! completely or not at all.

use std::collections::BTreeMap;
use std::path::Path;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use hashing::{Entropy as _, RawToken, SystemEntropy, TokenKind};
use http::StatusCode;
use reqwest::Certificate;
use serde_json::{Value, json};
use url::Url;

use super::{REQUEST_TIMEOUT, Result};

const NATS: &str = include_str!("../../../../../deploy/dev/nats.conf");
const ACCOUNTS: &str = include_str!("../../../../../deploy/nats/accounts.conf");
const CONSUMERS: &str = include_str!("../../../../../deploy/dev/consumers.conf");
/// Names in the keys of the chart, and their Postgres roles.
const ROLES: [(&str, &str); 4] = [
    ("identity", "svc_identity"),
    ("identityMigrator", "svc_identity_migrator"),
    ("session", "svc_session"),
    ("sessionMigrator", "svc_session_migrator"),
];
const NATS_USERS: [&str; 5] = ["administrator", "audit-administrator", "identity", "session", "ingest"];

/// Returns new values. The chart derives the keys from its values: `<purpose>-<name>`.
pub(super) fn data(postgres: &str, nats: &str) -> BTreeMap<String, String> {
    let mut data = BTreeMap::from([
        ("postgres".to_owned(), random()),
        ("admin-password".to_owned(), random()),
        ("secrets-serviceToken".to_owned(), random()),
        ("secrets-limiterKey".to_owned(), random()),
        ("secrets-factorKey".to_owned(), random()),
        (
            "secrets-platformToken".to_owned(),
            RawToken::generate(TokenKind::PlatformAdmin, &SystemEntropy).expose().to_owned(),
        ),
    ]);
    for (name, role) in ROLES {
        let password = random();
        data.insert(format!("database-{name}"), format!("postgres://{role}:{password}@{postgres}/svc"));
        data.insert(role.to_owned(), password);
    }
    let mut accounts = ACCOUNTS.to_owned();
    for user in NATS_USERS {
        let variable = format!("$SVC_NATS_{}_PASSWORD", user.to_uppercase().replace('-', "_"));
        let password = random();
        accounts = accounts.replace(&variable, &password);
        data.insert(format!("nats-{user}"), format!("nats://{user}:{password}@{nats}"));
    }
    for (file, content) in [
        ("nats.conf", NATS.to_owned()),
        ("accounts.conf", accounts),
        ("consumers.conf", CONSUMERS.to_owned()),
    ] {
        data.insert(file.to_owned(), content);
    }
    data
}

/// 256 random bits in hexadecimal, which neither SQL nor a URL needs to quote.
fn random() -> String {
    let mut bytes = [0; 32];
    SystemEntropy.fill(&mut bytes);
    HEXLOWER.encode(&bytes)
}

/// Creates the Secret, owned by the service account. An existing one stays as it is.
pub(super) async fn create(
    name: &str,
    data: &BTreeMap<String, String>,
    api_server: &Url,
    service_account: &Path,
) -> Result<String> {
    let token = std::fs::read_to_string(service_account.join("token"))?;
    let owner = Owner::from_token(token.trim()).ok_or("the token of the service account is malformed")?;
    let mut http = reqwest::Client::builder().no_proxy().timeout(REQUEST_TIMEOUT);
    if api_server.scheme() == "https" {
        let authority = std::fs::read(service_account.join("ca.crt"))?;
        http = http.tls_certs_only(Certificate::from_pem_bundle(&authority)?);
    }
    let url = api_server.join(&format!("/api/v1/namespaces/{}/secrets", owner.namespace))?;
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": name, "ownerReferences": [{
            "apiVersion": "v1", "kind": "ServiceAccount", "name": owner.name, "uid": owner.uid,
        }] },
        "stringData": data,
    });
    let response = http.build()?.post(url).bearer_auth(token.trim()).json(&secret).send().await?;
    match response.status() {
        StatusCode::CREATED => Ok(format!("created the Secret {name}")),
        StatusCode::CONFLICT => Ok(format!("the Secret {name} exists already")),
        status => Err(format!("the Kubernetes API returned {status}: {}", response.text().await?).into()),
    }
}

/// The service account of a token, from the private claims of Kubernetes.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    namespace: String,
    name: String,
    uid: String,
}

impl Owner {
    /// The signature is not verified: the API server does.
    fn from_token(token: &str) -> Option<Self> {
        let claims = BASE64URL_NOPAD.decode(token.split('.').nth(1)?.as_bytes()).ok()?;
        let claims: Value = serde_json::from_slice(&claims).ok()?;
        let claims = claims.get("kubernetes.io")?;
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let account = claims.get("serviceaccount")?;
        Some(Self {
            namespace: text(claims.get("namespace"))?,
            name: text(account.get("name"))?,
            uid: text(account.get("uid"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_password_of_the_configuration_is_random_and_in_a_url() {
        let (data, other) = (data("postgres:5432", "nats:4222"), data("postgres:5432", "nats:4222"));
        let files = &data["accounts.conf"];
        assert!(!files.contains("$SVC_NATS_"), "{files}");
        for user in NATS_USERS {
            let url = Url::parse(&data[&format!("nats-{user}")]).unwrap();
            assert!(
                files.contains(&format!("user: {user}, password: {}", url.password().unwrap())),
                "{user}"
            );
        }
        for (name, role) in ROLES {
            let expected = format!("postgres://{role}:{}@postgres:5432/svc", data[role]);
            assert_eq!(data[&format!("database-{name}")], expected);
        }
        let same: Vec<_> = data.keys().filter(|key| data[*key] == other[*key]).collect();
        assert_eq!(same, ["consumers.conf", "nats.conf"]);
    }

    #[test]
    fn the_owner_is_the_service_account_of_the_token() {
        let claims = json!({ "kubernetes.io": {
            "namespace": "there", "serviceaccount": { "name": "svc-trial", "uid": "u-1" }, "pod": { "name": "p" },
        } });
        let token = format!("h.{}.s", BASE64URL_NOPAD.encode(claims.to_string().as_bytes()));
        let [namespace, name, uid] = ["there", "svc-trial", "u-1"].map(str::to_owned);
        assert_eq!(Owner::from_token(&token), Some(Owner { namespace, name, uid }));
        assert_eq!([Owner::from_token("x"), Owner::from_token("a.e30.c")], [None, None]);
    }
}
