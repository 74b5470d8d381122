//! The table "Who may do what on NATS": what each user needs works, and everything else is refused.

use async_nats::{Client, Event};
use standalone::servers::{NatsUser, Servers};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::servers::config;

struct User {
    client: Client,
    refusals: mpsc::UnboundedReceiver<String>,
}

/// A client that hears of the broker's refusals: NATS reports them beside the call that was refused.
async fn user(servers: &Servers, user: NatsUser) -> User {
    let (tell, refusals) = mpsc::unbounded_channel();
    let url = servers.nats_url(user);
    let (credentials, address) = url.strip_prefix("nats://").unwrap().split_once('@').unwrap();
    let (name, password) = credentials.split_once(':').unwrap();
    let client = async_nats::ConnectOptions::with_user_and_password(name.into(), password.into())
        .custom_inbox_prefix(format!("_INBOX.{name}"))
        .event_callback(move |event| {
            let tell = tell.clone();
            async move {
                if let Event::ServerError(error) = event {
                    let _ = tell.send(error.to_string().to_lowercase());
                }
            }
        })
        .connect(address)
        .await
        .unwrap();
    User { client, refusals }
}

impl User {
    #[expect(clippy::disallowed_methods, reason = "the broker's own answer is what is tested")]
    async fn may_publish(&mut self, subject: &str) -> bool {
        self.client.publish(subject.to_owned(), "{}".into()).await.unwrap();
        self.was_let(subject).await
    }

    async fn may_subscribe(&mut self, subject: &str) -> bool {
        let _subscription = self.client.subscribe(subject.to_owned()).await.unwrap();
        self.was_let(subject).await
    }

    /// The broker handles a connection's lines in order and is silent about what it lets pass. So something that is
    /// surely refused is sent after it: whatever was refused before, was refused by then.
    #[expect(clippy::disallowed_methods, reason = "the broker's own answer is what is tested")]
    async fn was_let(&mut self, subject: &str) -> bool {
        self.client.publish("nobody.may", "{}".into()).await.unwrap();
        let refusal = self.refusals.recv().await.unwrap();
        if refusal.contains("\"nobody.may\"") {
            return true;
        }
        assert!(refusal.contains(&format!("\"{}\"", subject.to_lowercase())), "{subject}: {refusal}");
        let last = self.refusals.recv().await.unwrap();
        assert!(last.contains("\"nobody.may\""), "{last}");
        false
    }
}

struct Row {
    user: NatsUser,
    publishes: &'static [&'static str],
    does_not_publish: &'static [&'static str],
    subscribes: &'static [&'static str],
    does_not_subscribe: &'static [&'static str],
}

const TABLE: [Row; 3] = [
    Row {
        user: NatsUser::Ingest,
        publishes: &["udm.v1.07.acme.LOGIN.s", "$JS.API.STREAM.INFO.UDM", "$JS.API.STREAM.CREATE.UDM"],
        does_not_publish: &[
            "audit.v1.acme.session.x",
            "svc.invalidations.v1",
            "udm.dlq.v1.acme.d",
            "$JS.API.STREAM.DELETE.UDM",
            "$JS.API.STREAM.CREATE.OTHER",
            "$JS.API.CONSUMER.CREATE.UDM",
        ],
        subscribes: &["svc.invalidations.v1", "_INBOX.ingest.x"],
        does_not_subscribe: &["udm.v1.>", "audit.v1.>", "_INBOX.>", "_INBOX.session.x", ">"],
    },
    Row {
        user: NatsUser::Session,
        publishes: &["audit.v1.acme.session.x", "svc.invalidations.v1"],
        does_not_publish: &["udm.v1.07.acme.LOGIN.s", "$JS.API.STREAM.INFO.UDM", "$JS.API.STREAM.CREATE.UDM"],
        subscribes: &["_INBOX.session.x"],
        does_not_subscribe: &["svc.invalidations.v1", "udm.v1.>", "_INBOX.ingest.x"],
    },
    Row {
        user: NatsUser::Identity,
        publishes: &["audit.v1.acme.identity.x"],
        does_not_publish: &["svc.invalidations.v1", "udm.v1.07.acme.LOGIN.s", "$JS.API.STREAM.CREATE.AUDIT"],
        subscribes: &["_INBOX.identity.x"],
        does_not_subscribe: &["svc.invalidations.v1", "udm.v1.>", "_INBOX.session.x"],
    },
];

#[tokio::test]
async fn each_user_may_do_what_its_service_needs_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let servers = Servers::start(&config(&dir, None), &CancellationToken::new()).await.unwrap();
    for row in TABLE {
        let mut user = user(&servers, row.user).await;
        let name = row.user.name();
        for subject in row.publishes {
            assert!(user.may_publish(subject).await, "{name} must be able to publish {subject}");
        }
        for subject in row.does_not_publish {
            assert!(!user.may_publish(subject).await, "{name} must not publish {subject}");
        }
        for subject in row.subscribes {
            assert!(user.may_subscribe(subject).await, "{name} must be able to subscribe to {subject}");
        }
        for subject in row.does_not_subscribe {
            assert!(!user.may_subscribe(subject).await, "{name} must not subscribe to {subject}");
        }
    }
    servers.stop().await;
}
