//! Working memory in huge pages, which the operating system gets back on drop.

use argon2::Block;
use memmap2::MmapMut;

/// Memory of one hash at a time. Allocation for each hash would take a third of its time, so callers reuse it.
pub struct Memory {
    map: MmapMut,
    blocks: usize,
}

impl Memory {
    /// Reserves memory of a number of blocks of 1 KiB. The system provides it when it is first written.
    ///
    /// # Errors
    /// The system has no memory.
    pub fn new(blocks: usize) -> std::io::Result<Self> {
        let map = MmapMut::map_anon(blocks * Block::SIZE)?;
        // Without huge pages, most accesses to a block also miss the TLB. A system without them is slower, but works.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Self { map, blocks })
    }

    /// Returns the number of blocks.
    pub fn len(&self) -> usize {
        self.blocks
    }

    /// Returns whether the memory has no block.
    pub fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// Returns all blocks. They contain what the previous hash wrote.
    pub fn blocks(&mut self) -> &mut [Block] {
        #[expect(unsafe_code, reason = "blocks in mapped memory")]
        // SAFETY: a `Block` is an aligned array of 128 integers, for which all bytes are valid. A page is aligned to more.
        let (_, blocks, _) = unsafe { self.map.align_to_mut() };
        &mut blocks[..self.blocks]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The resident memory of this process in pages of 4 KiB.
    #[cfg(target_os = "linux")]
    fn resident_pages() -> usize {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        text.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_system_gets_dropped_memory_back() {
        let before = resident_pages();
        let mut memory = Memory::new(128 * 1024).unwrap();
        memory.blocks().fill(Block::new());
        assert!(resident_pages() > before + 24 * 1024);
        drop(memory);
        assert!(resident_pages() < before + 16 * 1024);
    }
}
