//! Ports on loopback for servers that must be told one, kept from run to run while they are free.
//!
//! They are picked below the range from which the system takes the near end of outgoing connections, so that none of
//! those sits on a port while its server is being started again.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;

use hashing::{Entropy as _, SystemEntropy};

const FIRST: u16 = 18_000;
const COUNT: u16 = 12_000;

/// A port and the file that remembers it.
#[derive(Debug)]
pub(super) struct KeptPort {
    file: PathBuf,
    number: std::sync::atomic::AtomicU16,
}

impl KeptPort {
    /// The port of the last run, if it is free, else another.
    pub(super) fn load(file: PathBuf) -> io::Result<Self> {
        let last = std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
        let port = Self { file, number: 0.into() };
        match last {
            Some(last) if is_free(last) => port.number.store(last, RELAXED),
            _ => port.change()?,
        }
        Ok(port)
    }

    /// The port.
    pub(super) fn number(&self) -> u16 {
        self.number.load(RELAXED)
    }

    /// Whether somebody listens there.
    pub(super) fn is_taken(&self) -> bool {
        !is_free(self.number())
    }

    /// Takes another port.
    pub(super) fn change(&self) -> io::Result<()> {
        let number = (0..1000).map(|_| random()).find(|port| is_free(*port));
        let number = number.ok_or_else(|| io::Error::other("no free port was found on 127.0.0.1"))?;
        std::fs::write(&self.file, number.to_string())?;
        self.number.store(number, RELAXED);
        Ok(())
    }
}

const RELAXED: std::sync::atomic::Ordering = std::sync::atomic::Ordering::Relaxed;

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
    fn a_port_is_kept_until_somebody_else_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("port");
        let first = KeptPort::load(file.clone()).unwrap().number();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), first.to_string());
        let Ok(taken) = TcpListener::bind((Ipv4Addr::LOCALHOST, first)) else {
            return;
        };
        let second = KeptPort::load(file.clone()).unwrap();
        assert_ne!(second.number(), first);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), second.number().to_string());
        drop(taken);
    }
}
