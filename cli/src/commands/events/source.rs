//! The source of a delivery: a file or standard input, read on a separate thread, and the ids of its events.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use clap::Args;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use transport::OutgoingEvent;
use uuid::Uuid;

use super::input::EventReader;
use super::item::{InputItem, Place};
use super::ranges::ItemRanges;
use super::rejects::{Reject, error_code, on_one_line};
use super::remarks::Remarks;
use crate::framework::error::{CliError, ErrorKind, Result};
use crate::framework::input_file::InputFile;

/// Bytes of one read. The items of a read are handed over together.
const READ_BYTES: usize = 256 * 1024;
/// Number of reads ahead of the current batch.
const READ_AHEAD: usize = 2;

/// The input of a command.
#[derive(Args)]
pub(super) struct Input {
    /// File with events; `-` reads standard input.
    #[arg(long, short, value_name = "FILE")]
    pub(super) file: PathBuf,
    /// Source of events that have none.
    #[arg(long, value_name = "SOURCE", value_parser = source_id)]
    pub(super) source_id: Option<String>,
}

fn source_id(text: &str) -> std::result::Result<String, &'static str> {
    let what = "expected 1 to 256 bytes, not blank, without control characters";
    if udm::is_source_id(text) { Ok(text.to_owned()) } else { Err(what) }
}

/// An opened file, or standard input.
pub(super) struct InputSource {
    reader: Box<dyn Read + Send>,
    /// The file, to compare it with those that the command writes.
    file: Option<InputFile>,
    ids: EventIds,
    /// Size; `None` if it is unknown.
    bytes: Option<u64>,
}

/// An event, or what cannot be sent.
pub(super) struct SourceItem {
    pub(super) place: Place,
    pub(super) event: std::result::Result<OutgoingEvent, Box<Reject>>,
}

impl InputSource {
    /// Opens a file, or standard input for `-`. The output must not go to it.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let source = if path == Path::new("-") {
            let file = InputFile::from_stdin();
            // At a terminal, each read after the end (Ctrl-D) would wait for more input.
            let reader = Box::new(io::stdin().chain(io::empty()));
            Self { reader, file, ids: EventIds::Random, bytes: None }
        } else {
            Self::open_file(path).map_err(|error| unreadable(path, &error))?
        };
        source.file.as_ref().map_or(Ok(()), InputFile::require_not_printed_to)?;
        Ok(source)
    }

    fn open_file(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::Error::from(io::ErrorKind::IsADirectory));
        }
        // A pipe or a device can be read only once.
        let (ids, bytes) = if metadata.is_file() {
            (EventIds::OfFile { path: path.to_owned(), digest: None }, Some(metadata.len()))
        } else {
            (EventIds::Random, None)
        };
        let input = InputFile::from_file(&file);
        Ok(Self { reader: Box::new(file), file: input, ids, bytes })
    }

    /// Size in bytes; `None` if it is unknown.
    pub(super) fn bytes(&self) -> Option<u64> {
        self.bytes
    }

    /// The file, unless it is a terminal or a device.
    pub(super) fn take_file(&mut self) -> Option<InputFile> {
        self.file.take()
    }

    /// Whether another run sends the same ids.
    pub(super) fn has_stable_ids(&self) -> bool {
        matches!(self.ids, EventIds::OfFile { .. })
    }

    /// Reader without ids.
    pub(super) fn into_reader(self) -> Box<dyn BufRead + Send> {
        Box::new(BufReader::with_capacity(READ_BYTES, self.reader))
    }

    /// SHA-256 of a file.
    ///
    /// # Errors
    /// The source is not a file.
    pub(super) fn digest(&mut self, path: &Path) -> Result<[u8; 32]> {
        match &mut self.ids {
            EventIds::Random => {
                Err(ErrorKind::Usage
                    .with_message("--checkpoint requires a file, not standard input or a pipe"))
            }
            EventIds::OfFile { digest, .. } => {
                let computed = digest_of(path).map_err(|error| unreadable(path, &error))?;
                Ok(*digest.insert(computed))
            }
        }
    }

    /// Starts to read on a separate thread, because reading can block. Reading pauses while the channel is full. Events that are
    /// `settled` are skipped; those without a source get `source_id`. `read` is the number of bytes so far. After `stop`, everything
    /// that was read is handed over, then an error.
    pub(super) fn read(
        self,
        settled: ItemRanges,
        source_id: Option<String>,
        read: Arc<AtomicU64>,
        stop: Arc<AtomicBool>,
        remarks: Arc<Mutex<Remarks>>,
    ) -> mpsc::Receiver<Result<Vec<SourceItem>>> {
        let (sender, receiver) = mpsc::channel(READ_AHEAD);
        let chunk = Chunk(Arc::new(Mutex::new(Vec::new())), sender);
        let Self { reader, mut ids, .. } = self;
        tokio::task::spawn_blocking(move || {
            let reader = BufReader::with_capacity(
                READ_BYTES,
                ChunkedReader { reader, chunk: chunk.clone(), read, stop },
            );
            let events = EventReader::new(Box::new(reader), source_id);
            let events = events.map(|events| events.skipping(settled).with_remarks(remarks));
            let result = events.and_then(|events| prepare_all(events, &mut ids, &chunk));
            // An error means that the delivery has ended.
            let _ = chunk.hand_over();
            if let Err(error) = result {
                // Sending fails when the delivery has ended.
                let _ = chunk.1.blocking_send(Err(error));
            }
        });
        receiver
    }
}

