//! A subscription to requests of other accounts, which can contain anything. nats-server does not check the headers of a client.

use std::io;

use service::chain;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{MissedTickBehavior, interval};

use super::connection::{Dialer, WireConnection};
use super::protocol::{PING, PONG, ServerMessage, ServerOperation, write_subscription};
use crate::connect::{ConnectError, MAX_PINGS, PING_INTERVAL};

/// Calls `receive` with each message of a subject, which a space and a queue group can follow. Connects again without limit.
pub(crate) async fn listen(mut dialer: Dialer, subject: &str, mut receive: impl FnMut(ServerMessage<'_>)) {
    loop {
        let failed = |error: ConnectError| {
            tracing::debug!(subject, error = chain(&error), "failed to connect to NATS; retrying");
        };
        let connection = dialer.connect(failed).await;
        let Err(error) = serve(connection, subject, &mut receive).await;
        tracing::warn!(subject, error = chain(&error), "NATS connection lost; reconnecting");
    }
}

/// Serves a connection until it breaks.
async fn serve(
    connection: WireConnection,
    subject: &str,
    receive: &mut impl FnMut(ServerMessage<'_>),
) -> Result<std::convert::Infallible, io::Error> {
    let WireConnection { mut reader, mut writer, .. } = connection;
    let (mut operations, mut unanswered) = (Vec::new(), 0);
    write_subscription(&mut operations, subject);
    let mut tick = interval(PING_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if !operations.is_empty() {
            writer.write_all(&operations).await?;
            writer.flush().await?;
            operations.clear();
        }
        tokio::select! {
            received = reader.receive() => {
                received?;
                let handled = reader.handle(|operation| match operation {
                    ServerOperation::Message(delivery) => receive(delivery),
                    ServerOperation::Ping => operations.extend_from_slice(PONG),
                    ServerOperation::Pong => unanswered = 0,
                    ServerOperation::Error(error) => tracing::warn!(subject, error, "NATS reported an error"),
                    ServerOperation::Info(_) | ServerOperation::Ok => {}
                });
                let length = handled.map_err(io::Error::other)?;
                reader.discard(length);
            }
            _ = tick.tick() => {
                if unanswered >= MAX_PINGS {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                unanswered += 1;
                operations.extend_from_slice(PING);
            }
        }
    }
}
