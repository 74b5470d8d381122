//! Argon2id (RFC 9106, version 0x13) with AVX2, at two to three times the speed of the `argon2` crate.
//!
//! The `argon2` crate computes a lane of a segment to its end, then the next lane. Each block waits for the block that it
//! references, which is seldom in a cache. This crate computes one block of each lane in turn. While it computes the blocks of the
//! other lanes, the processor fetches the reference block of the next one. Results are equal for all parameters: the `argon2`
//! crate checks them in the tests, and remains the source of parameters and PHC strings. Other processors use the `argon2` crate.

#[cfg(target_arch = "x86_64")]
mod compress;
#[cfg(target_arch = "x86_64")]
mod fill;
#[cfg(target_arch = "x86_64")]
mod initial;
mod memory;

pub use memory::Memory;

use argon2::{Block, Error, Params};

/// Computes a tag with parameters, password, salt, tag and blocks. The blocks are working memory of at least [`Params::block_count`] blocks
/// with any content. The computation calls the last argument every 1,024 blocks, which is every 0.2 to 0.4 ms.
///
/// # Errors
/// As [`argon2::Argon2::hash_password_into_with_memory`]: the salt or the memory is too short, or the tag does not have the length
/// that the parameters require.
pub type HashInto = fn(&Params, &[u8], &[u8], &mut [u8], &mut [Block], &mut dyn FnMut()) -> Result<(), Error>;

/// Returns the function if the processor has AVX2.
pub fn with_avx2() -> Option<HashInto> {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        #[expect(unsafe_code, reason = "a call of a function that needs instructions")]
        let hash_into: HashInto = |params, password, salt, out, blocks, pause| {
            // SAFETY: the function is returned only if the processor has the instructions.
            unsafe { hash_into(params, password, salt, out, blocks, pause) }
        };
        return Some(hash_into);
    }
    None
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn hash_into(
    params: &Params,
    password: &[u8],
    salt: &[u8],
    out: &mut [u8],
    blocks: &mut [Block],
    pause: &mut dyn FnMut(),
) -> Result<(), Error> {
    if out.len() < params.output_len().unwrap_or(Params::MIN_OUTPUT_LEN) {
        return Err(Error::OutputTooShort);
    }
    if out.len() > params.output_len().unwrap_or(Params::MAX_OUTPUT_LEN) {
        return Err(Error::OutputTooLong);
    }
    if salt.len() < argon2::MIN_SALT_LEN {
        return Err(Error::SaltTooShort);
    }
    let blocks = blocks.get_mut(..params.block_count()).ok_or(Error::MemoryTooLittle)?;
    initial::write_first_blocks(params, [password, salt], out.len(), blocks)?;
    fill::fill(params, blocks, pause);
    initial::tag(params, blocks, out)
}

#[cfg(test)]
mod tests {
    use argon2::{Algorithm, Argon2, Version};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn computes_the_test_vectors_of_the_reference_implementation() {
        let Some(hash_into) = with_avx2() else { return };
        for (lanes, expected) in [
            (1, "9dfeb910e80bad0311fee20f9c0e2b12c17987b4cac90c2ef54d5b3021c68bfe"),
            (2, "6d093c501fd5999645e0ea3bf620d7b8be7fd2db59c20d9fff9539da2bf57037"),
        ] {
            let params = Params::new(256, 2, lanes, Some(32)).unwrap();
            let (mut tag, mut memory) = ([0; 32], Memory::new(params.block_count()).unwrap());
            hash_into(&params, b"password", b"somesalt", &mut tag, memory.blocks(), &mut || ()).unwrap();
            assert_eq!(tag.map(|byte| format!("{byte:02x}")).concat(), expected);
        }
    }

    #[test]
    fn pauses_every_1024_blocks() {
        let Some(hash_into) = with_avx2() else { return };
        let params = Params::new(8192, 2, 4, Some(32)).unwrap();
        let (mut pauses, mut memory) = (0, Memory::new(params.block_count()).unwrap());
        let mut pause = || pauses += 1;
        hash_into(&params, b"password", b"saltsalt", &mut [0; 32], memory.blocks(), &mut pause).unwrap();
        assert_eq!(pauses, 15, "16,376 blocks, without the first two of each lane");
    }

    #[test]
    fn rejects_what_the_crate_rejects() {
        let Some(hash_into) = with_avx2() else { return };
        let params = Params::new(64, 1, 2, Some(32)).unwrap();
        let oracle = Argon2::new(Algorithm::Argon2id, Version::V0x13, params.clone());
        let mut memory = Memory::new(params.block_count()).unwrap();
        for (salt, length, count) in [(7, 32, 64), (8, 31, 64), (8, 33, 64), (8, 32, 63), (8, 32, 64)] {
            let (salt, mut out, blocks) = (vec![5; salt], vec![0; length], &mut memory.blocks()[..count]);
            let expected = oracle.hash_password_into_with_memory(b"", &salt, &mut out, &mut *blocks);
            let result = hash_into(&params, b"", &salt, &mut out, blocks, &mut || ());
            assert_eq!(result, expected);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn computes_what_the_crate_computes(
            password in prop::collection::vec(any::<u8>(), 0..200),
            salt in prop::collection::vec(any::<u8>(), 8..64),
            // Segments of more than 128 blocks need several blocks of addresses.
            (lanes, memory) in (1..=16_u32).prop_flat_map(|lanes| (Just(lanes), 8 * lanes..=600 * lanes)),
            passes in 1..=4_u32,
            length in 4..200_usize,
        ) {
            let Some(hash_into) = with_avx2() else { return Ok(()) };
            let params = Params::new(memory, passes, lanes, Some(length)).unwrap();
            let (mut tag, mut expected) = (vec![0; length], vec![0; length]);
            let oracle = Argon2::new(Algorithm::Argon2id, Version::V0x13, params.clone());
            oracle.hash_password_into(&password, &salt, &mut expected).unwrap();
            // The result is independent of earlier content of the memory.
            let mut blocks = vec![Block::new(); params.block_count()];
            for block in &mut blocks {
                block.as_mut().fill(u64::MAX);
            }
            hash_into(&params, &password, &salt, &mut tag, &mut blocks, &mut || ()).unwrap();
            assert_eq!(tag, expected);
        }
    }
}
