//! The permissions of the NATS users (`deploy/nats/accounts.conf`): each user has those that its service needs, no others.

use async_nats::{Client, Event};
use devservers::{NatsUser, Servers};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::lifecycle::config;

struct User {
    client: Client,
    denials: mpsc::UnboundedReceiver<String>,
}

/// Connects a client that receives permission errors: NATS reports them asynchronously, not as the result of the call.
async fn connect(servers: &Servers, user: NatsUser) -> User {
    let (sender, denials) = mpsc::unbounded_channel();
    let url = servers.nats_url(user);
    let (credentials, address) = url.strip_prefix("nats://").unwrap().split_once('@').unwrap();
    let (name, password) = credentials.split_once(':').unwrap();
    let client = async_nats::ConnectOptions::with_user_and_password(name.into(), password.into())
        .custom_inbox_prefix(format!("_INBOX.{name}"))
        .event_callback(move |event| {
            let sender = sender.clone();
            async move {
                if let Event::ServerError(error) = event {
                    let _ = sender.send(error.to_string().to_lowercase());
                }
            }
        })
        .connect(address)
        .await
        .unwrap();
    User { client, denials }
}

impl User {
    #[expect(clippy::disallowed_methods, reason = "tests the permission check of the broker")]
    async fn can_publish(&mut self, subject: &str) -> bool {
        self.client.publish(subject.to_owned(), "{}".into()).await.unwrap();
        self.was_allowed(subject).await
    }

    async fn can_subscribe(&mut self, subject: &str) -> bool {
        let _subscription = self.client.subscribe(subject.to_owned()).await.unwrap();
        self.was_allowed(subject).await
    }

