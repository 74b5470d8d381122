//! Encoding of an input, recognized by its first bytes: gzip and zstd are decompressed, and UTF-16 becomes UTF-8, with bounded memory.

use std::io::{self, BufRead, BufReader, Cursor, Read};

use flate2::bufread::GzDecoder;

use crate::framework::error::{ErrorKind, Result};

type Reader = Box<dyn BufRead + Send>;

/// Number of bytes that show the encoding.
const HEAD_BYTES: usize = 6;
/// The first 262 bytes of a tar archive, which begins with the name of a file, end with this text.
const TAR: (usize, &[u8]) = (262, b"ustar");
/// Size of a buffer of decoded bytes.
const BUFFER_BYTES: usize = 256 * 1024;

/// Encodings that are only named: first bytes, name, and a program that writes UTF-8.
const NOT_READ: [(&[u8], &str, &str); 6] = [
    (b"BZh", "bzip2", "bzip2 -dc FILE"),
    (b"\xfd7zXZ\0", "xz", "xz -dc FILE"),
    (b"\x04\x22\x4d\x18", "lz4", "lz4 -dc FILE"),
    (b"PK\x03\x04", "zip", "unzip -p FILE"),
    (b"\0\0\xfe\xff", "UTF-32", "iconv -f UTF-32 -t UTF-8 FILE"),
    (b"\xff\xfe\0\0", "UTF-32", "iconv -f UTF-32 -t UTF-8 FILE"),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Utf8,
    Utf16(Endian),
    Gzip,
    Zstd,
    /// Name, and a program that converts it.
    NotRead(&'static str, &'static str),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Endian {
    Little,
    Big,
}

/// Reader of the input as UTF-8, without a byte order mark.
///
/// # Errors
/// The input is not readable, or has an encoding that the command does not read.
pub(super) fn decoded(reader: Reader) -> Result<Reader> {
    let unreadable = |error: io::Error| ErrorKind::InputUnreadable.with_message(error.to_string());
    let (encoding, reader) = recognized(reader).map_err(unreadable)?;
    let reader: Box<dyn Read + Send> = match encoding {
        Encoding::Gzip => Box::new(Decoder("gzip", Gzip(GzDecoder::new(reader)))),
        Encoding::Zstd => Box::new(Decoder("zstd", zstd::Decoder::with_buffer(reader).map_err(unreadable)?)),
        encoding => return text(encoding, reader),
    };
    let (encoding, reader) = recognized(buffered(reader)).map_err(unreadable)?;
    text(encoding, reader)
}

fn text(encoding: Encoding, reader: Reader) -> Result<Reader> {
    let (name, program) = match encoding {
        Encoding::Utf8 => return Ok(reader),
        Encoding::Utf16(endian) => {
            let (bytes, text) = Default::default();
            return Ok(buffered(Box::new(Utf16 { reader, endian, bytes, text })));
        }
        Encoding::Gzip => ("gzip, twice", "gzip -dc FILE"),
        Encoding::Zstd => ("zstd, twice", "zstd -dc FILE"),
        Encoding::NotRead(name, program) => (name, program),
    };
    let remediation = format!("Convert it first: {program} | svc events send --file -");
    Err(ErrorKind::InputUnreadable
        .with_message(format!("the encoding of the input is {name}"))
        .with_remediation(remediation))
}

fn buffered(reader: Box<dyn Read + Send>) -> Reader {
    Box::new(BufReader::with_capacity(BUFFER_BYTES, reader))
}

/// Reads the first bytes, or the first line if that is shorter. The returned reader starts with them, without a byte order mark.
fn recognized(mut reader: Reader) -> io::Result<(Encoding, Reader)> {
    let mut head = Vec::new();
    read_head(&mut reader, &mut head, HEAD_BYTES)?;
    let mut encoding = encoding_of(&head);
    // JSON objects and lists do not wait for more bytes.
    if encoding == Encoding::Utf8
        && head.first().is_some_and(|first| first.is_ascii_alphanumeric() || *first == b'.')
    {
        read_head(&mut reader, &mut head, TAR.0)?;
        if head.len() == TAR.0 && head.ends_with(TAR.1) {
            encoding = Encoding::NotRead("tar", "tar -xOf FILE");
        }
    }
    let byte_order_mark: &[u8] = match encoding {
        Encoding::Utf8 => b"\xef\xbb\xbf",
        Encoding::Utf16(Endian::Little) => b"\xff\xfe",
        Encoding::Utf16(Endian::Big) => b"\xfe\xff",
        _ => b"",
    };
    let head = head.strip_prefix(byte_order_mark).unwrap_or(&head).to_vec();
    Ok((encoding, Box::new(Cursor::new(head).chain(reader))))
}

/// Reads up to this number of bytes, or to the end of the first line.
fn read_head(reader: &mut Reader, head: &mut Vec<u8>, bytes: usize) -> io::Result<()> {
    while head.len() < bytes && !head.ends_with(b"\n") {
        if reader.by_ref().take(1).read_to_end(head)? == 0 {
            break;
        }
    }
    Ok(())
}

/// JSON starts with an ASCII character and contains no zero byte, so UTF-16 and UTF-32 are certain without a byte order mark.
fn encoding_of(head: &[u8]) -> Encoding {
    let named = NOT_READ.iter().find(|(magic, ..)| head.starts_with(magic));
    if let Some(&(_, name, program)) = named {
        return Encoding::NotRead(name, program);
    }
    match head {
        [0x1f, 0x8b, ..] => Encoding::Gzip,
        // A frame, or a skippable one.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Encoding::Zstd,
        [1..=0x7f, 0, 0, 0, ..] => Encoding::NotRead("UTF-32", "iconv -f UTF-32LE -t UTF-8 FILE"),
        [0, 0, 0, 1..=0x7f, ..] => Encoding::NotRead("UTF-32", "iconv -f UTF-32BE -t UTF-8 FILE"),
        [0xff, 0xfe, ..] | [1..=0x7f, 0, ..] => Encoding::Utf16(Endian::Little),
        [0xfe, 0xff, ..] | [0, 1..=0x7f, ..] => Encoding::Utf16(Endian::Big),
        _ => Encoding::Utf8,
    }
}

/// A decompressor, by its name.
struct Decoder<R>(&'static str, R);

impl<R: Read> Read for Decoder<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        use io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};

        self.1.read(buffer).map_err(|error| match error.kind() {
            InvalidData | InvalidInput | Other => {
                io::Error::new(InvalidData, format!("the {} data is damaged: {error}", self.0))
            }
            UnexpectedEof => io::Error::new(UnexpectedEof, format!("the {} data is not complete", self.0)),
            _ => error,
        })
    }
}

