//! Request bodies: the events' own bytes, compressed where that pays.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::OutgoingEvent;

/// What is not larger travels as it is.
const PLAIN_LIMIT: usize = 1024;

/// A body ready to be sent, any number of times.
#[derive(Clone, Debug)]
pub(super) struct Body {
    pub(super) bytes: Bytes,
    pub(super) gzip: bool,
}

impl Body {
    /// One event.
    pub(super) async fn event(event: &OutgoingEvent) -> Self {
        Self::encode(event.body().to_owned().into()).await
    }

    /// A list of events, each with its own bytes.
    pub(super) async fn list<'a>(events: impl Iterator<Item = &'a OutgoingEvent>) -> Self {
        let mut list = String::from("[");
        for event in events {
            if list.len() > 1 {
                list.push(',');
            }
            list.push_str(event.body());
        }
        list.push(']');
        Self::encode(list.into()).await
    }

    /// Compression of a full batch takes far longer than a task may hold its thread. Should it fail, plain is right too.
    async fn encode(plain: Bytes) -> Self {
        if plain.len() <= PLAIN_LIMIT {
            return Self { bytes: plain, gzip: false };
        }
        let source = plain.clone();
        match tokio::task::spawn_blocking(move || gzip(&source)).await {
            Ok(Ok(compressed)) => Self { bytes: compressed.into(), gzip: true },
            _ => Self { bytes: plain, gzip: false },
        }
    }
}

fn gzip(plain: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(plain.len() / 4), Compression::fast());
    encoder.write_all(plain)?;
    encoder.finish()
}
