//! The key space in a fixed number of buckets, whatever the number of shards.
//!
//! The borders are fractions of the source, by the density that was measured when the run was first
//! seen, so a split moves none of them.

use gossip::runtime::{CELL_ROUNDING, Slice, SliceState, cells_touched, spread};

/// Buckets of a run.
pub(crate) const BUCKETS: usize = 512;

/// What a bucket shows: what most of its unfinished keys are. A failed item shows always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Done,
    Leased,
    /// Leased by a worker that does not renew.
    Stalled,
    Waiting,
    Failed,
}

impl State {
    /// The word of the API.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Leased => "leased",
            Self::Stalled => "stalled",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
        }
    }
}

/// One bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    pub(crate) state: State,
    /// Number of the worker with the largest part of it.
    pub(crate) worker: Option<u16>,
    /// Covered percent, rounded down: 100 only if every key is covered.
    pub(crate) covered: u8,
}

/// The lease holder of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Holder {
    pub(crate) number: u16,
    pub(crate) is_stalled: bool,
}

/// Returns the buckets of a run; `holder` names the lease holder of a slice.
pub(crate) fn buckets(
    slices: &[Slice],
    count: usize,
    holder: impl Fn(&Slice) -> Option<Holder>,
) -> Vec<Bucket> {
    let mut sums = vec![Sum::default(); count];
    for slice in slices {
        if matches!(slice.state, SliceState::Parked | SliceState::Damaged) {
            // Apart from the sums: a single failed item is too small to show in them.
            // Of a single item the bucket in which it lies.
            let touched = cells_touched(slice.covered, slice.to, count);
            sums[touched].iter_mut().for_each(|sum| sum.has_failed = true);
        }
        spread(&mut sums, slice.from, slice.covered, |sum, part| sum.done += part);
        let holder = holder(slice);
        spread(&mut sums, slice.covered, slice.to, |sum, part| sum.add(slice.state, holder, part));
    }
    sums.iter().map(Sum::bucket).collect()
}

/// The parts of one bucket, each from 0 to 1.
#[derive(Clone, Debug, Default)]
struct Sum {
    done: f64,
    waiting: f64,
    /// The lease holder with the largest part, and that part.
    leased: Option<(Holder, f64)>,
    has_failed: bool,
}

impl Sum {
    fn add(&mut self, state: SliceState, holder: Option<Holder>, part: f64) {
        match (state, holder) {
            (SliceState::Parked | SliceState::Damaged, _) => {}
            (SliceState::Leased, Some(holder)) => {
                self.leased = Some(match self.leased {
                    Some((same, sum)) if same.number == holder.number => (same, sum + part),
                    Some((other, sum)) if sum >= part => (other, sum),
                    _ => (holder, part),
                });
            }
            (SliceState::Leased | SliceState::Waiting | SliceState::Done, _) => {
                self.waiting += part;
            }
        }
    }

    fn bucket(&self) -> Bucket {
        let leased = self.leased.filter(|(_, part)| *part > CELL_ROUNDING);
        let state = match leased {
            _ if self.has_failed => State::Failed,
            Some((holder, _)) if holder.is_stalled => State::Stalled,
            Some(_) => State::Leased,
            None if self.waiting <= CELL_ROUNDING && self.done > CELL_ROUNDING => State::Done,
            None => State::Waiting,
        };
        let worker = leased.map(|(holder, _)| holder.number);
        let covered = match state {
            State::Done => 100,
            // Never 100 by rounding: that would hide a key that is not done.
            State::Leased | State::Stalled | State::Waiting | State::Failed => {
                (self.done * 100.0).clamp(0.0, 99.0) as u8
            }
        };
        Bucket { state, worker, covered }
    }
}

/// Equal neighbours: how many, their state, the worker, the covered percent.
pub(crate) type Cells = Vec<(usize, &'static str, Option<u16>, u8)>;

/// Joins equal neighbours, so that a page costs what it shows.
pub(crate) fn joined(buckets: &[Bucket]) -> Cells {
    let same = buckets.chunk_by(|one, other| one == other);
    same.map(|same| (same.len(), same[0].state.word(), same[0].worker, same[0].covered)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(sum: &Sum) -> &'static str {
        sum.bucket().state.word()
    }

    fn sums(parts: &[(f64, f64, SliceState, Option<Holder>)], count: usize) -> Vec<Sum> {
        let mut sums = vec![Sum::default(); count];
        for (from, to, state, holder) in parts {
            match state {
                SliceState::Done => spread(&mut sums, *from, *to, |sum, part| sum.done += part),
                _ => spread(&mut sums, *from, *to, |sum, part| sum.add(*state, *holder, part)),
            }
        }
        sums
    }

    #[test]
    fn each_bucket_shows_most_of_its_unfinished_keys() {
        let holder = |number, is_stalled| Some(Holder { number, is_stalled });
        let sums = sums(
            &[
                (0.0, 0.5, SliceState::Done, None),
                (0.5, 0.7, SliceState::Leased, holder(1, false)),
                (0.7, 0.75, SliceState::Leased, holder(2, true)),
                (0.75, 1.0, SliceState::Waiting, None),
            ],
            4,
        );
        assert_eq!(
            sums.iter().map(word).collect::<Vec<_>>(),
            ["done", "done", "leased", "waiting"]
        );
        assert_eq!(sums[2].bucket().worker, Some(1));
    }

    #[test]
    fn every_number_of_buckets_shows_a_finished_source_as_done() {
        let parts: Vec<_> = (0..7)
            .map(|part| (f64::from(part) / 7.0, f64::from(part + 1) / 7.0, SliceState::Done, None))
            .collect();
        for count in 1..300 {
            assert!(sums(&parts, count).iter().all(|sum| word(sum) == "done"), "{count}");
        }
    }

    #[test]
    fn equal_neighbours_are_one_entry() {
        let done = Bucket { state: State::Done, worker: None, covered: 100 };
        let leased = Bucket { state: State::Leased, worker: Some(3), covered: 7 };
        assert_eq!(
            joined(&[done, done, leased]),
            [(2, "done", None, 100), (1, "leased", Some(3), 7)]
        );
    }
}
