//! The limits of an account: a consumer cannot use up the connections and the memory of the server.

use async_nats::ConnectOptions;
use testkit::NatsServer;
use testkit::wait_until;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use super::consumers;

#[tokio::test]
async fn a_consumer_has_at_most_10_connections_and_others_still_connect() {
    let server = NatsServer::start_with_consumers(&consumers()).await.unwrap();
    let address = server.url.rsplit_once('@').unwrap().1;
    let connect = async |name: &str| {
        let options = ConnectOptions::with_user_and_password(name.to_owned(), name.to_owned());
        options.connect(address).await
    };
    let mut connections = Vec::new();
    for _ in 0..10 {
        connections.push(connect("consumer").await.unwrap());
    }
    assert!(connect("consumer").await.is_err());
    connect("victim").await.unwrap();
}

/// Connects as a consumer and sends the commands. Returns `None` if the server does not accept it.
async fn send_commands(address: &str, commands: &str) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    // What the kernel does not take remains in the memory of the server.
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(address.parse().unwrap()).await.unwrap();
    let connect = r#"CONNECT {"verbose":false,"user":"consumer","pass":"consumer"}"#;
    stream.write_all(format!("{connect}\r\n{commands}PING\r\n").as_bytes()).await.ok()?;
    let mut answer = String::new();
    while !answer.contains("PONG") {
        let mut buffer = [0; 4096];
        let length = stream.read(&mut buffer).await.ok().filter(|length| *length > 0)?;
        answer.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
    }
    Some(stream)
}

/// Returns the most memory that the server had, in kB.
fn peak_memory(server: &NatsServer) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid().unwrap())).ok()?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    peak.trim().trim_end_matches(" kB").parse().ok()
}

#[tokio::test]
async fn connections_that_do_not_read_are_closed_before_they_fill_the_memory_of_the_server() {
    let server = NatsServer::start_with_consumers(&consumers()).await.unwrap();
    let address = server.url.rsplit_once('@').unwrap().1;
    let mut publisher = send_commands(address, "").await.unwrap();
    let subscriptions = (0..250).map(|number| format!("SUB x {number}\r\n")).collect::<Vec<_>>().concat();
    let mut readers = Vec::new();
    while readers.len() < 40
        && let Some(reader) = send_commands(address, &subscriptions).await
    {
        readers.push(reader);
    }
    let before = peak_memory(&server);
    let message = format!("PUB x 8000\r\n{}\r\n", "a".repeat(8000));
    wait_until("all connections are closed", async || {
        publisher.write_all(message.as_bytes()).await.unwrap();
        let closed = server.log().matches("Slow Consumer Detected").count();
        (closed >= readers.len()).then_some(())
    })
    .await;
    assert!(server.log().contains("MaxPending of 25165824 Exceeded"), "{}", server.log());
    if let (Some(before), Some(after)) = (before, peak_memory(&server)) {
        assert!(after - before < 384 << 10, "{} connections took {} kB", readers.len(), after - before);
    }
}
