//! Listener with protection against hostile clients: limits of connections, timeouts, and limits of request heads. A drain
//! closes idle connections at once and busy ones after their response.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::header::CONNECTION;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Bytes, Incoming};
use hyper::rt::{Read, Write};
use hyper::server::conn::http1::{self, Parts};
use hyper::service::{HttpService, service_fn};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use super::client_address::{PeerAddress, TrustedProxies};
use super::connections::{Connection, ConnectionMetrics, Connections, Limits, Registration};
use super::pace::BodyPace;
use super::request_body::{Rest, track};
use super::stream::Stream;
use crate::Tasks;
use crate::config::Variable;
use crate::telemetry::Metrics;

/// Size limit of a request head. A larger one gets 431. With the limit of connections, it bounds the memory of unfinished heads.
const MAX_HEAD: usize = 16 * 1024;
/// Limit of the headers of a request. A request with more gets 431.
const MAX_HEADERS: usize = 64;
/// Number of bytes that are read or written at once.
const BUFFER: usize = 32 * 1024;
/// Response data that the kernel stores before the client has room for it. This bounds the memory of clients that read
/// nothing. It is also the amount that a slow client must read within the write timeout.
#[cfg(target_os = "linux")]
const MAX_UNSENT: u32 = 16 * 1024;
/// Interval of the search for expired connections.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Pause after a failed accept. Without it, the loop would use a whole core while the process has no free file descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

crate::variables! {
    /// Settings of the connections of clients.
    #[derive(Clone, Debug)]
    pub struct ConnectionSettings {
        /// Reverse proxies in front of the services.
        pub proxies: TrustedProxies,
        /// Maximum number of connections of one client address (IPv6: /64 network) to one process. At the limit, a new
        /// connection replaces the one that has been idle for the longest time. Trusted proxies have no limit.
        pub per_address: usize =
            Variable::new("SVC_CONNECTIONS_PER_ADDRESS", "number, 1 to 10000").default("256").between(1, 10_000),
        pub(super) pace: BodyPace,
    }
}

/// Serves a router to other services until `drain` is cancelled. Returns after the last response.
pub async fn serve(listener: TcpListener, router: Router, tasks: Tasks, drain: CancellationToken) {
    let connections =
        Connections::new(Limits::new(usize::MAX, BodyPace::DEFAULT), ConnectionMetrics::default());
    Server::new(connections, TrustedProxies::default(), router, tasks).run(listener, drain).await;
}

/// Serves a router to clients until the tasks drain. Returns after the last response.
pub async fn serve_public(
    listener: TcpListener,
    router: Router,
    settings: ConnectionSettings,
    tasks: Tasks,
    metrics: Metrics,
) {
    let (limits, drain) = (Limits::new(settings.per_address, settings.pace), tasks.draining().clone());
    let connections = Connections::new(limits, ConnectionMetrics::new(&metrics));
    Server::new(connections, settings.proxies, router, tasks).run(listener, drain).await;
}

struct Server {
    connections: Arc<Connections>,
    proxies: TrustedProxies,
    router: Router,
    tasks: Tasks,
    open: TaskTracker,
}

impl Server {
    fn new(connections: Arc<Connections>, proxies: TrustedProxies, router: Router, tasks: Tasks) -> Self {
        Self { connections, proxies, router, tasks, open: TaskTracker::new() }
    }

    async fn run(self, listener: TcpListener, drain: CancellationToken) {
        let connections = Arc::clone(&self.connections);
        let serve = async {
            drain.run_until_cancelled(self.accept_all(&listener)).await;
            drop(listener);
            self.close().await;
        };
        tokio::select! { () = serve => {}, never = sweep(&connections) => match never {} }
    }

    /// Closes idle connections, and the others after their response. Returns when all are closed.
    async fn close(&self) {
        self.connections.draining.cancel();
        self.open.close();
        self.open.wait().await;
    }

