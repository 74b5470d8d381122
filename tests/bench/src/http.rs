//! As little of an HTTP/1.1 client as the load needs: requests are bytes made beforehand, and an answer is a status and the
//! length of its body. A real client would take a good part of the cores that are being measured.

use std::fmt::Write as _;
use std::net::SocketAddr;

use anyhow::{Context as _, ensure};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A connection that is kept alive.
pub(crate) struct Connection<S = TcpStream> {
    stream: S,
    received: Vec<u8>,
}

/// What a request was answered with.
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    pub(crate) body: &'a [u8],
}

/// The bytes of a request with a JSON body, or without one.
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

    /// Sends a request and reads its answer whole.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> anyhow::Result<Answer<'_>> {
        self.stream.write_all(request).await?;
        self.received.clear();
        let head = loop {
            self.read_more().await?;
            if let Some(end) = find(&self.received, b"\r\n\r\n") {
                break end + 4;
            }
        };
        let text = str::from_utf8(&self.received[..head])?;
        let status = text.get(9..12).context("an answer has a status")?.parse()?;
        let length = content_length(text)?;
        while self.received.len() < head + length {
            self.read_more().await?;
        }
        Ok(Answer { status, body: &self.received[head..head + length] })
    }

    async fn read_more(&mut self) -> anyhow::Result<()> {
        ensure!(self.stream.read_buf(&mut self.received).await? > 0, "the server closed the connection");
        Ok(())
    }
}

impl Answer<'_> {
    /// Demands a status.
    pub(crate) fn expect(&self, status: u16) -> anyhow::Result<&[u8]> {
        ensure!(self.status == status, "{}: {}", self.status, String::from_utf8_lossy(self.body));
        Ok(self.body)
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

/// The system under measure always says how long its answers are; one without a body says nothing.
fn content_length(head: &str) -> anyhow::Result<usize> {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    let length = lines.into_iter().find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    Ok(length.map_or(Ok(0), |(_, value)| value.trim().parse())?)
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    /// The status and body of the first two answers that are read from these bytes, a few at a time.
    async fn answers(bytes: &'static str) -> Vec<Option<(u16, String)>> {
        let (near, mut far) = duplex(7);
        let serving = async {
            let (mut asked, mut said) = tokio::io::split(&mut far);
            let mut ignored = Vec::new();
            let _ = tokio::join!(asked.read_to_end(&mut ignored), async {
                said.write_all(bytes.as_bytes()).await?;
                said.shutdown().await
            });
        };
        let asking = async {
            let mut connection = Connection::over(near);
            let mut answers = Vec::new();
            for _ in 0..2 {
                let answer = connection.exchange(&request("GET", "/", &[], b"")).await.ok();
                answers
                    .push(answer.map(|answer| (answer.status, String::from_utf8_lossy(answer.body).into())));
            }
            answers
        };
        tokio::join!(asking, serving).0
    }

    #[tokio::test]
    async fn answers_are_read_whole_however_they_arrive() {
        let first = "HTTP/1.1 202 Accepted\r\nx: y\r\ncontent-length: 11\r\n\r\n\r\n\r\n{\"a\":1}";
        assert_eq!(answers(first).await, [Some((202, "\r\n\r\n{\"a\":1}".into())), None]);
        let cut = "HTTP/1.1 202 Accepted\r\nContent-Length: 8\r\n\r\n{\"a\":1}";
        assert_eq!(answers(cut).await, [None, None]);
        let empty = "HTTP/1.1 204 No Content\r\n\r\n";
        assert_eq!(answers(empty).await, [Some((204, String::new())), None]);
    }

    #[test]
    fn a_request_says_how_long_its_body_is() {
        let bytes = request("POST", "/events", &[("Authorization", "Bearer x")], b"{}");
        let expected = "POST /events HTTP/1.1\r\nHost: bench\r\nContent-Length: 2\r\n\
                        Content-Type: application/json\r\nAuthorization: Bearer x\r\n\r\n{}";
        assert_eq!(String::from_utf8(bytes).unwrap(), expected);
    }
}
