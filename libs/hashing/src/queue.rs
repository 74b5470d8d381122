//! The bounded queue of the hash pool: the order of the waiting hashes, and which of them are shed.
//!
//! The queue has two lanes of equal size. A worker takes from both in turn, so neither lane can delay the other by more than one
//! hash per worker. Within a lane, the groups of the requesters take turns, for example networks and tenants: the first waiting
//! hash of a group goes before the second one of any other. A further hash of a group keeps its place only until the lane is full.
//! Then a group without a waiting hash takes that place, so a full lane has one waiting hash per group. A strict limit of one would
//! also reject the users behind one shared address from an idle queue.

use std::collections::VecDeque;

/// Queued requests per worker and lane. With a hash of 60 ms, more could not start within two seconds while both lanes
/// are in use.
const LANE_PER_WORKER: usize = 16;

/// The part of the queue in which a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// For requesters that have presented a valid credential: a single-use token, the current password, or a recent login to the
    /// same account from the same address.
    Reserved,
    /// For all others.
    Open,
}

/// The client that a hash is computed for.
#[derive(Clone, Debug)]
pub struct Requester {
    lane: Lane,
    /// Names of the groups of the client, each with the number of hashes that it may have per turn.
    groups: Vec<(String, u32)>,
}

impl Requester {
    /// A client in some groups, each with the number of hashes that it may have per turn.
    pub fn new(lane: Lane, groups: impl IntoIterator<Item = (String, u32)>) -> Self {
        Self { lane, groups: groups.into_iter().collect() }
    }
}

/// No place is left for the requester.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// Waiting jobs. `T` is a job; a job that its caller has dropped is stale and does not count.
pub(crate) struct Queue<T> {
    /// In the order in which they start.
    lanes: [VecDeque<Waiting<T>>; 2],
    capacity: usize,
    last: Lane,
    is_stale: fn(&T) -> bool,
}

struct Waiting<T> {
    groups: Vec<(String, u32)>,
    /// The number of hashes of its groups that go first, in units of turns.
    turn: u32,
    job: T,
}

impl<T> Queue<T> {
    pub(crate) fn new(workers: usize, is_stale: fn(&T) -> bool) -> Self {
        let lanes = [VecDeque::new(), VecDeque::new()];
        Self { lanes, capacity: workers * LANE_PER_WORKER, last: Lane::Open, is_stale }
    }

    pub(crate) fn len(&self) -> usize {
        self.lanes.iter().map(VecDeque::len).sum()
    }

    /// Returns the turn that a new job of the requester gets.
    pub(crate) fn turn(&mut self, requester: &Requester) -> Result<u32, Full> {
        let (capacity, is_stale) = (self.capacity, self.is_stale);
        let lane = self.lane(requester.lane);
        if lane.len() >= capacity {
            lane.retain(|waiting| !is_stale(&waiting.job));
        }
        let waiting_in = |name: &str| {
            let in_group = |waiting: &&Waiting<T>| waiting.groups.iter().any(|(other, _)| other == name);
            u32::try_from(lane.iter().filter(in_group).count()).unwrap_or(u32::MAX)
        };
        let turns = requester.groups.iter().map(|(name, width)| waiting_in(name) / (*width).max(1));
        let turn = turns.max().unwrap_or_default();
        let has_place = lane.len() < capacity || lane.back().is_some_and(|last| last.turn > turn);
        if has_place { Ok(turn) } else { Err(Full) }
    }

    /// Adds a job. Returns the job that is shed for it, if any.
    pub(crate) fn push(&mut self, requester: Requester, job: T) -> Result<Option<T>, Full> {
        let (turn, capacity) = (self.turn(&requester)?, self.capacity);
        let lane = self.lane(requester.lane);
        let shed = if lane.len() < capacity { None } else { lane.pop_back() };
        let place = lane.partition_point(|waiting| waiting.turn <= turn);
        lane.insert(place, Waiting { groups: requester.groups, turn, job });
        Ok(shed.map(|waiting| waiting.job))
    }

