//! A lost key of authenticator apps.

use contract::paths::Upstream;
use e2e::api_client;
use serde_json::{Value, json};
use testkit::{totp_after, wait_until};

use super::Watched;

const KEY: &str = "a-factor-key-for-tests-of-32-or-more";
const NEW_KEY: &str = "another-factor-key-for-tests-of-32-or-more";
const THIRD_KEY: &str = "a-third-factor-key-for-tests-of-32-or-more";

/// Logs in with the password and this proof. Returns the status.
async fn log_in(watched: &Watched, field: &str, proof: &str) -> u16 {
    let client = api_client(&watched.proxy.base_url).header("X-Tenant-ID", "acme");
    let password = json!({ "email": "ada@acme.example", "password": testkit::PASSWORD });
    let login = client.post("/auth/password/login", &password).await.json();
    let mut answer = json!({ "challenge": login["challenge"] });
    answer[field] = proof.into();
    client.post("/auth/second-factor", &answer).await.status
}

#[tokio::test]
async fn a_lost_key_of_authenticator_apps() {
    let Some(mut watched) = Watched::start(&[("SVC_FACTOR_KEY", KEY)]).await else { return };
    let ada = watched.ada.client.clone();
    let app: Value = ada.post("/auth/factors/totp", &Value::Null).await.json();
    let secret = app["secret"].as_str().unwrap();
    let confirmation = json!({ "code": totp_after(secret, 0) });
    let confirmed: Value = ada.post("/auth/factors/totp/confirm", &confirmation).await.json();
    let recovery_codes = confirmed["recovery_codes"].as_array().unwrap();

    watched.restart(Upstream::Identity, &[("SVC_FACTOR_KEY", NEW_KEY)]).await;
    watched.expect(&["SvcFactorKeyMissing"], async || ()).await;
    assert_eq!(log_in(&watched, "code", &totp_after(secret, 1)).await, 503);
    assert_eq!(log_in(&watched, "recovery_code", recovery_codes[0].as_str().unwrap()).await, 200);

    // The key is found.
    watched.restart(Upstream::Identity, &[("SVC_FACTOR_KEY", &format!("{NEW_KEY}\n{KEY}"))]).await;
    watched.expect_recovery(async || ()).await;
    let counted = "svc_factor_secrets{key=\"previous\"} == 1";
    wait_until("the secret is counted", async || {
        (!watched.query(counted).await.as_array().unwrap().is_empty()).then_some(())
    })
    .await;
    let previous = watched.act("SvcFactorKeyMissing", "svc_factor_secrets{key=\"previous\"}").await;
    assert!(previous.contains("\"1\""), "{previous}");
    assert_eq!(log_in(&watched, "code", &totp_after(secret, 1)).await, 200);

    // The login has encrypted the secret under the new key, which is lost for good, and the person has no recovery code.
    watched.restart(Upstream::Identity, &[("SVC_FACTOR_KEY", THIRD_KEY)]).await;
    watched.expect(&["SvcFactorKeyMissing"], async || ()).await;
    watched.values.push(("<user_id>", watched.ada.user_id.clone()));
    watched.act("SvcFactorKeyMissing", "svc users reset-factors <user_id> --tenant <tenant>").await;
    assert_eq!(watched.log_in().await, 200, "the password is enough");
    watched.restart(Upstream::Identity, &[("SVC_FACTOR_KEY", THIRD_KEY)]).await;
    watched.expect_recovery(async || ()).await;
}