/// The members of a gzip file. Zeros after the last one are padding, as for `gzip -d`.
struct Gzip(GzDecoder<Reader>);

impl Read for Gzip {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let length = self.0.read(buffer)?;
            let rest = self.0.get_mut();
            while length == 0 && rest.fill_buf()?.first() == Some(&0) {
                rest.consume(1);
            }
            if length > 0 || rest.fill_buf()?.is_empty() {
                return Ok(length);
            }
            self.0 = GzDecoder::new(std::mem::replace(rest, Box::new(io::empty())));
        }
    }
}

/// Converts UTF-16 to UTF-8.
struct Utf16 {
    reader: Reader,
    endian: Endian,
    /// Bytes of a character that is not complete.
    bytes: Vec<u8>,
    text: Cursor<Vec<u8>>,
}

impl Read for Utf16 {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.text.fill_buf()?.is_empty() {
            let chunk = self.reader.fill_buf()?;
            let (length, is_end) = (chunk.len(), chunk.is_empty());
            if is_end && self.bytes.is_empty() {
                return Ok(0);
            }
            if is_end && self.bytes.len() % 2 == 1 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the UTF-16 text is not complete"));
            }
            self.bytes.extend_from_slice(chunk);
            self.reader.consume(length);
            self.text = Cursor::new(self.convert(is_end));
        }
        self.text.read(buffer)
    }
}