    /// The broker processes the lines of a connection in order and reports only denials. So this publishes to a subject that
    /// is always denied: a denial of `subject` arrives before that one.
    #[expect(clippy::disallowed_methods, reason = "tests the permission check of the broker")]
    async fn was_allowed(&mut self, subject: &str) -> bool {
        self.client.publish("denied.always", "{}".into()).await.unwrap();
        let denial = self.denials.recv().await.unwrap();
        if denial.contains("\"denied.always\"") {
            return true;
        }
        assert!(denial.contains(&format!("\"{}\"", subject.to_lowercase())), "{subject}: {denial}");
        let last = self.denials.recv().await.unwrap();
        assert!(last.contains("\"denied.always\""), "{last}");
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
        publishes: &[
            "$JS.API.CONSUMER.CREATE.UDM.read-x",
            "$JS.API.CONSUMER.INFO.UDM.read-x",
            "$JS.API.CONSUMER.MSG.NEXT.UDM_00_15.read-x",
            "$JS.API.CONSUMER.DELETE.UDM.read-x",
            "udm.v1.07.acme.LOGIN",
            "udm.dlq.v1.acme._ingest",
            "udm.dlq.v1.acme.d",
            "svc.ingest.replicas.v1",
            "$JS.API.STREAM.INFO.UDM",
            "$JS.API.STREAM.CREATE.UDM",
            "$JS.API.STREAM.CREATE.UDM_00_15",
            "$JS.API.STREAM.CREATE.UDM_DLQ",
            "$JS.API.STREAM.UPDATE.UDM",
            "$JS.API.STREAM.UPDATE.UDM_DLQ",
            "$JS.API.STREAM.NAMES",
            "$JS.API.CONSUMER.CREATE.UDM.archive.udm.v1.>",
            "$JS.API.CONSUMER.CREATE.UDM_00_15.archive",
            "$JS.API.CONSUMER.INFO.UDM.archive",
            "$JS.API.CONSUMER.LIST.UDM",
            "$JS.API.CONSUMER.DELETE.UDM.archive",
            "$JS.API.STREAM.MSG.GET.UDM_DLQ",
            "$JS.API.STREAM.MSG.GET.UDM",
            "$JS.API.STREAM.MSG.DELETE.UDM_DLQ",
            "AUDIT.API.STREAM.MSG.GET.AUDIT",
            "FACADE.API.STREAM.NAMES",
            "FACADE.API.STREAM.INFO.UDM",
            "FACADE.API.STREAM.CREATE.UDM",
            "FACADE.API.STREAM.UPDATE.UDM",
            "$JS.API.CONSUMER.PAUSE.UDM.archive",
            "svc.ingest.consumers.v1",
        ],
        does_not_publish: &[
            "FACADE.API.STREAM.DELETE.UDM",
            "$JS.API.CONSUMER.PAUSE.UDM_DLQ.archive",
            "$JS.API.CONSUMER.INFO.UDM_DLQ.read-x",
            "$JS.API.CONSUMER.MSG.NEXT.UDM_DLQ.read-x",
            "$JS.API.CONSUMER.DELETE.UDM_DLQ.read-x",
            "AUDIT.API.STREAM.MSG.GET.AUDIT_ANONYMOUS",
            "AUDIT.API.STREAM.DELETE.AUDIT",
            "AUDIT.API.CONSUMER.CREATE.AUDIT.read-x",
            "audit.v1.acme.session.x",
            "svc.invalidations.v1",
            "$JS.API.STREAM.DELETE.UDM",
            "$JS.API.STREAM.PURGE.UDM",
            "$JS.API.STREAM.MSG.DELETE.UDM",
            "$JS.API.CONSUMER.CREATE.UDM",
            "$JS.API.CONSUMER.CREATE.UDM_DLQ.archive",
            "$JS.API.CONSUMER.LIST.UDM_DLQ",
            "$JS.ACK.UDM.archive.1.1.1.1.0",
        ],
        subscribes: &[
            "svc.invalidations.v1",
            "svc.ingest.replicas.v1",
            "svc.ingest.consumers.v1",
            "svc.consumers.api.v1.>",
            "_INBOX.ingest.x",
        ],
        does_not_subscribe: &["udm.v1.>", "audit.v1.>", "_INBOX.>", "_INBOX.session.x", ">"],
    },
    Row {
        user: NatsUser::Session,
        publishes: &["audit.v1.acme.session.x", "svc.invalidations.v1", "$JS.API.STREAM.INFO.AUDIT"],
        does_not_publish: &[
            "$JS.API.STREAM.CREATE.AUDIT",
            "$JS.API.STREAM.UPDATE.AUDIT",
            "$JS.API.STREAM.MSG.GET.AUDIT",
            "udm.v1.07.acme.LOGIN",
            "audit.v1.acme.identity.x",
            "audit.anonymous.v1.session.x",
            "svc.ingest.replicas.v1",
            "$JS.API.STREAM.INFO.UDM",
            "$JS.API.STREAM.CREATE.UDM",
        ],
        subscribes: &["_INBOX.session.x"],
        does_not_subscribe: &["svc.invalidations.v1", "udm.v1.>", "_INBOX.ingest.x"],
    },
    Row {
        user: NatsUser::Identity,
        publishes: &[
            "audit.v1.acme.identity.x",
            "audit.anonymous.v1.identity.x",
            "$JS.API.STREAM.INFO.AUDIT",
            "$JS.API.STREAM.CREATE.AUDIT",
            "$JS.API.STREAM.INFO.AUDIT_ANONYMOUS",
            "$JS.API.STREAM.CREATE.AUDIT_ANONYMOUS",
        ],
        does_not_publish: &[
            "svc.invalidations.v1",
            "svc.ingest.replicas.v1",
            "audit.v1.acme.session.x",
            "udm.v1.07.acme.LOGIN",
            "$JS.API.STREAM.CREATE.OTHER",
            "$JS.API.STREAM.UPDATE.AUDIT",
            "$JS.API.STREAM.DELETE.AUDIT",
            "$JS.API.STREAM.PURGE.AUDIT",
            "$JS.API.STREAM.MSG.DELETE.AUDIT",
            "$JS.API.STREAM.MSG.GET.AUDIT",
            "$JS.API.CONSUMER.CREATE.AUDIT.x",
        ],
        subscribes: &["_INBOX.identity.x"],
        does_not_subscribe: &["svc.invalidations.v1", "udm.v1.>", "_INBOX.session.x"],
    },
];

#[tokio::test]
async fn each_user_has_exactly_the_permissions_of_its_service() {
    let dir = tempfile::tempdir().unwrap();
    let servers = Servers::start(&config(&dir, None), &CancellationToken::new()).await.unwrap();
    for row in TABLE {
        let mut user = connect(&servers, row.user).await;
        let name = row.user.name();
        for subject in row.publishes {
            assert!(user.can_publish(subject).await, "{name} must be able to publish {subject}");
        }
        for subject in row.does_not_publish {
            assert!(!user.can_publish(subject).await, "{name} must not publish {subject}");
        }
        for subject in row.subscribes {
            assert!(user.can_subscribe(subject).await, "{name} must be able to subscribe to {subject}");
        }
        for subject in row.does_not_subscribe {
            assert!(!user.can_subscribe(subject).await, "{name} must not subscribe to {subject}");
        }
    }
    servers.stop().await;
}
