//! Listener with protection against hostile clients: timeouts for headers and unread responses, and a limit of
//! connections. A drain closes idle connections at once and busy ones after their response.

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

/// Timeout of request headers and of idle connections. It exceeds the 90 s of common proxies, so that the proxy closes an
/// idle connection and the service never closes one on which a request is in flight.
const HEADER_TIMEOUT: Duration = Duration::from_mins(2);
/// Header timeout while half of the connections are in use, so that silent clients cannot occupy all of them. A proxy
/// opens a new connection after a close.
const SHORT_HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a client that reads no response data. Without it, such a client would occupy a connection and kernel memory
/// and delay every drain.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Connection limit. Further connections wait in the kernel.
const MAX_CONNECTIONS: usize = 10_000;
/// Pause after a failed accept. Without it, the loop would use a whole core while the process has no free file descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Peer of the connection, as a request extension.
#[derive(Clone, Copy, Debug)]
pub struct PeerAddress(pub SocketAddr);

/// Serves a router until `drain` is cancelled. Returns after the last response.
pub async fn serve(listener: TcpListener, router: Router, tasks: Tasks, drain: CancellationToken) {
    serve_with_timeout(listener, router, tasks, drain, UNREAD_TIMEOUT).await;
}

async fn serve_with_timeout(
    listener: TcpListener,
    router: Router,
    tasks: Tasks,
    drain: CancellationToken,
    unread_timeout: Duration,
) {
    let graceful = GracefulShutdown::new();
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &permits, unread_timeout) => accepted,
            () = drain.cancelled() => break,
        };
        let (stream, peer, permit) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "failed to accept connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let timeout = header_timeout(permits.available_permits());
        let connection = connection(stream, peer, router.clone(), timeout);
        let watched = graceful.watch(connection);
        tasks.spawn_short(async move {
            if let Err(error) = watched.await {
                tracing::debug!(%error, %peer, "connection failed");
            }
            drop(permit);
        });
    }
    drop(listener);
    graceful.shutdown().await;
}

/// Returns the header timeout of a new connection, given the number of free connections.
const fn header_timeout(free: usize) -> Duration {
    if free < MAX_CONNECTIONS / 2 { SHORT_HEADER_TIMEOUT } else { HEADER_TIMEOUT }
}

async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
    unread_timeout: Duration,
) -> io::Result<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(permits).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    stream.set_nodelay(true)?;
    set_unread_timeout(&stream, unread_timeout)?;
    Ok((stream, peer, permit))
}

/// Sets the TCP user timeout (RFC 5482). It applies to clients that have disappeared or keep their receive window
/// closed, also after the service has closed the connection.
#[cfg(target_os = "linux")]
fn set_unread_timeout(stream: &TcpStream, after: Duration) -> io::Result<()> {
    let millis = u32::try_from(after.as_millis()).unwrap_or(u32::MAX);
    Ok(rustix::net::sockopt::set_tcp_user_timeout(stream, millis)?)
}

/// Other systems are for development only, and no safe call sets this timeout there.
#[cfg(not(target_os = "linux"))]
fn set_unread_timeout(_: &TcpStream, _: Duration) -> io::Result<()> {
    Ok(())
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
    use axum::routing::get;
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::TcpSocket;

    use super::*;

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_client_that_never_reads_is_disconnected_and_does_not_delay_the_drain() {
        let (started, mut requests) = tokio::sync::mpsc::channel(1);
        let handler = get(async move || {
            started.send(()).await.unwrap();
            vec![b' '; 64 * 1024 * 1024]
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (router, drain) = (Router::new().route("/", handler), CancellationToken::new());
        let serving =
            serve_with_timeout(listener, router, Tasks::default(), drain.clone(), Duration::from_millis(200));

        let client = async {
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(1024).unwrap();
            let mut stream = socket.connect(address).await.unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
            requests.recv().await.unwrap();
            drain.cancel();
            stream
        };
        // The client stays connected until the listener ends.
        let ended = tokio::time::timeout(Duration::from_secs(20), async { tokio::join!(serving, client) });
        assert!(ended.await.is_ok(), "the drain waits for a client that never reads");
    }

    #[test]
    fn the_header_timeout_is_shorter_when_half_of_the_connections_are_in_use() {
        assert_eq!(header_timeout(MAX_CONNECTIONS), HEADER_TIMEOUT);
        assert_eq!(header_timeout(MAX_CONNECTIONS / 2), HEADER_TIMEOUT);
        assert_eq!(header_timeout(MAX_CONNECTIONS / 2 - 1), SHORT_HEADER_TIMEOUT);
        assert_eq!(header_timeout(0), SHORT_HEADER_TIMEOUT);
    }
}
