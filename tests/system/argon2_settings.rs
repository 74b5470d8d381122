//! After a change of the Argon2 settings, a failed login costs the same whether or not the account exists.

use contract::paths::Upstream;
use e2e::{ApiUser, Services, api_client};
use serde_json::json;
use testkit::{PASSWORD, wait_until};

const EMAIL: &str = "ada@acme.example";
/// The memory of a hash with the settings of [`Services`].
const STORED: f64 = 65_536.0;
/// The changed settings.
const CHANGED: [(&str, &str); 2] = [("SVC_ARGON2_MEMORY_COST", "1024"), ("SVC_HASH_WORKERS", "1")];

#[tokio::test]
#[expect(clippy::float_cmp, reason = "whole bytes")]
async fn an_unknown_account_costs_as_much_as_the_stored_passwords_after_a_change_of_the_settings() {
    let services = Services::prepare().await;
    services.migrate_all().await;
    let [identity, _session, _ingest] = services.start_all(&[]).await;
    let proxy = services.start_proxy().await;
    let _ada = ApiUser::create_acme(&proxy.base_url, &services.platform_token, EMAIL).await;
    drop(identity);
    let mut identity = services.start_with(Upstream::Identity, &CHANGED);
    identity.wait_until_ready().await;
    let client = api_client(&proxy.base_url).header("X-Tenant-ID", "acme");
    let log_in = async |email: &str, password: &str, status: u16| {
        let login = json!({ "email": email, "password": password });
        assert_eq!(client.post("/auth/password/login", &login).await.status, status);
        identity.metric("svc_hash_memory_bytes").await
    };
    // The memory of the worker is that of its largest hash, until it has been idle for a minute. Logins do not wait until the parameters
    // are counted, so the first one can use the changed settings.
    wait_until("the parameters of the stored passwords are used", async || {
        if identity.metric("svc_hash_memory_bytes").await > 0.0 {
            return None;
        }
        let memory = log_in("nobody@acme.example", "wrong-password-altogether", 401).await;
        (memory == STORED).then_some(())
    })
    .await;
    assert_eq!(log_in("nobody@acme.example", "\u{7}", 401).await, STORED);
    assert_eq!(log_in(EMAIL, "\u{7}", 401).await, STORED);
    assert_eq!(log_in(EMAIL, "wrong-password-altogether", 401).await, STORED);
    // The login of the owner replaces the digest after the response.
    log_in(EMAIL, PASSWORD, 200).await;
    wait_until("the digest has the changed parameters", async || {
        (identity.metric("svc_hash_memory_bytes").await == 16.0 * STORED).then_some(())
    })
    .await;
}
