//! A TCP forwarder on loopback that a test can interrupt. As in a network partition, connections stay open and bytes wait.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

const BUFFER: usize = 64 * 1024;

/// A running forwarder. Dropping it closes its connections.
pub(super) struct Forwarder {
    /// The address that it listens on.
    pub(super) address: SocketAddr,
    state: watch::Sender<State>,
    _task: JoinSet<()>,
}

#[derive(Clone, Copy, Default)]
struct State {
    /// The port on loopback; connections wait for it.
    target: Option<u16>,
    interrupted: bool,
}

impl Forwarder {
    /// Listens on a free port.
    pub(super) async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let state = watch::Sender::default();
        let mut task = JoinSet::new();
        task.spawn(accept(listener, state.subscribe()));
        Ok(Self { address, state, _task: task })
    }

    /// Sets the port to which it forwards.
    pub(super) fn set_target(&self, port: u16) {
        self.state.send_modify(|state| state.target = Some(port));
    }

    /// Interrupts or continues all connections, also new ones.
    pub(super) fn interrupt(&self, interrupted: bool) {
        self.state.send_modify(|state| state.interrupted = interrupted);
    }
}

async fn accept(listener: TcpListener, state: watch::Receiver<State>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        connections.spawn(forward(client, state.clone()));
        while connections.try_join_next().is_some() {}
    }
}

/// Forwards in both directions until one side closes its connection. Returns `None` after an error.
async fn forward(mut client: TcpStream, mut state: watch::Receiver<State>) -> Option<()> {
    let target = state.wait_for(|state| state.target.is_some()).await.ok()?.target?;
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, target)).await.ok()?;
    client.set_nodelay(true).and_then(|()| server.set_nodelay(true)).ok()?;
    let ((from_client, to_client), (from_server, to_server)) = (client.split(), server.split());
    tokio::select! {
        ended = pass(from_client, to_server, state.clone()) => ended,
        ended = pass(from_server, to_client, state.clone()) => ended,
    }
}

async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut state: watch::Receiver<State>,
) -> Option<()> {
    let mut buffer = vec![0; BUFFER];
    loop {
        let count = from.read(&mut buffer).await.ok()?;
        state.wait_for(|state| !state.interrupted).await.ok()?;
        if count == 0 {
            return Some(());
        }
        to.write_all(buffer.get(..count)?).await.ok()?;
    }
}
