//! A minimal HTTP/1.1 client that uses as little CPU time as possible, because it shares the cores with the measured system.
//! Also the baseline server without work.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context as _, ensure};
use axum::Router;
use axum::http::StatusCode;
use axum::routing::post;
use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A persistent connection.
pub(crate) struct Connection<S = TcpStream> {
    stream: S,
    received: Vec<u8>,
}

/// A response.
pub(crate) struct RawResponse<'a> {
    pub(crate) status: u16,
    pub(crate) body: &'a [u8],
}

/// The bytes of a request with a JSON body or without a body.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: bench\r\nContent-Length: {}\r\n", body.len());
    if !body.is_empty() {
        head.push_str("Content-Type: application/json\r\n");
    }
    for (name, value) in headers {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    head.push_str("\r\n");
    [head.as_bytes(), body].concat()
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self::over(stream))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    fn over(stream: S) -> Self {
        Self { stream, received: Vec::with_capacity(256 * 1024) }
    }

    /// Sends a request and reads the complete response.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> anyhow::Result<RawResponse<'_>> {
        self.stream.write_all(request).await?;
        self.received.clear();
        let head = loop {
            self.read_more().await?;
            if let Some(end) = find(&self.received, b"\r\n\r\n") {
                break end + 4;
            }
        };
        let text = str::from_utf8(&self.received[..head])?;
        let status = text.get(9..12).context("the response has no status")?.parse()?;
        let length = content_length(text)?;
        while self.received.len() < head + length {
            self.read_more().await?;
        }
        Ok(RawResponse { status, body: &self.received[head..head + length] })
    }

    async fn read_more(&mut self) -> anyhow::Result<()> {
        ensure!(self.stream.read_buf(&mut self.received).await? > 0, "the server closed the connection");
        Ok(())
    }
}

impl RawResponse<'_> {
    /// Checks the status and returns the body.
    pub(crate) fn expect(&self, status: u16) -> anyhow::Result<&[u8]> {
        ensure!(self.status == status, "{}: {}", self.status, String::from_utf8_lossy(self.body));
        Ok(self.body)
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// The measured system sends `Content-Length` with each body.
fn content_length(head: &str) -> anyhow::Result<usize> {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    let length = lines.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    Ok(length.map_or(Ok(0), |(_, value)| value.trim().parse())?)
}

/// A server that only reads the body: the limit of HTTP on this machine. Stops when dropped.
pub(crate) struct BaselineServer {
    pub(crate) address: SocketAddr,
    _serving: JoinSet<std::io::Result<()>>,
}

impl BaselineServer {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let router = Router::new().route("/", post(async |_: Bytes| StatusCode::ACCEPTED));
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, router).await });
        Ok(Self { address, _serving: serving })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    /// Status and body of the first two responses in these bytes, which arrive in pieces.
    async fn responses(bytes: &'static str) -> Vec<Option<(u16, String)>> {
        let (near, mut far) = duplex(7);
        let serving = async {
            let (mut reader, mut writer) = tokio::io::split(&mut far);
            let mut ignored = Vec::new();
            let _ = tokio::join!(reader.read_to_end(&mut ignored), async {
                writer.write_all(bytes.as_bytes()).await?;
                writer.shutdown().await
            });
        };
        let requesting = async {
            let mut connection = Connection::over(near);
            let mut responses = Vec::new();
            for _ in 0..2 {
                let response = connection.exchange(&request("GET", "/", &[], b"")).await.ok();
                responses.push(
                    response.map(|response| (response.status, String::from_utf8_lossy(response.body).into())),
                );
            }
            responses
        };
        tokio::join!(requesting, serving).0
    }

    #[tokio::test]
    async fn a_response_is_read_completely_in_any_fragmentation() {
        let first = "HTTP/1.1 202 Accepted\r\nx: y\r\ncontent-length: 11\r\n\r\n\r\n\r\n{\"a\":1}";
        assert_eq!(responses(first).await, [Some((202, "\r\n\r\n{\"a\":1}".into())), None]);
        let cut = "HTTP/1.1 202 Accepted\r\nContent-Length: 8\r\n\r\n{\"a\":1}";
        assert_eq!(responses(cut).await, [None, None]);
        let empty = "HTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(responses(empty).await, [Some((204, String::new())), None]);
    }

    #[test]
    fn a_request_has_a_content_length() {
        let bytes = request("POST", "/events", &[("Authorization", "Bearer x")], b"{}");
        let expected = "POST /events HTTP/1.1\r\nHost: bench\r\nContent-Length: 2\r\n\
                        Content-Type: application/json\r\nAuthorization: Bearer x\r\n\r\n{}";
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }
}
