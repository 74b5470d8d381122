use chrono::TimeDelta;
use service::clock::ManualClock;
use testkit::{TokenReviews, service_account_token};

use super::*;

const NOW: DateTime<Utc> = DateTime::UNIX_EPOCH;

struct Setup {
    api: TokenReviews,
    reviewer: TokenReviewer,
}

impl Setup {
    async fn start() -> Self {
        let api = TokenReviews::start().await;
        let settings = KubernetesApi {
            url: api.url.parse().unwrap(),
            ca_file: "missing".into(),
            token_file: api.token_file().into(),
        };
        let clock = Arc::new(ManualClock::at(NOW));
        let reviewer = TokenReviewer::new(&settings, "svc-ingest", clock).unwrap();
        Self { api, reviewer }
    }

    /// Returns a token that the API server knows.
    fn token(&self, lifetime: TimeDelta, audience: &str, pod: Option<&str>) -> String {
        let token = service_account_token(NOW + lifetime);
        self.api.issue(&token, "system:serviceaccount:apps:collector", audience, pod);
        token
    }
}

async fn name(reviewer: &TokenReviewer, token: &str) -> Option<String> {
    reviewer.review(token).await.unwrap().map(|account| account.to_string())
}

/// Advances the time. It is paused only here, because a runtime that waits for a response would advance it to the next timeout.
async fn pass(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn a_token_of_a_pod_for_the_audience_is_valid() {
    let setup = Setup::start().await;
    let hour = TimeDelta::hours(1);
    let valid = setup.token(hour, "svc-ingest", Some("collector-1"));
    assert_eq!(name(&setup.reviewer, &valid).await.as_deref(), Some("apps/collector"));
    for invalid in [
        setup.token(hour, "svc-session", Some("collector-1")),
        setup.token(hour, "svc-ingest", None),
        service_account_token(NOW + hour),
    ] {
        assert_eq!(name(&setup.reviewer, &invalid).await, None);
    }
    let person = service_account_token(NOW + hour);
    setup.api.issue(&person, "ada", "svc-ingest", Some("collector-1"));
    assert_eq!(name(&setup.reviewer, &person).await, None);
}

/// Cannot verify a credential.
struct UnavailableVerifier;

#[async_trait::async_trait]
impl CredentialVerifier for UnavailableVerifier {
    async fn introspect(&self, _: TokenDigest) -> Result<Introspection, Unavailable> {
        Err(Unavailable::because("on purpose"))
    }
}

#[tokio::test]
async fn a_reviewed_token_has_the_digest_of_its_service_account() {
    let setup = Setup::start().await;
    let token = setup.token(TimeDelta::hours(1), "svc-ingest", Some("collector-1"));
    let verifier = WorkloadVerifier::new(UnavailableVerifier, setup.reviewer.clone());
    let account = "apps/collector".parse().unwrap();
    assert_eq!(verifier.review(&token).await.unwrap(), Some(service_account_digest(&account)));
    let other = "apps/other".parse().unwrap();
    assert_ne!(service_account_digest(&account), service_account_digest(&other));
    assert_eq!(verifier.review(&service_account_token(NOW)).await.unwrap(), None);
    let introspected = verifier.introspect(service_account_digest(&account)).await;
    assert!(introspected.is_err(), "the result is that of the other verifier");
}

#[tokio::test]
async fn only_json_web_tokens_of_at_most_8_kib_are_sent_to_the_api_server() {
    let setup = Setup::start().await;
    let long = format!("eyJ{}.a.b", "a".repeat(MAX_TOKEN_BYTES));
    for text in ["", "eyJ", "eyJ.a", "eyJ.a.b.c", "svc_st_a.b.c", "eyJ.a.b c", "eyJ.ä.b", &long] {
        assert_eq!(name(&setup.reviewer, text).await, None, "{text}");
    }
    assert_eq!(setup.api.reviews(), 0);
}

#[tokio::test]
async fn a_valid_token_is_reviewed_again_after_60_s_and_a_rejected_one_after_10_s() {
    let setup = Setup::start().await;
    let valid = setup.token(TimeDelta::hours(1), "svc-ingest", Some("pod"));
    let rejected = service_account_token(NOW);
    for (token, seconds) in [(&valid, 60), (&rejected, 10)] {
        let before = setup.api.reviews();
        name(&setup.reviewer, token).await;
        pass(seconds - 1).await;
        name(&setup.reviewer, token).await;
        assert_eq!(setup.api.reviews(), before + 1);
        pass(1).await;
        name(&setup.reviewer, token).await;
        assert_eq!(setup.api.reviews(), before + 2);
    }
}

#[tokio::test]
async fn a_review_is_not_used_after_the_expiry_of_the_token() {
    let setup = Setup::start().await;
    let token = setup.token(TimeDelta::seconds(20), "svc-ingest", Some("pod"));
    assert!(name(&setup.reviewer, &token).await.is_some());
    setup.api.revoke(&token);
    pass(19).await;
    assert!(name(&setup.reviewer, &token).await.is_some());
    pass(1).await;
    assert!(name(&setup.reviewer, &token).await.is_none());
    assert!(
        setup.reviewer.0.known.get(&TokenDigest::from_text(&token)).is_none(),
        "a rejected token is not known"
    );
}

#[tokio::test]
async fn concurrent_reviews_of_a_token_are_one_request() {
    let setup = Setup::start().await;
    let token = setup.token(TimeDelta::hours(1), "svc-ingest", Some("pod"));
    let reviews = (0..20).map(|_| name(&setup.reviewer, &token));
    assert!(futures::future::join_all(reviews).await.iter().all(Option::is_some));
    assert_eq!(setup.api.reviews(), 1);
}

#[tokio::test]
async fn guessed_tokens_leave_reviews_to_tokens_that_were_valid() {
    let setup = Setup::start().await;
    let token = setup.token(TimeDelta::hours(1), "svc-ingest", Some("pod"));
    assert!(name(&setup.reviewer, &token).await.is_some());
    pass(60).await;
    setup.api.hold_rejections();
    let tokens: Vec<_> = (0..40).map(|_| service_account_token(NOW)).collect();
    let guesses = tokens.iter().map(|token| setup.reviewer.review(token));
    let guesses = futures::future::join_all(guesses);
    let renewed = async {
        testkit::wait_until("the guesses are reviewed", async || {
            (setup.api.reviews() > MAX_NEW_REVIEWS).then_some(())
        })
        .await;
        name(&setup.reviewer, &token).await
    };
    tokio::select! {
        biased;
        renewed = renewed => assert!(renewed.is_some()),
        _ = guesses => panic!("the guesses were answered before the valid token"),
    }
    assert_eq!(setup.api.reviews(), 1 + MAX_NEW_REVIEWS + 1);
}

#[tokio::test]
async fn without_the_api_server_a_token_is_neither_valid_nor_invalid() {
    let setup = Setup::start().await;
    let token = setup.token(TimeDelta::hours(1), "svc-ingest", Some("pod"));
    for status in [401, 403, 500] {
        setup.api.respond_with(status);
        assert!(setup.reviewer.review(&token).await.is_err());
    }
    setup.api.respond_with(201);
    assert!(name(&setup.reviewer, &token).await.is_some());
}
