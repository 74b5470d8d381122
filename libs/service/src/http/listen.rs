//! A listener that survives hostile clients: headers have to arrive in time, answers have to be taken, connections are
//! counted, and a drain ends idle connections at once and busy ones after their answer.

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
/// A client that has taken nothing of what waits for it for so long is cut off: one that never reads would keep its place and
/// the kernel's memory for ever, and hold up every drain.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(30);
/// More connections wait in the kernel until one ends.
const MAX_CONNECTIONS: usize = 10_000;
/// After a failed accept (no file descriptors left, say), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Who is at the other end of the connection, as a request extension.
#[derive(Clone, Copy, Debug)]
pub struct PeerAddress(pub SocketAddr);

/// Serves a router on a listener until `drain` is cancelled; returns when the last answer is out.
pub async fn serve(listener: TcpListener, router: Router, tasks: Tasks, drain: CancellationToken) {
    serve_readers(listener, router, tasks, drain, UNREAD_TIMEOUT).await;
}

async fn serve_readers(
    listener: TcpListener,
    router: Router,
    tasks: Tasks,
    drain: CancellationToken,
    unread: Duration,
) {
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            accepted = accept(&listener, &places, unread) => accepted,
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
        let retry_policy = header_timeout(places.available_permits());
        let connection = connection(stream, peer, router.clone(), retry_policy);
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
    unread: Duration,
) -> io::Result<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, peer) = listener.accept().await?;
    stream.set_nodelay(true)?;
    cut_off_unread(&stream, unread)?;
    Ok((stream, peer, place))
}

/// The kernel does it (RFC 5482), whether the client is gone or keeps its window closed, and also once we have closed.
#[cfg(target_os = "linux")]
fn cut_off_unread(stream: &TcpStream, after: Duration) -> io::Result<()> {
    let millis = u32::try_from(after.as_millis()).unwrap_or(u32::MAX);
    Ok(rustix::net::sockopt::set_tcp_user_timeout(stream, millis)?)
}

/// Other systems, where the services are developed and not run, have nothing of the kind that a safe call sets.
#[cfg(not(target_os = "linux"))]
fn cut_off_unread(_: &TcpStream, _: Duration) -> io::Result<()> {
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
    async fn a_client_that_never_reads_loses_its_place_and_holds_up_no_drain() {
        let (asked, mut asking) = tokio::sync::mpsc::channel(1);
        let answer = get(async move || {
            asked.send(()).await.unwrap();
            vec![b' '; 64 * 1024 * 1024]
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (router, drain) = (Router::new().route("/", answer), CancellationToken::new());
        let serving =
            serve_readers(listener, router, Tasks::default(), drain.clone(), Duration::from_millis(200));

        let client = async {
            let socket = TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(1024).unwrap();
            let mut stream = socket.connect(address).await.unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nhost: test\r\n\r\n").await.unwrap();
            asking.recv().await.unwrap();
            drain.cancel();
            stream
        };
        // The client is kept until the listener is done with it.
        let ended = tokio::time::timeout(Duration::from_secs(20), async { tokio::join!(serving, client) });
        assert!(ended.await.is_ok(), "the drain still waits for a client that never reads");
    }

    #[test]
    fn a_listener_that_is_half_full_gives_silent_clients_seconds_instead_of_minutes() {
        assert_eq!(header_timeout(MAX_CONNECTIONS), HEADER_TIMEOUT);
        assert_eq!(header_timeout(MAX_CONNECTIONS / 2), HEADER_TIMEOUT);
        assert_eq!(header_timeout(MAX_CONNECTIONS / 2 - 1), CROWDED_HEADER_TIMEOUT);
        assert_eq!(header_timeout(0), CROWDED_HEADER_TIMEOUT);
    }
}
