//! Ports on loopback that stay the same from run to run while they are free.
//!
//! They are below the ephemeral port range, so that no outgoing connection takes the port of a server that restarts.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use hashing::{Entropy as _, SystemEntropy};

const FIRST: u16 = 18_000;
const COUNT: u16 = 12_000;

/// A port number that is stored in a file.
#[derive(Debug)]
pub(crate) struct StoredPort {
    file: PathBuf,
    number: AtomicU16,
}

impl StoredPort {
    /// The port of the last run if it is free, else another one.
    pub(crate) fn load(file: PathBuf) -> io::Result<Self> {
        let last = std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
        let port = Self { file, number: 0.into() };
        match last {
            Some(last) if is_free(last) => port.number.store(last, Relaxed),
            _ => port.change()?,
        }
        Ok(port)
    }

    pub(crate) fn number(&self) -> u16 {
        self.number.load(Relaxed)
    }

    /// Whether another process listens on the port.
    pub(crate) fn is_taken(&self) -> bool {
        !is_free(self.number())
    }

    /// Selects and stores another free port.
    pub(crate) fn change(&self) -> io::Result<()> {
        let number = (0..1000).map(|_| random()).find(|port| is_free(*port));
        let number = number.ok_or_else(|| io::Error::other("no free port on 127.0.0.1 in 18000 to 29999"))?;
        std::fs::write(&self.file, number.to_string())?;
        self.number.store(number, Relaxed);
        Ok(())
    }
}

fn random() -> u16 {
    let mut bytes = [0_u8; 2];
    SystemEntropy.fill(&mut bytes);
    FIRST + u16::from_le_bytes(bytes) % COUNT
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_port_is_reused_until_another_process_takes_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("port");
        let first = StoredPort::load(file.clone()).unwrap().number();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), first.to_string());
        let Ok(taken) = TcpListener::bind((Ipv4Addr::LOCALHOST, first)) else {
            return;
        };
        let second = StoredPort::load(file.clone()).unwrap();
        assert_ne!(second.number(), first);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), second.number().to_string());
        drop(taken);
    }
}