    /// Removes the next job.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let next = match self.last {
            Lane::Reserved => [Lane::Open, Lane::Reserved],
            Lane::Open => [Lane::Reserved, Lane::Open],
        };
        next.into_iter().find_map(|lane| {
            let waiting = self.lane(lane).pop_front()?;
            self.last = lane;
            Some(waiting.job)
        })
    }

    fn lane(&mut self, lane: Lane) -> &mut VecDeque<Waiting<T>> {
        &mut self.lanes[lane as usize]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A queue of one worker; its jobs are texts.
    fn queue() -> Queue<String> {
        Queue::new(1, |job| job.starts_with("stale"))
    }

    fn at(lane: Lane, network: impl std::fmt::Display) -> Requester {
        Requester::new(lane, [(network.to_string(), 1)])
    }

    fn drain(queue: &mut Queue<String>) -> Vec<String> {
        std::iter::from_fn(|| queue.pop()).collect()
    }

    #[test]
    fn a_flood_from_a_hundred_addresses_leaves_the_reserved_lane_to_known_clients() {
        let mut queue = queue();
        let accepted =
            (0..100).filter(|n| queue.push(at(Lane::Open, n), format!("flood {n}")).is_ok()).count();
        assert_eq!(accepted, LANE_PER_WORKER);
        for n in 0..20 {
            let owner = at(Lane::Reserved, "owner");
            assert_eq!(queue.push(owner, format!("owner {n}")), Ok(None));
            let first_two = [queue.pop().unwrap(), queue.pop().unwrap()];
            assert!(first_two.contains(&format!("owner {n}")), "{first_two:?}");
            // The flood goes on.
            while queue.push(at(Lane::Open, format!("more {n} {}", queue.len())), "flood".to_owned()).is_ok()
            {
            }
        }
    }

    #[test]
    fn known_clients_cannot_occupy_the_open_lane() {
        let mut queue = queue();
        for n in 0..100 {
            let _ = queue.push(at(Lane::Reserved, n), "known".to_owned());
        }
        assert_eq!(queue.push(at(Lane::Open, "new address"), "new".to_owned()), Ok(None));
        assert!([queue.pop().unwrap(), queue.pop().unwrap()].contains(&"new".to_owned()));
    }

    #[test]
    fn the_addresses_of_a_lane_take_turns() {
        let mut queue = queue();
        for n in 0..4 {
            queue.push(at(Lane::Open, "a"), format!("a{n}")).unwrap();
        }
        queue.push(at(Lane::Open, "b"), "b0".to_owned()).unwrap();
        queue.push(at(Lane::Open, "b"), "b1".to_owned()).unwrap();
        queue.push(at(Lane::Open, "c"), "c0".to_owned()).unwrap();
        assert_eq!(drain(&mut queue), ["a0", "b0", "c0", "a1", "b1", "a2", "a3"]);
    }

    #[test]
    fn a_full_lane_keeps_one_hash_per_address() {
        let mut queue = queue();
        for n in 0..LANE_PER_WORKER {
            assert_eq!(
                queue.push(at(Lane::Open, "a"), format!("a{n}")),
                Ok(None),
                "the queue is idle otherwise"
            );
        }
        assert_eq!(queue.push(at(Lane::Open, "a"), "one more".to_owned()), Err(Full));
        for n in 1..LANE_PER_WORKER {
            let shed = format!("a{}", LANE_PER_WORKER - n);
            assert_eq!(queue.push(at(Lane::Open, n), n.to_string()), Ok(Some(shed)));
        }
        assert_eq!(queue.push(at(Lane::Open, "too late"), "too late".to_owned()), Err(Full));
        let waiting = drain(&mut queue);
        assert_eq!((waiting.len(), &*waiting[0]), (LANE_PER_WORKER, "a0"));
    }

    #[test]
    fn the_subnets_of_a_large_network_share_its_turns() {
        let mut queue = queue();
        let subnet = |n: usize| Requester::new(Lane::Open, [(format!("/64 {n}"), 1), ("/56".to_owned(), 4)]);
        for n in 0..6 {
            queue.push(subnet(n), format!("subnet {n}")).unwrap();
        }
        queue.push(at(Lane::Open, "other"), "other".to_owned()).unwrap();
        let order = drain(&mut queue);
        assert_eq!(order[4], "other", "four of the network go first: {order:?}");
    }

    #[test]
    fn a_stale_job_does_not_count_in_a_full_lane() {
        let mut queue = queue();
        for n in 0..LANE_PER_WORKER {
            queue.push(at(Lane::Open, n), "stale".to_owned()).unwrap();
        }
        assert_eq!(queue.turn(&at(Lane::Open, "new")), Ok(0));
        assert_eq!(queue.len(), 0);
    }

    proptest! {
        #[test]
        fn a_lane_is_bounded_and_never_sheds_the_first_hash_of_a_network(
            steps in prop::collection::vec((any::<bool>(), 0..24_u32, any::<bool>()), 0..200)
        ) {
            let mut queue = queue();
            for (reserved, network, pop) in steps {
                let lane = if reserved { Lane::Reserved } else { Lane::Open };
                let turn = queue.turn(&at(lane, network));
                let job = if turn == Ok(0) { "first" } else { "further" };
                let pushed = queue.push(at(lane, network), job.to_owned());
                prop_assert_eq!(pushed.is_ok(), turn.is_ok());
                prop_assert_ne!(pushed, Ok(Some("first".to_owned())));
                if pop {
                    queue.pop();
                }
                prop_assert!(queue.lanes.iter().all(|lane| lane.len() <= LANE_PER_WORKER));
            }
        }
    }
}