    async fn accept_all(&self, listener: &TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => self.admit(stream, peer),
                Err(error) => {
                    tracing::warn!(%error, "failed to accept connection");
                    // Frees file descriptors.
                    self.connections.close_longest_waiting();
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Serves a connection, or drops it if a limit is reached.
    fn admit(&self, stream: TcpStream, peer: SocketAddr) {
        let is_proxy = self.proxies.is_proxy(peer.ip());
        let Some(registration) = self.connections.add(peer.ip(), is_proxy) else { return };
        match configure(&stream) {
            Ok(()) => self.spawn(stream, peer, registration),
            Err(error) => tracing::debug!(%error, %peer, "connection failed"),
        }
    }

    fn spawn<T>(&self, stream: T, peer: SocketAddr, registration: Registration)
    where
        T: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (connection, router) = (Arc::clone(&registration.0), self.router.clone());
        let (draining, open) = (self.connections.draining.clone(), self.open.token());
        let stream = TokioIo::new(Stream::new(stream, Arc::clone(&connection)));
        let service = service_fn(move |request: Request<Incoming>| {
            connection.request_started();
            let (mut request, rest) = track(request, &connection);
            request.extensions_mut().insert(PeerAddress(peer));
            request.extensions_mut().insert(Arc::clone(&connection));
            let (response, connection) = (router.clone().oneshot(request), Arc::clone(&connection));
            async move { Ok::<_, Infallible>(finish(response.await?, rest, connection).await) }
        });
        self.tasks.spawn_short(async move {
            let served = serve_requests(stream, service, &registration.0, &draining);
            if let Some(Err(error)) = registration.0.closed.run_until_cancelled(served).await {
                tracing::debug!(%error, %peer, "connection failed");
            }
            drop((registration, open));
        });
    }
}

/// Serves the requests of a connection. While it is idle, the library can hold the start of a request that followed the previous one
/// without a pause, and does not report this.
async fn serve_requests<T, S, B>(
    stream: T,
    service: S,
    connection: &Connection,
    draining: &CancellationToken,
) -> hyper::Result<()>
where
    T: Read + Write + Unpin,
    S: HttpService<Incoming, ResBody = B, Error = Infallible>,
    B: HttpBody<Error = axum::Error> + 'static,
{
    let mut builder = http1::Builder::new();
    builder.max_header_size(MAX_HEAD).max_headers(MAX_HEADERS).max_buf_size(BUFFER);
    let mut requests = builder.serve_connection(stream, service);
    loop {
        tokio::select! {
            biased;
            served = &mut requests => return served,
            () = draining.cancelled() => break,
            () = connection.check.notified() => {}
        }
        if connection.is_idle() {
            let Parts { io, read_buf, service, .. } = requests.into_parts();
            if !read_buf.is_empty() {
                connection.timed_out();
                return Ok(());
            }
            requests = builder.serve_connection(io, service);
        }
    }
    Pin::new(&mut requests).graceful_shutdown();
    requests.await
}

/// Closes connections that wait too long for their client.
async fn sweep(connections: &Connections) -> Infallible {
    let mut interval = tokio::time::interval(SWEEP_INTERVAL);
    loop {
        interval.tick().await;
        connections.close_expired();
    }
}

fn configure(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    #[cfg(target_os = "linux")]
    socket2::SockRef::from(stream).set_tcp_notsent_lowat(MAX_UNSENT)?;
    Ok(())
}

/// Closes the connection of a client that exceeds a rate limit, so that its requests do not keep the connection open. A
/// connection of a proxy serves other clients too. Announces also that the connection is closed because a part of the request is
/// unread: otherwise the client would send its next request on this connection, and lose it (RFC 9112, section 9.6).
async fn finish(
    mut response: Response<Body>,
    rest: Rest,
    connection: Arc<Connection>,
) -> Response<impl HttpBody<Data = Bytes, Error = axum::Error>> {
    let is_rate_limited = response.status() == StatusCode::TOO_MANY_REQUESTS && !connection.is_proxy;
    if is_rate_limited || !rest.discard(&connection).await {
        connection.closes_after_response();
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let in_flight = InFlight(connection);
    response.map(|body| {
        body.map_err(move |error| {
            in_flight.0.response_ended();
            error
        })
    })
}

/// Records the end of a response when its body is dropped.
struct InFlight(Arc<Connection>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.response_ended();
    }
}

#[cfg(test)]
mod tests;
