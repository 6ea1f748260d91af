//! Group commit without a thread of its own: whoever comes first drives for all who wait.
//!
//! A caller boards with a job. If nobody drives, it drives: it takes every job that is waiting,
//! does them in one go, and gives each back to its caller with the answer inside. So whatever a job
//! holds is made and dropped by one thread.
//!
//! Whoever boards meanwhile waits for the next convoy. So a caller alone pays no thread switch, and
//! nobody ever waits for a convoy to fill: what queued up during the last one is what the next one
//! takes.
//!
//! A driver drives more convoys while others wait, up to [`ROUNDS_MAX`], and then passes the lead
//! to the first of them.
//!
//! To wake a thread takes longer than to do its job, and while the driver wakes, nothing commits.
//! So it wakes one of [`RELAY`] callers, who wakes the others before it goes its way.
//!
//! # Invariants
//! - While jobs wait, somebody drives or has been told to.
//! - A driver begins as the first of those who wait, so its own job is in the first convoy that it
//!   drives.
//! - A driver that panics leaves nobody waiting: the others learn that their answer is lost.
//! - A panic in a convoy that a caller drives for others is not that caller's: its own job was
//!   answered before.
//! - Who is to wake others goes its way by that alone, and does nothing before it. A driver would
//!   do it after its lead, so it is asked to wake nobody.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::sync::{Arc, Mutex, MutexGuard, PoisonError, RELAY, Thread, thread};

/// Convoys that one caller drives before it passes the lead on. To wake the next driver takes about
/// as long as a commit when everybody is busy, so the lead is passed seldom: with 8 instead, 64
/// callers were slower by a twentieth. A caller whose own job is done waits for no more than this
/// many.
pub(crate) const ROUNDS_MAX: usize = 32;

/// Jobs `J` that are done together and given back one by one.
#[derive(Debug)]
pub(crate) struct Convoy<J> {
    road: Mutex<Road<J>>,
    /// The most load of one convoy; a job that is heavier alone drives alone.
    load_max: usize,
    /// How long one caller drives before it passes the lead on, however few convoys that were.
    lead_time_max: Duration,
}

#[derive(Debug)]
struct Road<J> {
    waiting: VecDeque<Passenger<J>>,
    /// Whether somebody drives, or has been told to.
    is_driven: bool,
}

#[derive(Debug)]
struct Passenger<J> {
    job: J,
    load: usize,
    seat: Arc<Seat<J>>,
}

/// Where one caller waits.
#[derive(Debug)]
struct Seat<J> {
    word: Mutex<Word<J>>,
    /// Who waits. Waking a thread that does not sleep costs no call of the system, and a driver
    /// never sleeps for its own answer.
    caller: Thread,
}

#[derive(Debug)]
enum Word<J> {
    /// Nothing yet.
    Wait,
    /// You are the first now.
    Drive,
    /// Your job is done. Wake these: theirs are, too.
    Done(J, Vec<Arc<Seat<J>>>),
    /// The driver is gone, and what it did is not known.
    Lost,
}

impl<J> Convoy<J> {
    /// A convoy that takes up to `load_max` at once, and whose lead is passed on after
    /// `lead_time_max`.
    pub(crate) const fn new(load_max: usize, lead_time_max: Duration) -> Self {
        let road = Road { waiting: VecDeque::new(), is_driven: false };
        Self { road: Mutex::new(road), load_max, lead_time_max }
    }

    /// Has `job` done, by `drive` together with others or by the `drive` of another caller, and
    /// gives it back; `None` if the driver panicked.
    pub(crate) fn ride(&self, job: J, load: usize, mut drive: impl FnMut(&mut [J])) -> Option<J> {
        let seat = Arc::new(Seat { word: Mutex::new(Word::Wait), caller: thread::current() });
        if !self.board(Passenger { job, load, seat: Arc::clone(&seat) }) {
            match seat.listen() {
                Word::Done(job, others) => {
                    others.iter().for_each(|other| other.caller.unpark());
                    return Some(job);
                }
                Word::Lost => return None,
                Word::Drive | Word::Wait => {}
            }
        }
        self.lead(&mut drive);
        match seat.listen() {
            Word::Done(job, others) => {
                assert!(others.is_empty(), "a driver is asked to wake nobody");
                Some(job)
            }
            Word::Lost | Word::Drive | Word::Wait => None,
        }
    }