fn prepare_all(events: EventReader, ids: &mut EventIds, chunk: &Chunk) -> Result<()> {
    let unreadable = |error: io::Error| ErrorKind::InputUnreadable.with_message(error.to_string());
    let mut bytes = 0;
    for item in events {
        let item = prepare(item?, ids).map_err(unreadable)?;
        bytes += item.bytes();
        chunk.0.lock().push(item);
        // A few compressed bytes can contain many events.
        if bytes >= READ_BYTES {
            bytes = 0;
            chunk.hand_over().map_err(unreadable)?;
        }
    }
    Ok(())
}

impl SourceItem {
    /// Size of the event or of its reject.
    pub(super) fn bytes(&self) -> usize {
        match &self.event {
            Ok(event) => event.body().len(),
            Err(reject) => {
                let event = reject.event.as_ref().map_or(0, |event| event.get().len());
                event + [&reject.text, &reject.bytes].into_iter().flatten().map(String::len).sum::<usize>()
            }
        }
    }
}

/// Adds the id.
fn prepare(item: InputItem, ids: &mut EventIds) -> io::Result<SourceItem> {
    let place = item.place;
    let json = match item.json {
        Ok(json) => json,
        Err(invalid) => {
            return Ok(SourceItem { place, event: Err(Box::new(Reject::from_invalid(place, invalid))) });
        }
    };
    let mut failed = None;
    let id = || {
        ids.for_event(place.number).unwrap_or_else(|error| {
            failed = Some(error);
            String::new()
        })
    };
    let text = json.get().to_owned();
    let event = OutgoingEvent::from_json(json, id).map_err(|error| {
        let reject = Reject::from_place(place, error_code(&error), &error.message);
        Box::new(Reject { event: on_one_line(&text), ..reject })
    });
    failed.map_or(Ok(SourceItem { place, event }), Err)
}

/// Items that are not handed over yet, and where to hand them over.
#[derive(Clone)]
struct Chunk(Arc<Mutex<Vec<SourceItem>>>, mpsc::Sender<Result<Vec<SourceItem>>>);

impl Chunk {
    /// # Errors
    /// The delivery has ended.
    fn hand_over(&self) -> io::Result<()> {
        let items = std::mem::take(&mut *self.0.lock());
        if items.is_empty() {
            return Ok(());
        }
        self.1.blocking_send(Ok(items)).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }
}

/// Hands over the items of the last read before the next one, which can block.
struct ChunkedReader {
    reader: Box<dyn Read + Send>,
    chunk: Chunk,
    read: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Read for ChunkedReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.chunk.hand_over()?;
        if self.stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let length = self.reader.read(buffer)?;
        self.read.fetch_add(length as u64, Ordering::Relaxed);
        Ok(length)
    }
}

fn unreadable(path: &Path, error: &io::Error) -> CliError {
    ErrorKind::InputUnreadable.with_message(format!("{}: {error}", path.display()))
}

/// Namespace of ids derived from a file and the number of an event: UUIDv5 of `svc.events.line` in the DNS namespace of RFC 9562.
const NAMESPACE: Uuid = Uuid::from_u128(0x94b4_da3d_c139_5ff3_921b_6f8a_b463_b7c4);

/// Source of the ids of events without `event_id`.
enum EventIds {
    /// Derived from the SHA-256 of a file and the number of the event. The digest is computed when it is needed.
    OfFile { path: PathBuf, digest: Option<[u8; 32]> },
    /// Different in each run.
    Random,
}

impl EventIds {
    /// Id of the event with this number.
    fn for_event(&mut self, number: u64) -> io::Result<String> {
        match self {
            Self::OfFile { path, digest } => {
                let digest = match digest {
                    Some(digest) => digest,
                    None => digest.insert(digest_of(path)?),
                };
                let name = [digest.as_slice(), b":", number.to_string().as_bytes()].concat();
                Ok(Uuid::new_v5(&NAMESPACE, &name).to_string())
            }
            Self::Random => Ok(transport::new_event_id()),
        }
    }
}

/// SHA-256 of a file. The ids do not depend on its name.
fn digest_of(path: &Path) -> io::Result<[u8; 32]> {
    let mut file = File::open(path)?;
    let mut digest = Sha256::new();
    let mut chunk = vec![0; READ_BYTES];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(digest.finalize().into()),
            read => digest.update(&chunk[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_is_derived_as_documented() {
        assert_eq!(NAMESPACE, Uuid::new_v5(&Uuid::NAMESPACE_DNS, b"svc.events.line"));
    }

    #[test]
    fn deterministic_ids_are_stable_and_differ_by_file_and_number() {
        let id = |digest: u8, number| {
            EventIds::OfFile { path: PathBuf::new(), digest: Some([digest; 32]) }.for_event(number).unwrap()
        };
        assert_eq!(id(7, 1), "fa68c564-af40-50ca-861e-e639e7b1b384");
        assert_ne!(id(7, 1), id(7, 11));
        assert_ne!(id(7, 1), id(8, 1));
        assert_ne!(EventIds::Random.for_event(1).unwrap(), EventIds::Random.for_event(1).unwrap());
    }

    #[tokio::test]
    async fn few_compressed_bytes_do_not_become_many_events_in_memory() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let events = format!("{{\"source_id\":\"{}\"}}\n", "x".repeat(1000)).repeat(32 * 1024);
        std::fs::write(file.path(), zstd::encode_all(events.as_bytes(), 3).unwrap()).unwrap();
        let source = InputSource::open(file.path()).unwrap();
        let mut chunks =
            source.read(ItemRanges::default(), None, Arc::default(), Arc::default(), Arc::default());
        let mut count = 0;
        while let Some(chunk) = chunks.recv().await {
            let chunk = chunk.unwrap();
            count += chunk.len();
            assert!(chunk.iter().map(SourceItem::bytes).sum::<usize>() < 2 * READ_BYTES);
        }
        assert_eq!(count, 32 * 1024);
    }
}
