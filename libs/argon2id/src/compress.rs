//! The compression function G of RFC 9106, section 3.5, for the instructions of the machine.

use argon2::Block;

#[cfg(target_arch = "x86_64")]
#[macro_use]
mod vectors;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

/// Writes G of two blocks to a third one. With `true`, the third block becomes its XOR with G, as in all
/// passes but the first. Requests the upcoming blocks from memory meanwhile.
pub(crate) type Compress = fn(&Block, &Block, &mut Block, bool, Upcoming);

/// Number of cache lines of a block.
#[cfg(target_arch = "x86_64")]
const LINES: usize = Block::SIZE / 64;

/// The blocks that the next call uses: the one that it references, and the one that it writes. They are requested from memory line by
/// line during a call. Requested at once, they are more lines than a core can wait for, so it would stop for a quarter of its time.
#[derive(Clone, Copy)]
#[cfg_attr(
    not(target_arch = "x86_64"),
    expect(dead_code, reason = "other processors compute blocks without requests")
)]
pub(crate) struct Upcoming([*const Block; 2]);

impl Upcoming {
    /// The blocks at these positions.
    pub(crate) fn new(blocks: &[Block], positions: [usize; 2]) -> Self {
        Self(positions.map(|position| blocks.as_ptr().wrapping_add(position)))
    }

    /// A block that is in the cache, if no other one is upcoming.
    pub(crate) fn cached(block: &Block) -> Self {
        Self([block; 2])
    }

    /// The addresses of a line, 0 to 15, of both blocks.
    #[cfg(target_arch = "x86_64")]
    fn line(self, line: usize) -> [*const i8; 2] {
        self.0.map(|block| block.cast::<i8>().wrapping_add(64 * line))
    }

    /// Requests all lines at once.
    pub(crate) fn request(self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        for address in (0..LINES).flat_map(|line| self.line(line)) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            #[expect(unsafe_code, reason = "the function takes a pointer")]
            // SAFETY: the instruction is part of every x86-64 processor, and ignores an address without memory.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(address);
            }
        }
    }
}

/// An implementation that this machine can run.
#[derive(Clone, Copy)]
pub struct Backend {
    name: &'static str,
    pub(crate) compress: Compress,
}

impl Backend {
    /// Returns the implementations that this machine can run, the fastest first.
    pub fn available() -> Vec<Self> {
        let backend = |name, compress| Self { name, compress };
        [
            #[cfg(target_arch = "x86_64")]
            avx512::compression().map(|compress| backend("avx512", compress)),
            #[cfg(target_arch = "x86_64")]
            avx2::compression().map(|compress| backend("avx2", compress)),
            Some(backend("portable", portable::compress)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Returns the name of the instructions: `avx512`, `avx2` or `portable`.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl std::fmt::Debug for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}