impl Utf16 {
    /// Converts the complete characters. An unpaired surrogate becomes three bytes that are not UTF-8 (WTF-8), so that its line is
    /// rejected and no information is lost.
    fn convert(&mut self, is_end: bool) -> Vec<u8> {
        let units = self.bytes.chunks_exact(2).map(|unit| match self.endian {
            Endian::Little => u16::from_le_bytes([unit[0], unit[1]]),
            Endian::Big => u16::from_be_bytes([unit[0], unit[1]]),
        });
        let mut units: Vec<_> = units.collect();
        // The second half of a pair can follow.
        units.pop_if(|last| !is_end && matches!(last, 0xd800..=0xdbff));
        self.bytes.drain(..2 * units.len());
        let mut text = Vec::with_capacity(2 * units.len());
        for character in char::decode_utf16(units) {
            match character {
                Ok(character) => text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
                Err(error) => {
                    let [high, low] = error.unpaired_surrogate().to_be_bytes();
                    text.extend([0xed, 0x80 | ((high & 0xf) << 2) | (low >> 6), 0x80 | (low & 0x3f)]);
                }
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> std::result::Result<String, String> {
        let mut text = Vec::new();
        let mut reader = decoded(Box::new(Cursor::new(bytes.to_vec()))).map_err(|error| error.message)?;
        reader.read_to_end(&mut text).map_err(|error| error.to_string())?;
        String::from_utf8(text).map_err(|error| format!("{:?}", error.as_bytes()))
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn utf16(text: &str) -> Vec<u8> {
        text.encode_utf16().flat_map(u16::to_le_bytes).collect()
    }

    const TEXT: &str = "{\"user\": \"Jürgen 🙂 語\"}\n{}\n";

    #[test]
    fn compressed_parts_follow_one_another() {
        let members = [gzip(TEXT.as_bytes()), gzip(TEXT.as_bytes())].concat();
        assert_eq!(read(&members).unwrap(), TEXT.repeat(2));
        let frames =
            [zstd::encode_all(TEXT.as_bytes(), 3).unwrap(), zstd::encode_all(TEXT.as_bytes(), 3).unwrap()];
        assert_eq!(read(&frames.concat()).unwrap(), TEXT.repeat(2));
        let skippable = [&b"\x50\x2a\x4d\x18\x01\0\0\0x"[..], &frames[0]].concat();
        assert_eq!(read(&skippable).unwrap(), TEXT);
    }

    #[test]
    fn damaged_and_incomplete_data_is_an_error_after_its_events_and_padding_is_not() {
        let gzip = gzip(TEXT.as_bytes());
        assert_eq!(read(&gzip[..gzip.len() - 4]).unwrap_err(), "the gzip data is not complete");
        let mut damaged = gzip.clone();
        *damaged.last_mut().unwrap() ^= 1;
        assert!(read(&damaged).unwrap_err().starts_with("the gzip data is damaged: "));
        assert_eq!(read(&[&gzip[..], &gzip, &vec![0; 1 << 20]].concat()).unwrap(), TEXT.repeat(2));
        assert!(read(&[&gzip[..], &[0, 7]].concat()).unwrap_err().starts_with("the gzip data is "));
        let zstd = zstd::encode_all(TEXT.as_bytes(), 3).unwrap();
        assert_eq!(read(&zstd[..zstd.len() - 4]).unwrap_err(), "the zstd data is not complete");
        assert_eq!(read(&utf16(TEXT)[..31]).unwrap_err(), "the UTF-16 text is not complete");
    }

    /// The start of an archive with a file `events.ndjson`.
    fn tar() -> Vec<u8> {
        let mut archive = b"events.ndjson".to_vec();
        archive.resize(257, 0);
        [&archive[..], b"ustar\0", b"00{\"source_id\":\"fw\"}\n"].concat()
    }

    #[test]
    fn other_encodings_are_named_with_a_program_that_converts_them() {
        for (bytes, name) in [
            (&b"BZh91AY&SY"[..], "bzip2"),
            (b"\xfd7zXZ\0\0", "xz"),
            (b"\x04\x22\x4d\x18\x64", "lz4"),
            (b"PK\x03\x04\x14", "zip"),
            (b"\xff\xfe\0\0{\0\0\0", "UTF-32"),
            (b"{\0\0\0", "UTF-32"),
            (b"\0\0\0{", "UTF-32"),
            (&gzip(&gzip(b"{}")), "gzip, twice"),
            (&tar(), "tar"),
            (&gzip(&tar()), "tar"),
        ] {
            let error = decoded(Box::new(Cursor::new(bytes.to_vec()))).err().unwrap();
            assert_eq!(error.message, format!("the encoding of the input is {name}"));
            assert!(error.remediation.contains(" | svc events send --file -"), "{}", error.remediation);
        }
    }

    #[test]
    fn an_unpaired_surrogate_keeps_its_value_as_bytes_that_are_not_utf8() {
        let units = [0x7b, 0xd83d, 0x41, 0xdc00];
        let bytes: Vec<_> = units.into_iter().flat_map(u16::to_le_bytes).collect();
        assert_eq!(read(&bytes).unwrap_err(), format!("{:?}", b"{\xed\xa0\xbdA\xed\xb0\x80"));
    }

    proptest! {
        #[test]
        fn text_is_the_same_in_every_encoding(text in "[{\\[ ][^\u{0}]{0,200}") {
            let (little, big) = (utf16(&text), text.encode_utf16().flat_map(u16::to_be_bytes).collect::<Vec<_>>());
            let marked = |mark: &[u8], bytes: &[u8]| [mark, bytes].concat();
            for bytes in [
                text.as_bytes().to_vec(),
                marked(b"\xef\xbb\xbf", text.as_bytes()),
                little.clone(),
                big.clone(),
                marked(b"\xff\xfe", &little),
                marked(b"\xfe\xff", &big),
                gzip(text.as_bytes()),
                gzip(&little),
                zstd::encode_all(text.as_bytes(), 3).unwrap(),
                zstd::encode_all(&*marked(b"\xfe\xff", &big), 3).unwrap(),
            ] {
                prop_assert_eq!(read(&bytes).unwrap(), text.as_str());
            }
        }
    }
}