    /// Drives what waits, and passes the lead on in time.
    fn lead(&self, drive: &mut impl FnMut(&mut [J])) {
        let begun = Instant::now();
        for round in 1.. {
            let (mut jobs, seats) = self.take();
            let mut trip = Trip { convoy: self, seats, is_led: true };
            let is_own = round == 1;
            let is_done = match is_own {
                true => {
                    drive(&mut jobs);
                    true
                }
                // It was reported when it happened. Whoever waits learns that its answer is lost.
                false => catch_unwind(AssertUnwindSafe(|| drive(&mut jobs))).is_ok(),
            };
            if is_done {
                trip.hand_out(jobs, is_own);
            }
            if round == ROUNDS_MAX || begun.elapsed() >= self.lead_time_max || !trip.keep_lead() {
                break;
            }
        }
    }

    /// Whether the passenger drives at once.
    fn board(&self, passenger: Passenger<J>) -> bool {
        let mut road = self.road();
        road.waiting.push_back(passenger);
        !std::mem::replace(&mut road.is_driven, true)
    }

    /// The jobs of the next convoy and the seats of their callers, the driver's first.
    fn take(&self) -> (Vec<J>, Vec<Arc<Seat<J>>>) {
        let mut road = self.road();
        let mut load = 0_usize;
        let mut fits = |passenger: &Passenger<J>| {
            load = load.saturating_add(passenger.load);
            load <= self.load_max
        };
        let count = road.waiting.iter().take_while(|it| fits(it)).count().max(1);
        road.waiting.drain(..count).map(|passenger| (passenger.job, passenger.seat)).unzip()
    }

    /// Tells the first who waits to drive.
    fn pass_lead(&self) {
        let mut road = self.road();
        match road.waiting.front() {
            Some(next) => next.seat.say(Word::Drive),
            None => road.is_driven = false,
        }
    }

    #[cfg(test)]
    pub(crate) fn is_driven(&self) -> bool {
        let road = self.road();
        // The driver has taken its own job by then.
        road.is_driven && road.waiting.is_empty()
    }

    /// Puts a job on the road whose caller does not wait.
    #[cfg(test)]
    pub(crate) fn board_in_passing(&self, job: J) {
        let seat = Arc::new(Seat { word: Mutex::new(Word::Wait), caller: thread::current() });
        self.road().waiting.push_back(Passenger { job, load: 1, seat });
    }

    #[cfg(test)]
    pub(crate) fn waiting_count(&self) -> usize {
        self.road().waiting.len()
    }

    fn road(&self) -> MutexGuard<'_, Road<J>> {
        // Nothing that can panic runs under this lock.
        self.road.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<J> Seat<J> {
    fn say(&self, word: Word<J>) {
        *self.word() = word;
        self.caller.unpark();
    }

    /// Waits for a word, and takes it. Only its caller listens.
    fn listen(&self) -> Word<J> {
        loop {
            // The lock is given back before the caller sleeps, or nobody could ever say a word.
            let word = std::mem::replace(&mut *self.word(), Word::Wait);
            match word {
                // It may wake for no reason, and then looks again.
                Word::Wait => thread::park(),
                said @ (Word::Drive | Word::Done(..) | Word::Lost) => return said,
            }
        }
    }

    fn word(&self) -> MutexGuard<'_, Word<J>> {
        self.word.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A convoy on its way. Dropping it, also by a panic, leaves nobody waiting.
struct Trip<'c, J> {
    convoy: &'c Convoy<J>,
    /// Those who have no answer yet.
    seats: Vec<Arc<Seat<J>>>,
    /// Whether the lead was not passed on yet.
    is_led: bool,
}

impl<J> Trip<'_, J> {
    /// Gives the jobs back, which are done; the first is the driver's own if `is_own`.
    fn hand_out(&mut self, jobs: Vec<J>, is_own: bool) {
        let (mut seats, mut jobs) = (self.seats.drain(..), jobs.into_iter());
        if is_own && let (Some(own), Some(job)) = (seats.next(), jobs.next()) {
            *own.word() = Word::Done(job, Vec::new());
        }
        while let (Some(first), Some(job)) = (seats.next(), jobs.next()) {
            let others: Vec<_> = seats.by_ref().take(RELAY - 1).collect();
            for (other, job) in others.iter().zip(&mut jobs) {
                *other.word() = Word::Done(job, Vec::new());
            }
            first.say(Word::Done(job, others));
        }
    }

    /// Drives on if somebody waits; answers whether somebody does.
    fn keep_lead(&mut self) -> bool {
        self.is_led = self.convoy.road().waiting.is_empty();
        !self.is_led
    }

    fn pass_lead(&mut self) {
        if std::mem::replace(&mut self.is_led, false) {
            self.convoy.pass_lead();
        }
    }
}

impl<J> Drop for Trip<'_, J> {
    fn drop(&mut self) {
        self.pass_lead();
        self.seats.drain(..).for_each(|seat| seat.say(Word::Lost));
    }
}
