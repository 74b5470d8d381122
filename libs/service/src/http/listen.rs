//! A listener that survives hostile clients: headers have to arrive in time, connections are counted, and a drain ends
//! idle connections at once and busy ones after their answer.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::Tasks;

/// A client that has not sent its headers by then is cut off; also how long an idle connection is kept. Longer than the
/// 90 s for which common proxies keep theirs, so that it is they who close it, never we under a request on its way.
const HEADER_TIMEOUT: Duration = Duration::from_mins(2);
/// The same once half of all places are taken: who opens connections and says nothing gives their places back soon, so a
/// listener cannot be closed by holding connections. A proxy that finds one closed here opens another.
const CROWDED_HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// More connections wait in the kernel until one ends.
const MAX_CONNECTIONS: usize = 10_000;
/// After a failed accept (no file descriptors left, say), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Who is at the other end of the connection, as a request extension.
#[derive(Clone, Copy, Debug)]
pub struct PeerAddress(pub SocketAddr);

/// Serves a router on a listener until `drain` is cancelled; returns when the last answer is out.
pub async fn serve(listener: TcpListener, router: Router, tasks: Tasks, drain: CancellationToken) {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places) => accepted,
            () = drain.cancelled() => break,
        };
        let (stream, peer, place) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let patience = header_timeout(places.available_permits());
        let connection = connection(stream, peer, router.clone(), patience);
        let watched = graceful.watch(connection);
        tasks.spawn_short(async move {
            // A connection that breaks is the client's affair.
            if let Err(error) = watched.await {
                tracing::debug!(%error, %peer, "a connection broke");
            }
            drop(place);
        });
    }
    drop(listener);
    graceful.shutdown().await;
}

/// How long a new connection may take for its headers, by the number of places that are left.
const fn header_timeout(free: usize) -> Duration {
    if free < MAX_CONNECTIONS / 2 { CROWDED_HEADER_TIMEOUT } else { HEADER_TIMEOUT }
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> io::Result<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    stream.set_nodelay(true)?;
    Ok((stream, peer, place))
}

fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    header_timeout: Duration,
) -> http1::Connection<
    TokioIo<TcpStream>,
    impl hyper::service::HttpService<Incoming, ResBody = Body, Error = Infallible, Future: Send>,
> {
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(PeerAddress(peer));
        router.clone().oneshot(request.map(Body::new))
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .serve_connection(TokioIo::new(stream), service)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_that_is_half_full_gives_silent_clients_seconds_instead_of_minutes() {
        assert_eq!(header_timeout(MAX_CONNECTIONS), HEADER_TIMEOUT);
        assert_eq!(header_timeout(MAX_CONNECTIONS / 2), HEADER_TIMEOUT);
        assert_eq!(header_timeout(MAX_CONNECTIONS / 2 - 1), CROWDED_HEADER_TIMEOUT);
        assert_eq!(header_timeout(0), CROWDED_HEADER_TIMEOUT);
    }
}
