//! The fill of the memory (RFC 9106, sections 3.2 to 3.4), one block of each lane in turn.

use argon2::{Algorithm, Block, Params};

use crate::compress::{Upcoming, compress};

/// Segments of a lane. Lanes do not reference the current segment of each other, so it can be computed in any order.
const SLICES: usize = 4;
/// Numbers in a block of addresses.
const ADDRESSES: usize = 128;
const BLOCKS_PER_PAUSE: usize = 1024;

/// Computes all blocks after the first two of each lane. `blocks` has the length that the parameters require.
#[target_feature(enable = "avx2")]
pub(crate) fn fill(params: &Params, blocks: &mut [Block], pause: &mut dyn FnMut()) {
    let lanes = params.p_cost() as usize;
    let mut addresses = vec![Block::new(); lanes];
    let mut positions = vec![0; lanes];
    let mut since_pause = 0;
    for pass in 0..params.t_cost() as usize {
        for slice in 0..SLICES {
            let segment = Segment::new(params, blocks.len(), pass, slice);
            // Where the reference block of a new block is.
            let mut locate = |blocks: &[Block], lane: usize, index: usize| {
                let random = if segment.is_independent() {
                    if index == segment.start() || index.is_multiple_of(ADDRESSES) {
                        segment.write_addresses(lane, index, &mut addresses[lane]);
                    }
                    addresses[lane].as_ref()[index % ADDRESSES]
                } else {
                    blocks[segment.previous(lane, index)].as_ref()[0]
                };
                segment.reference(lane, index, random)
            };
            let mut upcoming = Upcoming::cached(&blocks[0]);
            for (lane, reference) in positions.iter_mut().enumerate() {
                *reference = locate(blocks, lane, segment.start());
                Upcoming::new(blocks, [*reference, segment.position(lane, segment.start())]).request();
            }
            for index in segment.start()..segment.length {
                for (lane, reference) in positions.iter_mut().enumerate() {
                    let three = [segment.previous(lane, index), *reference, segment.position(lane, index)];
                    let Ok([before, other, new]) = blocks.get_disjoint_mut(three) else {
                        unreachable!("the set of references contains neither the new nor the previous block")
                    };
                    compress(before, other, new, pass > 0, upcoming);
                    if index + 1 < segment.length {
                        *reference = locate(blocks, lane, index + 1);
                        // Requested while the block of the next lane is computed.
                        upcoming = Upcoming::new(blocks, [*reference, segment.position(lane, index + 1)]);
                    }
                }
                since_pause += lanes;
                if since_pause >= BLOCKS_PER_PAUSE {
                    since_pause -= BLOCKS_PER_PAUSE;
                    pause();
                }
            }
        }
    }
}

/// The segments of all lanes in one slice of one pass. An index is that of a block in its segment.
struct Segment<'a> {
    params: &'a Params,
    block_count: usize,
    pass: usize,
    slice: usize,
    lanes: usize,
    lane_length: usize,
    length: usize,
}

impl<'a> Segment<'a> {
    fn new(params: &'a Params, block_count: usize, pass: usize, slice: usize) -> Self {
        let lanes = params.p_cost() as usize;
        let lane_length = block_count / lanes;
        Self { params, block_count, pass, slice, lanes, lane_length, length: lane_length / SLICES }
    }

    /// The index of the first block that is not one of the first two of the lane.
    fn start(&self) -> usize {
        if self.pass == 0 && self.slice == 0 { 2 } else { 0 }
    }

    fn position(&self, lane: usize, index: usize) -> usize {
        lane * self.lane_length + self.slice * self.length + index
    }

    /// The position of the block before, in a ring.
    fn previous(&self, lane: usize, index: usize) -> usize {
        let offset = self.slice * self.length + index;
        lane * self.lane_length + offset.checked_sub(1).unwrap_or(self.lane_length - 1)
    }

    /// Whether the references do not depend on the password: first half of the first pass (section 3.4.1.3).
    fn is_independent(&self) -> bool {
        self.pass == 0 && self.slice < SLICES / 2
    }

    /// Computes the addresses for an index and those after it (section 3.4.1.2).
    #[target_feature(enable = "avx2")]
    fn write_addresses(&self, lane: usize, index: usize, addresses: &mut Block) {
        let mut input = Block::new();
        let passes = self.params.t_cost() as usize;
        let counter = index / ADDRESSES + 1;
        let numbers =
            [self.pass, lane, self.slice, self.block_count, passes, Algorithm::Argon2id as usize, counter];
        for (word, number) in input.as_mut().iter_mut().zip(numbers) {
            *word = number as u64;
        }
        let (zero, mut once) = (Block::new(), Block::new());
        compress(&zero, &input, &mut once, false, Upcoming::cached(&zero));
        compress(&zero, &once, addresses, false, Upcoming::cached(&zero));
    }

    /// The position of the reference block: the mapping of `J_1` and `J_2`, the halves of a random number (section 3.4.2).
    fn reference(&self, lane: usize, index: usize, random: u64) -> usize {
        let (j1, j2) = (random & u64::from(u32::MAX), (random >> 32) as usize);
        let first_slice = self.pass == 0 && self.slice == 0;
        let reference_lane = if first_slice { lane } else { j2 % self.lanes };
        let finished = if self.pass == 0 { self.slice * self.length } else { self.lane_length - self.length };
        // In its own lane also the new blocks of the segment. The previous block is not in the set, and neither is the last
        // block of the other lanes for the first block of a segment.
        let size =
            if reference_lane == lane { finished + index - 1 } else { finished - usize::from(index == 0) };
        let x = (j1 * j1) >> 32;
        let z = size - 1 - ((size as u64 * x) >> 32) as usize;
        // The oldest block is at the start of the lane, or after the segment that is being replaced.
        let oldest =
            if self.pass == 0 || self.slice == SLICES - 1 { 0 } else { (self.slice + 1) * self.length };
        let position = oldest + z;
        let wrapped = if position < self.lane_length { position } else { position - self.lane_length };
        reference_lane * self.lane_length + wrapped
    }
}
