//! A TCP forwarder on loopback that a test can disturb: it is a network between two processes.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::sleep;

const BUFFER: usize = 64 * 1024;

/// A running forwarder. Dropping it closes its connections.
pub struct Forwarder {
    /// The address that it listens on.
    pub address: SocketAddr,
    state: watch::Sender<State>,
    _task: JoinSet<()>,
}

/// What happens to all connections, also to new ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Disturbance {
    /// Bytes are passed on at once.
    #[default]
    None,
    /// As in a network partition, connections stay open and bytes wait.
    Interrupted,
    /// Each block of at most 64 KiB waits this long, which also limits the throughput.
    Delayed(Duration),
    /// Requests arrive, responses do not. The connections close when the disturbance ends.
    LostResponses,
}

#[derive(Clone, Default)]
struct State {
    /// The port on loopback; connections wait for it.
    target: Option<u16>,
    disturbance: Disturbance,
    /// How often connections were closed.
    generation: u64,
    /// A request with this text is not passed on, nor what follows it on its connection.
    held_text: Option<String>,
    is_held: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    Request,
    Response,
}

impl Forwarder {
    /// Listens on a free port.
    pub async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let state = watch::Sender::default();
        let mut task = JoinSet::new();
        task.spawn(accept(listener, state.clone()));
        Ok(Self { address, state, _task: task })
    }

    /// Sets the port to which it forwards. Connections to another port close.
    pub fn set_target(&self, port: u16) {
        self.state.send_modify(|state| {
            state.generation += u64::from(state.target.is_some_and(|target| target != port));
            state.target = Some(port);
        });
    }

    /// Sets the port for new connections. Others stay open.
    pub fn redirect(&self, port: u16) {
        self.state.send_modify(|state| state.target = Some(port));
    }

    /// From the first request with this text, a connection passes nothing on to the server. With `None`, new requests pass.
    pub fn hold(&self, text: Option<&str>) {
        self.state.send_modify(|state| {
            state.held_text = text.map(str::to_owned);
            state.is_held = false;
        });
    }

    /// Waits until a request is held.
    pub async fn wait_until_held(&self) {
        let _ = self.state.subscribe().wait_for(|state| state.is_held).await;
    }

    /// Begins or ends a disturbance.
    pub fn disturb(&self, disturbance: Disturbance) {
        self.state.send_modify(|state| {
            state.generation += u64::from(state.disturbance == Disturbance::LostResponses);
            state.disturbance = disturbance;
        });
    }
}

async fn accept(listener: TcpListener, state: watch::Sender<State>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(forward(client, state.clone()));
        while connections.try_join_next().is_some() {}
    }
}

/// Forwards in both directions until one side closes its connection. Returns `None` after an error.
async fn forward(mut client: TcpStream, sender: watch::Sender<State>) -> Option<()> {
    let mut state = sender.subscribe();
    let generation = state.borrow().generation;
    let target = state.wait_for(|state| state.target.is_some()).await.ok()?.target?;
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await.ok()?;
    client.set_nodelay(true).and_then(|()| server.set_nodelay(true)).ok()?;
    let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
    tokio::select! {
        ended = pass(from_client, to_server, &sender, Direction::Request) => ended,
        ended = pass(from_server, to_client, &sender, Direction::Response) => ended,
        _ = state.wait_for(|state| state.generation != generation) => None,
    }
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    sender: &watch::Sender<State>,
    direction: Direction,
) -> Option<()> {
    let mut state = sender.subscribe();
    let mut buffer = vec![0; BUFFER];
    let mut lost = false;
    loop {
        let count = from.read(&mut buffer).await.ok()?;
        let disturbance =
            state.wait_for(|state| state.disturbance != Disturbance::Interrupted).await.ok()?.disturbance;
        match disturbance {
            Disturbance::LostResponses if direction == Direction::Response && count > 0 => {
                lost = true;
                continue;
            }
            // TCP never delivers bytes after lost ones.
            _ if lost => return None,
            Disturbance::Delayed(delay) => sleep(delay).await,
            _ => {}
        }
        let block = buffer.get(..count)?;
        let is_held = |state: &State| {
            let text = state.held_text.as_deref().filter(|_| direction == Direction::Request);
            text.is_some_and(|text| block.windows(text.len()).any(|found| found == text.as_bytes()))
        };
        if is_held(&state.borrow()) {
            sender.send_modify(|state| state.is_held = true);
            return std::future::pending().await;
        }
        if count == 0 {
            return Some(());
        }
        to.write_all(block).await.ok()?;
    }
}
