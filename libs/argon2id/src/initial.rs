//! What precedes and follows the fill: the first two blocks of each lane and the tag, from `BLAKE2b` (RFC 9106, sections 3.2 and 3.3).

use argon2::{Algorithm, Block, Error, Params, Version};
use blake2::digest::Output;
use blake2::digest::block_api::{UpdateCore as _, VariableOutputCore as _};
use blake2::digest::block_buffer::LazyBuffer;
use blake2::{Blake2b512, Blake2bVarCore, Digest as _};
use zeroize::{Zeroize as _, Zeroizing};

/// Steps 1 to 4 of section 3.2. The texts are password and salt. There is no secret.
pub(crate) fn write_first_blocks(
    params: &Params,
    texts: [&[u8]; 2],
    length: usize,
    blocks: &mut [Block],
) -> Result<(), Error> {
    let seed = seed(params, texts, length)?;
    let mut bytes = Zeroizing::new([0; Block::SIZE]);
    let lane_length = blocks.len() / params.p_cost() as usize;
    for (lane, blocks) in (0_u32..).zip(blocks.chunks_exact_mut(lane_length)) {
        for (number, block) in (0_u32..).zip(&mut blocks[..2]) {
            hash([&seed[..], &number.to_le_bytes(), &lane.to_le_bytes()], &mut *bytes)?;
            for (word, bytes) in block.as_mut().iter_mut().zip(bytes.as_chunks().0) {
                *word = u64::from_le_bytes(*bytes);
            }
        }
    }
    Ok(())
}

/// Steps 7 and 8 of section 3.2.
pub(crate) fn tag(params: &Params, blocks: &[Block], out: &mut [u8]) -> Result<(), Error> {
    let mut last = Block::new();
    for lane in blocks.chunks_exact(blocks.len() / params.p_cost() as usize) {
        last ^= &lane[lane.len() - 1];
    }
    let mut bytes = Zeroizing::new([0; Block::SIZE]);
    for (word, bytes) in last.as_ref().iter().zip(bytes.as_chunks_mut().0) {
        *bytes = word.to_le_bytes();
    }
    last.zeroize();
    hash([&bytes[..]], out)
}

/// `H_0`, step 1 of section 3.2.
fn seed(params: &Params, texts: [&[u8]; 2], length: usize) -> Result<Zeroizing<[u8; 64]>, Error> {
    let mut hash = Blake2b512::new();
    hash.update(params.p_cost().to_le_bytes());
    hash.update(u32::try_from(length).map_err(|_| Error::OutputTooLong)?.to_le_bytes());
    for number in [params.m_cost(), params.t_cost(), Version::V0x13 as u32, Algorithm::Argon2id as u32] {
        hash.update(number.to_le_bytes());
    }
    let no_secret: &[u8] = &[];
    for text in texts.into_iter().chain([no_secret, params.data()]) {
        hash.update(u32::try_from(text.len()).map_err(|_| Error::PwdTooLong)?.to_le_bytes());
        hash.update(text);
    }
    Ok(Zeroizing::new(hash.finalize().into()))
}

/// `H'`, the hash with an output of any length, of the joined inputs (section 3.3).
fn hash<const N: usize>(inputs: [&[u8]; N], mut out: &mut [u8]) -> Result<(), Error> {
    let length = u32::try_from(out.len()).map_err(|_| Error::OutputTooLong)?.to_le_bytes();
    let inputs = [&length[..]].into_iter().chain(inputs);
    if out.len() <= 64 {
        return blake2b(inputs, out);
    }
    let mut v = Zeroizing::new([0; 64]);
    blake2b(inputs, &mut *v)?;
    while out.len() > 64 {
        let (half, rest) = out.split_at_mut(32);
        half.copy_from_slice(&v[..32]);
        out = rest;
        if out.len() > 64 {
            *v = Blake2b512::digest(*v).into();
        }
    }
    blake2b([&v[..]], out)
}

/// `BLAKE2b` with an output of 1 to 64 bytes.
fn blake2b<'a>(inputs: impl IntoIterator<Item = &'a [u8]>, out: &mut [u8]) -> Result<(), Error> {
    let mut hash = Blake2bVarCore::new(out.len()).map_err(|_| Error::OutputTooLong)?;
    let mut buffer = LazyBuffer::default();
    for input in inputs {
        buffer.digest_blocks(input, |blocks| hash.update_blocks(blocks));
    }
    let mut full = Output::<Blake2bVarCore>::default();
    hash.finalize_variable_core(&mut buffer, &mut full);
    out.copy_from_slice(&full[..out.len()]);
    Ok(())
}
